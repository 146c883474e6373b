"""Machines that nobody needs: ended when they have been idle for long enough, or at once when
they were only asked for."""

from __future__ import annotations

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.plan import EndClaim
from hybrid.domain.quantities import format_duration
from hybrid.planning.row_refs import claim_ref
from hybrid.planning.workspace import Workspace
from policies import retire as retire_rules

_ON_THE_WAY = frozenset({ClaimState.REQUESTED, ClaimState.BOOTING})
_HELD = frozenset({ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING})


def retire(ws: Workspace, wanted: frozenset[ClaimId]) -> None:
    """Plan the end of machines that are not ``wanted``: not by a run, placed now or before, and not
    by a job that waits for them."""
    for _, claim in sorted(ws.snapshot.claims.items()):
        if claim.id in wanted:
            continue
        words = _why(ws, claim)
        if words is not None:
            ws.add(
                f"end:{claim.id}",
                (EndClaim(claim_id=claim.id, words=words),),
                (claim_ref(claim),),
            )


def _why(ws: Workspace, claim: Claim) -> str | None:
    """Why a claim that nobody wants ends now, or None."""
    if claim.state in _ON_THE_WAY:
        return "no job waits for it any more"
    if claim.state not in _HELD:
        return None
    if claim.notice_at is not None:
        return "its provider takes it, and nothing runs on it"
    if claim.state is ClaimState.CORDONED:
        return "closed to new runs, and nothing runs on it"
    pool = ws.burst_pool(claim.pool, removed_too=True)
    if pool is None or ws.burst_pool(claim.pool) is None:
        return "its pool was removed"
    if claim.lease_until - ws.now <= pool.lease.end_tail + _MARGIN_S:
        return "idle at the end of its lease"
    if retire_rules.refusal(claim, pool, ws.policy, ws.now) is None:
        idle_s = ws.now - (claim.idle_since or ws.now)
        return f"idle for {format_duration(round(idle_s))}"
    return None


_MARGIN_S = 10.0
"""Before the paid time of an idle machine runs out."""
