"""Runs that must stop whatever anything costs: cancelled jobs, machines about to be taken, runs
past their walltime, nodes that are being emptied. A lease that cannot be renewed is in
``leases``."""

from __future__ import annotations

from hybrid.domain.claim import Claim
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.quantities import format_duration
from hybrid.domain.reasons import Said
from hybrid.domain.run import Run, RunState
from hybrid.planning.row_refs import claim_ref, job_ref, run_ref
from hybrid.planning.workspace import Workspace

NOTICE_MARGIN_S = 2.0
"""A stop forced by a notice is over this long before the machine goes."""

CANCELLED = Said("cancelled", "cancelled by its user before it ran")


def stop_what_must(ws: Workspace) -> None:
    """Plan the stops that no option is weighed against."""
    for job_id, job in sorted(ws.snapshot.jobs.items()):
        if job.cancel_requested and job.state is JobState.PENDING and job_id not in ws.run_of:
            ws.fail(job, CANCELLED, cancelled=True)
    for _, run in sorted(ws.run_of.items()):
        owner = ws.snapshot.jobs.get(run.job_id)
        due = None if owner is None else _due(ws, run, owner)
        if owner is not None and due is not None:
            request_stop(ws, run, owner, *due)


def request_stop(
    ws: Workspace, run: Run, job: Job, cause: StopCause, words: str, by: float | None = None
) -> bool:
    """Plan a stop unless the run is stopping already, as hard and as soon. True if planned."""
    if run.state is RunState.STOPPING:
        harder = run.stop_cause is None or cause.hardness > run.stop_cause.hardness
        sooner = by is not None and (run.stop_by is None or by < run.stop_by)
        if not harder and not sooner:
            return False
    action = ws.stop(run, cause, words, by)
    rests_on = [job_ref(job), run_ref(run)]
    rests_on += [claim_ref(claim) for claim in claims_under(ws, run)]
    ws.add(f"stop:{run.id}", (action,), rests_on)
    return True


def claims_under(ws: Workspace, run: Run) -> list[Claim]:
    """The claims whose machines the run is on."""
    found = (ws.snapshot.claims.get(id_) for id_ in run.claim_ids)
    return [claim for claim in found if claim is not None]


def _due(ws: Workspace, run: Run, job: Job) -> tuple[StopCause, str, float | None] | None:
    """The hardest cause for which the run must stop now."""
    if job.cancel_requested:
        return StopCause.CANCEL, "cancelled by its user", None
    if run.started_at is not None and run.state is not RunState.STOPPING:
        age_s = ws.now - run.started_at
        if age_s >= job.spec.walltime:
            words = f"ran for its whole walltime of {format_duration(job.spec.walltime)}"
            return StopCause.TIMEOUT, words, None
    notices = [c.notice_at for c in claims_under(ws, run) if c.notice_at is not None]
    if notices:
        at = min(notices)
        words = f"the provider takes its machine in {format_duration(max(0, round(at - ws.now)))}"
        return StopCause.INTERRUPTION, words, at - NOTICE_MARGIN_S
    return _drained(ws, run, job)


def _drained(ws: Workspace, run: Run, job: Job) -> tuple[StopCause, str, float] | None:
    """Whether a run must leave nodes that are being emptied.

    One that ends in time by itself is let be. One that saves its work goes on elsewhere at once;
    what would be lost of one that does not, or whose saves cannot be committed now, is put off as
    long as the time allows.
    """
    nodes = (ws.snapshot.nodes.get(node_id) for node_id in run.node_ids)
    draining = [(n.drain_by, n.id) for n in nodes if n is not None and n.drain_by is not None]
    if not draining or run.state is RunState.STOPPING:
        return None
    by, node_id = min(draining)
    ends_in_time = ws.now + ws.unstopped_left(run, job).mean_s <= by
    patient = ends_in_time or not job.spec.checkpoint.enabled or bool(run.checkpoint_problem)
    if patient and ws.now < by - job.spec.stop.grace - NOTICE_MARGIN_S:
        return None
    return StopCause.DRAIN, f"{node_id} is being emptied", by
