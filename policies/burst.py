"""The guards between a job and a cloud machine, and the gain that must be exceeded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.ids import PoolName
from hybrid.domain.job import Job
from hybrid.domain.job_spec import BurstRule
from hybrid.domain.money import cents, to_micros
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import (
    MayNotLeave,
    NotAllowedThere,
    NotWorthIt,
    PolicyCeiling,
    PoolCeiling,
    QuietTime,
    QuotaReached,
    Reason,
    SwitchedOff,
)
from hybrid.ledger.periods import zone
from policies.document import PolicyDocument
from policies.priority import class_of
from policies.sections import Day, QuietHours

Ints = NDArray[np.int64]

_DAYS = tuple(Day)
_MOST_MICROS = 2**62
"""Above it 64 bits do not do, and Python's integers, slow and boundless, are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Machines held and asked for, planned ones included, and their price ceilings per hour."""

    machines_by_pool: Mapping[PoolName, int] = field(default_factory=dict)
    micros_per_hour_by_pool: Mapping[PoolName, int] = field(default_factory=dict)
    machines: int = 0
    micros_per_hour: int = 0


def may_leave(job: Job, policy: PolicyDocument) -> Reason | None:
    """Why the job may go to no cloud at all, or None."""
    if job.spec.where.burst is BurstRule.NEVER:
        return MayNotLeave("the job")
    if class_of(job, policy).burst is BurstRule.NEVER:
        return MayNotLeave(f"priority class {job.spec.priority}")
    return None


def closed(policy: PolicyDocument, now: float) -> Reason | None:
    """Why no machine at all is asked for now, or None."""
    if not policy.burst.enabled:
        return SwitchedOff("burst")
    hours = _quiet(policy.burst.quiet_hours, now) if policy.burst.quiet_hours else None
    return QuietTime(hours.start, hours.until, hours.timezone) if hours else None


def not_allowed(job: Job, offer: Offer, policy: PolicyDocument) -> NotAllowedThere | None:
    """The first list of the job, its team or the policy that the offer is not on, or None."""
    for whose, aspect, name, allowed in _lists(job, offer, policy):
        if allowed and name not in allowed:
            return NotAllowedThere(aspect, name, whose)
    return None


def _lists(
    job: Job, offer: Offer, policy: PolicyDocument
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    where, team, burst = job.spec.where, policy.team(job.team), policy.burst
    yield "the job", "pool", offer.pool, where.pools
    yield "the job", "provider", offer.provider, where.providers
    yield "the job", "region", offer.region, where.regions
    yield "the job", "market", offer.market, where.markets
    yield f"team {job.team}", "provider", offer.provider, team.providers
    yield f"team {job.team}", "region", offer.region, team.regions
    yield "the policy", "provider", offer.provider, burst.providers
    yield "the policy", "region", offer.region, burst.regions
    yield "the policy", "market", offer.market, burst.markets


def ceiling(
    machines: int, offer: Offer, pool: BurstPool, policy: PolicyDocument, committed: Committed
) -> Reason | None:
    """The first ceiling or quota that ``machines`` more of this offer would pass, or None."""
    if machines == 0:
        return None
    name = PoolName(pool.name)
    price = machines * offer.price_ceiling_micros_per_hour
    limits = pool.ceilings
    if committed.machines_by_pool.get(name, 0) + machines > limits.machines:
        return PoolCeiling(name, f"{limits.machines} machines")
    per_hour = committed.micros_per_hour_by_pool.get(name, 0) + price
    if per_hour > to_micros(limits.usd_per_hour):
        return PoolCeiling(name, f"${cents(to_micros(limits.usd_per_hour))} an hour")
    overall = policy.burst.ceilings
    if overall.machines is not None and committed.machines + machines > overall.machines:
        return PolicyCeiling(f"{overall.machines} machines")
    if overall.usd_per_hour is not None:
        most = to_micros(overall.usd_per_hour)
        if committed.micros_per_hour + price > most:
            return PolicyCeiling(f"${cents(most)} an hour")
    if offer.quota_left is not None and machines > offer.quota_left:
        return QuotaReached(offer.id, offer.quota.words() if offer.quota else "")
    return None


def refusal(
    job: Job,
    offer: Offer,
    pool: BurstPool,
    policy: PolicyDocument,
    committed: Committed,
    *,
    now: float,
    machines: int | None = None,
) -> Reason | None:
    """Why ``job`` may not take ``offer`` now, or None.

    ``machines`` is how many new ones it would need (its nodes, if omitted): 0 for a machine that
    is held already, which passes no ceiling and asks for nothing in quiet hours.
    """
    needed = job.spec.resources.nodes if machines is None else machines
    return (
        may_leave(job, policy)
        or (closed(policy, now) if needed else None)
        or not_allowed(job, offer, policy)
        or ceiling(needed, offer, pool, policy, committed)
    )


def margin_micros(waiting_micros: int, policy: PolicyDocument) -> int:
    """The gain that bursting must exceed, where waiting costs ``waiting_micros``: the absolute
    margin or the relative one, whichever is more."""
    relative = Decimal(max(0, waiting_micros)) * Decimal(repr(policy.burst.margin))
    return max(to_micros(policy.burst.margin_usd), int(relative.to_integral_value(ROUND_CEILING)))


def margins_micros(waiting_micros: Ints, policy: PolicyDocument) -> Ints:
    """:func:`margin_micros` of many."""
    part, whole = Decimal(repr(policy.burst.margin)).as_integer_ratio()
    waiting = np.maximum(waiting_micros, 0)
    if int(waiting.max(initial=0)) > _MOST_MICROS // max(part, 1):
        waiting = waiting.astype(object)
    relative = -(-(waiting * part) // whole)
    margins: Ints = np.maximum(relative, to_micros(policy.burst.margin_usd))
    return margins


def gain_refusal(
    gain_micros: int, waiting_micros: int, policy: PolicyDocument, than: str
) -> NotWorthIt | None:
    """Why a gain over waiting (called ``than``) is not worth a machine, or None."""
    if gain_micros > margin_micros(waiting_micros, policy):
        return None
    return NotWorthIt(-gain_micros, than)


@lru_cache(maxsize=64)
def _quiet(quiet_hours: tuple[QuietHours, ...], now: float) -> QuietHours | None:
    return next((hours for hours in quiet_hours if _within(hours, now)), None)


def _within(hours: QuietHours, now: float) -> bool:
    """Whether ``now`` lies in these hours, by the clock on the wall there."""
    local = datetime.fromtimestamp(now, zone(hours.timezone))
    clock = local.strftime("%H:%M")
    if hours.start < hours.until:
        return hours.start <= clock < hours.until and _on(hours, local)
    if clock >= hours.start:
        return _on(hours, local)
    return clock < hours.until and _on(hours, local - timedelta(days=1))


def _on(hours: QuietHours, day: datetime) -> bool:
    return not hours.days or _DAYS[day.weekday()] in hours.days
