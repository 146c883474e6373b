"""When a cloud machine is ended: idle, or given up because its runs fit on others."""

from __future__ import annotations

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.money import to_micros
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import (
    AlreadyStopping,
    InUse,
    NotIdleYet,
    NotWorthIt,
    Reason,
    SwitchedOff,
    TooYoung,
)
from hybrid.domain.run import Run, RunState
from policies.document import PolicyDocument

_ENDABLE = frozenset({ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING})


def idle_after_s(pool: BurstPool, policy: PolicyDocument) -> float:
    """How long a machine of ``pool`` may be idle: the policy's word, else the pool's."""
    return pool.idle_after if policy.retire.idle_after is None else policy.retire.idle_after


def due_at(claim: Claim, pool: BurstPool, policy: PolicyDocument) -> float | None:
    """When the machine has been idle for long enough; None while it is not idle."""
    if claim.state not in _ENDABLE or claim.idle_since is None:
        return None
    return claim.idle_since + idle_after_s(pool, policy)


def refusal(claim: Claim, pool: BurstPool, policy: PolicyDocument, now: float) -> Reason | None:
    """Why the machine is not ended now, or None."""
    due = due_at(claim, pool, policy)
    if due is None or claim.idle_since is None:
        return InUse(claim.id)
    if now < due:
        return NotIdleYet(max(0.0, now - claim.idle_since), due - claim.idle_since)
    return None


def consolidation_refusal(
    run: Run, saving_micros: int, policy: PolicyDocument, now: float
) -> Reason | None:
    """Why a run keeps its machine although there is room on others, or None. ``saving_micros`` is
    cost(both machines) − cost(moving), of all runs of its machine together."""
    if not policy.retire.consolidate:
        return SwitchedOff("retire.consolidate")
    if run.state in (RunState.STOPPING, RunState.ENDED):
        return AlreadyStopping(run.id)
    least_s = policy.retire.consolidate_min_run
    age_s = run.age_s(now)
    if age_s < least_s:
        return TooYoung(max(0.0, age_s), least_s)
    if saving_micros <= to_micros(policy.retire.consolidate_margin_usd):
        return NotWorthIt(-saving_micros, "staying")
    return None
