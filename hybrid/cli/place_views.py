"""Pools, nodes, offers and claims as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import yaml

from hybrid.cli.offer_choice import models, per_gpu, per_speed
from hybrid.cli.tables import line, pairs, stack, table
from hybrid.cli.views import gpu_name
from hybrid.cli.words import ago, dollars, plural, span
from hybrid.client import answers as said
from hybrid.domain.job_spec import Profile


def nodes(found: said.NodeList) -> Any:
    """All nodes."""
    now = datetime.now(UTC)
    return table(
        ("id", "state", "pool", "gpus", ">busy", ">cpus", ">memory", "runs", "joined", "remarks"),
        (
            (
                node.id,
                node.state,
                node.pool,
                _devices(node.gpus),
                f"{sum(bool(gpu.run_ids) for gpu in node.gpus)}/{len(node.gpus)}",
                f"{node.cpus:g}",
                f"{node.memory_gib:.0f} GiB",
                " ".join(node.run_ids),
                ago(node.joined_at, now),
                _remarks(node),
            )
            for node in found.nodes
        ),
        empty="no nodes; `hybrid token create --join POOL` makes a token for one to join with",
    )


def _devices(gpus: Sequence[said.Gpu]) -> str:
    counts = Counter((gpu.model, gpu.virtual) for gpu in gpus)
    return ", ".join(
        f"{count}× {gpu_name(model)}{' (virtual)' if virtual else ''}"
        for (model, virtual), count in counts.items()
    )


def _remarks(node: said.Node) -> str:
    said_ = [f"GPU {gpu.index}: {gpu.health_reason}" for gpu in node.gpus if not gpu.healthy]
    said_ += [
        f"GPU {gpu.index} has room for {' or '.join(room.profile for room in gpu.room)}"
        for gpu in node.parted
        if gpu.room
    ]
    if node.cordon_cause:
        said_.insert(0, node.cordon_cause)
    if node.claim_id:
        said_.append(node.claim_id)
    return "; ".join(said_)


def pools(found: said.PoolList) -> Any:
    """All pools."""
    return table(
        ("name", "kind", ">nodes", ">gpus", ">machines", ">runs", "about"),
        (
            (
                pool.name,
                str(pool.spec.get("kind", "")),
                str(pool.nodes),
                str(pool.gpus),
                str(pool.machines) if pool.spec.get("kind") == "burst" else "–",
                str(pool.runs),
                _about(pool.spec),
            )
            for pool in found.pools
        ),
        empty="no pools",
    )


def _about(spec: dict[str, Any]) -> str:
    if spec.get("kind") != "burst":
        return str(spec.get("description", ""))
    ceilings = spec.get("ceilings", {})
    markets = "/".join(str(each) for each in spec.get("markets", ())).replace("_", "-")
    return (
        f"{spec.get('provider')} {spec.get('region')}, {markets},"
        f" at most {plural(ceilings.get('machines', 0), 'machine')}"
        f" and ${ceilings.get('usd_per_hour')}/h"
    )


def pool(found: said.Pool) -> Any:
    """One pool."""
    use = pairs(
        (
            ("version", str(found.version)),
            ("nodes", f"{found.nodes} with {plural(found.gpus, 'GPU')}"),
            ("machines", str(found.machines) if found.spec.get("kind") == "burst" else ""),
            ("runs", str(found.runs)),
        )
    )
    return stack(use, line(yaml.safe_dump(found.spec, sort_keys=False).rstrip()))


def offers(found: said.OfferList, profile: Profile = Profile.BALANCED) -> Any:
    """What could be had, what is ignored, and who could not be asked."""
    now = datetime.now(UTC)
    usable = table(
        ("pool", "machine", "market", "zone", "gpus", ">price/h", ">GPU/h", ">A100/h", ">at most",
         ">taken/h", "boots", ">left", "priced", "closed"),
        (
            (
                offer.pool,
                offer.machine_type,
                offer.market.replace("_", "-"),
                offer.zone,
                _models(offer),
                dollars(offer.price_usd_per_hour),
                _dollars(per_gpu(offer)),
                _dollars(per_speed(offer, profile)),
                dollars(offer.price_ceiling_usd_per_hour),
                _taken(offer),
                span(offer.boot_s),
                "?" if offer.quota_left is None else str(offer.quota_left),
                _priced(offer, now),
                _closed(offer, now),
            )
            for offer in found.offers
        ),
        empty="no offers",
    )  # fmt: skip
    ignored = table(("ignored", "why"), ((each.what, each.why) for each in found.ignored))
    unknown = table(("could not be read",), ((each,) for each in found.unknown))
    return stack(usable, ignored if found.ignored else None, unknown if found.unknown else None)


def _dollars(usd: Decimal | None) -> str:
    return "–" if usd is None else dollars(usd)


def _priced(offer: said.Offer, now: datetime) -> str:
    """How old the price is; what it was read from where that is no list of the cloud's."""
    when = ago(offer.priced_at, now)
    told = ("table", "not renewed")
    return f"{when}, {offer.price_source}" if any(t in offer.price_source for t in told) else when


def _taken(offer: said.Offer) -> str:
    return (
        f"{offer.interruptions_per_hour * offer.price_pressure:.1%}"
        if offer.market == "spot"
        else "–"
    )


def _closed(offer: said.Offer, now: datetime) -> str:
    """What closes an offer and for how long; once the wait is over one machine is tried."""
    breaker = offer.breaker
    if breaker is None:
        return ""
    if breaker.until <= now:
        return f"one at a time: {breaker.scope}: {breaker.cause}"
    return f"until {ago(breaker.until, now)}: {breaker.scope}: {breaker.cause}"


def _models(offer: said.Offer) -> str:
    counts = Counter(models(offer))
    return ", ".join(f"{n}× {gpu_name(model)}" for model, n in counts.items()) or "none"


def claims(found: said.ClaimList) -> Any:
    """Cloud machines."""
    now = datetime.now(UTC)
    return table(
        ("id", "state", "machine", "what", "zone", "for job", "asked", "paid until", ">held",
         ">charged", "remarks"),
        (
            (
                claim.id,
                claim.state,
                claim.machine_id or "–",
                f"{claim.offer.machine_type} {claim.offer.market.replace('_', '-')}",
                claim.offer.zone,
                claim.job_id,
                ago(claim.requested_at, now),
                "–" if claim.ended_at or claim.lease_until is None else ago(claim.lease_until, now),
                dollars(claim.held_usd),
                dollars(claim.charged_usd),
                _claim_remarks(claim, now),
            )
            for claim in found.claims
        ),
        empty="no cloud machines",
    )  # fmt: skip


def _claim_remarks(claim: said.Claim, now: datetime) -> str:
    if claim.notice_at is not None and claim.ended_at is None:
        return f"its cloud takes it {ago(claim.notice_at, now)}"
    if claim.rebalance_at is not None and claim.ended_at is None:
        return "its cloud recommends to leave it"
    return claim.cause
