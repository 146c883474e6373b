"""How long machines are paid for: renewed while they are wanted and the budget allows; otherwise
the run is stopped early enough to save its work within what is already held."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.plan import RenewLease
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import Reason
from hybrid.domain.run import Run
from hybrid.estimation.runtime import checkpoint_s
from hybrid.ledger.charges import renewal_micros
from hybrid.planning.row_refs import claim_ref
from hybrid.planning.stops import request_stop
from hybrid.planning.workspace import Workspace
from policies import budget as budget_rules

MARGIN_S = 10.0
"""Between the end of a stop and what the lease still pays for."""

RENEW_BELOW = 0.5
"""A lease is renewed when less than this part of it is left."""

_WITH_MACHINE = frozenset(
    {ClaimState.BOOTING, ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING}
)


def renew_leases(ws: Workspace) -> None:
    """Renew what is wanted; stop runs whose machine cannot be paid for any longer. Machines that
    cannot be renewed are closed to new runs."""
    runs = _runs_on(ws)
    for _, claim in sorted(ws.snapshot.claims.items()):
        pool = ws.burst_pool(claim.pool, removed_too=True)
        if claim.state not in _WITH_MACHINE or pool is None or claim.notice_at is not None:
            continue
        run = runs.get(claim.id)
        job = ws.snapshot.jobs.get(run.job_id) if run is not None else None
        left_s = claim.lease_until - ws.now
        if run is not None and (cause := ws.stopping(run)) is not None:
            # what is held covers the stop, and nothing after it
            if cause is StopCause.LEASE or job is None or _due(ws, pool, job, left_s):
                ws.closing.add(claim.id)
            continue
        wanted_by = job or ws.owner_of(claim) or _taker(ws, claim)
        if wanted_by is None or not _due(ws, pool, wanted_by, left_s):
            continue
        refused = _renew(ws, claim, pool, wanted_by)
        if refused is None:
            continue
        ws.closing.add(claim.id)
        if run is not None and job is not None and left_s <= stop_lead_s(ws, pool, job):
            words = f"the lease of {claim.id} cannot be renewed: {refused}"
            by = max(claim.lease_until - pool.lease.end_tail, ws.now)
            request_stop(ws, run, job, StopCause.LEASE, words, by)


def _due(ws: Workspace, pool: BurstPool, job: Job, left_s: float) -> bool:
    """Whether a lease that a job wants, with so much left of it, is to be renewed now."""
    return left_s <= max(pool.lease.duration * RENEW_BELOW, stop_lead_s(ws, pool, job) + MARGIN_S)


def stop_lead_s(ws: Workspace, pool: BurstPool, job: Job) -> float:
    """How long before the end of a lease a run must be asked to stop: to save its work, to end,
    and for its machine to end."""
    saving_s = 0.0
    if job.spec.checkpoint.enabled:
        saving_s = checkpoint_s(job, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)
    return saving_s + job.spec.stop.grace + pool.lease.end_tail + MARGIN_S


def _renew(ws: Workspace, claim: Claim, pool: BurstPool, job: Job) -> Reason | None:
    """Plan a renewal, or say why there can be none."""
    until = ws.now + pool.lease.duration
    if until <= claim.lease_until:
        return None
    micros = renewal_micros(
        claim.offer.price_ceiling_micros_per_hour,
        lease_until=claim.lease_until,
        until=until,
        disk_gib=pool.disk,
        disk_usd_per_gib_hour=pool.disk_usd_per_gib_hour,
    )
    # money counts against those for whom the machine was asked
    payer = replace(job, id=claim.job_id, team=claim.team, user=claim.user)
    refused = budget_rules.refusal(
        micros,
        payer,
        ws.snapshot.balances,
        ws.extra_holds,
        job_held_micros=ws.held_for_job.get(claim.job_id, 0),
        renewal=True,
    )
    if refused is not None:
        return refused
    hold = LedgerEntry(
        id=f"hold:{claim.id}:{int(until)}",
        kind=EntryKind.HOLD,
        claim_id=claim.id,
        amount_micros=micros,
        at=ws.now,
        team=claim.team,
        user=claim.user,
        job_id=claim.job_id,
        memo="renewal",
    )
    ws.hold(payer, micros)
    action = RenewLease(claim_id=claim.id, until=until, hold=hold)
    ws.add(f"renew:{claim.id}", (action,), (claim_ref(claim),))
    return None


def _taker(ws: Workspace, claim: Claim) -> Job | None:
    """A pending job that could take an idle machine: it must be paid for before it is given one."""
    index = ws.node_index.get(claim.node_id) if claim.node_id is not None else None
    if index is None:
        return None
    view = ws.nodes[index]
    for job_id, job in sorted(ws.snapshot.jobs.items()):
        if job.state is not JobState.PENDING or job_id in ws.run_of or job_id in ws.refused:
            continue
        if ws.may_use_held(job_id, view):
            usable = ws.usable_fits(ws.classes.of(job), view.type)
            if isinstance(usable, tuple):
                return job
    return None


def _runs_on(ws: Workspace) -> dict[ClaimId, Run]:
    """A live run on each claim; of several the one that lasts longest counts."""
    found: dict[ClaimId, Run] = {}
    for _, run in sorted(ws.run_of.items()):
        for claim_id in run.claim_ids:
            other = found.get(claim_id)
            if other is None or ws.stopping(other) is not None:
                found[claim_id] = run
    return found
