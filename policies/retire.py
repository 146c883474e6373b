"""When an idle cloud machine is ended."""

from __future__ import annotations

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import InUse, NotIdleYet, Reason
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
