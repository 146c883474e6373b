"""Offers that differ in nothing the planner weighs are one class; each class is judged once for
what concerns no particular job: unknown sources, breakers, prices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hybrid.domain.breaker import Breaker, covers
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import OfferId, PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import BreakerOpen, Reason, SourceUnknown
from hybrid.domain.snapshot import Snapshot
from hybrid.estimation.interruptions import rate_per_hour
from hybrid.planning.fit import Shape, offer_shape
from hybrid.planning.quotas import QuotaBook


@dataclass(slots=True, eq=False)
class OfferClass:
    """``offer`` stands for all ``members``, which differ in zone and quota alone.

    ``interruptions_per_hour`` is of one machine, with what was seen; ``boot_s`` the expected time
    from the request to the node's joining, measured if it was.
    """

    index: int
    offer: Offer
    members: tuple[Offer, ...]
    pool: BurstPool
    shape: Shape
    interruptions_per_hour: float
    boot_s: float
    refused: Reason | None

    @property
    def label(self) -> str:
        """Machine type, market and pool, for people."""
        market = str(self.offer.market).replace("_", "-")
        return f"{market} {self.offer.machine_type} in {self.offer.pool}"


class OfferBook:
    """All offer classes of one plan, and what is left of each offer."""

    def __init__(self, snapshot: Snapshot, pools: Mapping[PoolName, BurstPool]) -> None:
        self._snapshot = snapshot
        self._pools = pools
        self._quotas = QuotaBook(snapshot)
        self._probed: set[str] = set()
        # a recommendation to leave a machine speaks of its kind: it counts as an interruption seen
        self._hinted = Counter(
            claim.offer.id for claim in snapshot.claims.values() if claim.rebalance_at is not None
        )
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self.classes: list[OfferClass] = []
        self._group()

    def available(self, cls: OfferClass, machines: int) -> Offer | Reason:
        """The first member that so many machines can be asked of: all of a gang from one zone."""
        for offer in cls.members:
            probe = self._probing(offer)
            if probe is not None and (machines > 1 or probe.scope in self._probed):
                continue
            left = self._quotas.left(offer)
            if left is None or left >= machines:
                return offer
        if any(self._probing(offer) for offer in cls.members):
            breaker = next(b for o in cls.members if (b := self._probing(o)))
            return BreakerOpen(breaker.scope, f"{breaker.cause}; one probe at a time", 0.0)
        return self._quotas.refusal(cls.members[0])

    def half_open(self, cls: OfferClass) -> bool:
        """Whether only a probe would tell if such machines can be had."""
        return any(self._probing(offer) is not None for offer in cls.members)

    def take(self, offer: Offer, machines: int) -> None:
        """Count machines that the plan asks for."""
        self._quotas.take(offer, machines)
        probe = self._probing(offer)
        if probe is not None:
            self._probed.add(probe.scope)

    def give_back(self, offer: Offer, machines: int) -> None:
        """Undo a ``take``: only one claim can have been the probe of a breaker."""
        self._quotas.take(offer, -machines)
        probe = self._probing(offer)
        if probe is not None:
            self._probed.discard(probe.scope)

    def _group(self) -> None:
        for scope, breaker in self._snapshot.breakers.items():
            if not breaker.is_open(self._snapshot.now) and _probe_under_way(
                breaker, self._snapshot.claims.values()
            ):
                self._probed.add(scope)
        groups: dict[tuple[object, ...], list[Offer]] = {}
        refusals: dict[OfferId, Reason | None] = {}
        for offer in sorted(self._snapshot.offers, key=lambda o: o.id):
            if offer.pool not in self._pools or not _priced(offer):
                continue
            refused = refusals[offer.id] = self._refusal(offer)
            probe = self._probing(offer)
            learned = self._interruptions(offer)
            key = (
                offer.pool, offer.region, offer.machine_type, offer.market,
                offer.price_micros_per_hour, offer.price_ceiling_micros_per_hour,
                learned, offer.notice_s, offer.boot_s, offer.gpus, offer.gpu_model,
                offer.devices,
                refused, probe.scope if probe else "",
            )  # fmt: skip
            groups.setdefault(key, []).append(offer)
        for members in groups.values():
            first = counted = members[0]
            if first.quota is not None or first.quota_left is not None:
                counted = replace(first, quota_left=None, quota=None)  # counted per member
            pool = self._pools[first.pool]
            boot = self._snapshot.learned.boot_s.get(first.pool)
            self.classes.append(
                OfferClass(
                    index=len(self.classes),
                    offer=counted,
                    members=tuple(members),
                    pool=pool,
                    shape=self._shape(first),
                    interruptions_per_hour=self._interruptions(first),
                    boot_s=boot.mean if boot is not None else first.boot_s,
                    refused=refusals[first.id],
                )
            )

    def _shape(self, offer: Offer) -> Shape:
        key = (
            offer.gpu_model, offer.gpus, offer.gpu_memory_gib, offer.links_gbps, offer.cpus,
            offer.memory_gib, offer.architecture, offer.devices,
        )  # fmt: skip
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = offer_shape(offer)
        return shape

    def _interruptions(self, offer: Offer) -> float:
        if offer.market is not Market.SPOT:
            return 0.0
        learned = self._snapshot.learned
        rate = rate_per_hour(
            offer.interruptions_per_hour,
            learned.lifetime_h.get(str(offer.id), 0.0),
            learned.interruptions.get(str(offer.id), 0) + self._hinted[offer.id],
        )
        return rate * offer.price_pressure

    def _refusal(self, offer: Offer) -> Reason | None:
        for gap in self._snapshot.unknown:
            if gap.source in (f"provider:{offer.provider}", f"offers:{offer.provider}"):
                return SourceUnknown(gap.source, gap.cause)
            if gap.source == f"engine:{self._pools[offer.pool].engine}":
                return SourceUnknown(gap.source, gap.cause)
        now = self._snapshot.now
        for breaker in self._breakers(offer):
            if breaker.is_open(now):
                return BreakerOpen(breaker.scope, breaker.cause, breaker.open_until - now)
        return None

    def _probing(self, offer: Offer) -> Breaker | None:
        """The half-open breaker in front of an offer, if there is one."""
        now = self._snapshot.now
        return next((b for b in self._breakers(offer) if not b.is_open(now)), None)

    def _breakers(self, offer: Offer) -> list[Breaker]:
        if not self._snapshot.breakers:
            return []
        return [
            breaker
            for scope, breaker in sorted(self._snapshot.breakers.items())
            if covers(scope, offer)
        ]


_ASKED = {ClaimState.REQUESTED}


def _probe_under_way(breaker: Breaker, claims: Iterable[Claim]) -> bool:
    """Whether a claim asked for since the breaker half opened is still without its machine, or,
    where machines do not join, without its node."""
    waiting = {ClaimState.REQUESTED, ClaimState.BOOTING} if breaker.of_boots else _ASKED
    return any(
        claim.state in waiting
        and claim.requested_at >= breaker.open_until
        and covers(breaker.scope, claim.offer)
        for claim in claims
    )


def _priced(offer: Offer) -> bool:
    """Offers without a sensible price are ignored at the port; nothing of the kind is spread."""
    return (
        offer.price_micros_per_hour > 0
        and offer.price_ceiling_micros_per_hour >= offer.price_micros_per_hour
        and math.isfinite(offer.boot_s)
        and math.isfinite(offer.interruptions_per_hour * offer.price_pressure)
    )
