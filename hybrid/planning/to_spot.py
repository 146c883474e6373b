"""A job with a deadline that runs on-demand goes on on spot, when spot can be had again and that is
expected to be cheaper by the margin, with its stop and its new start counted.

Its machine is closed to new runs with the same stroke: an idle machine that is paid for already
would win the job back, and the two plans would undo each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from hybrid.domain.job import Job, StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.money import cents
from hybrid.domain.plan import CordonClaim
from hybrid.domain.reasons import Reason
from hybrid.domain.run import Run, RunState
from hybrid.estimation.runtime import checkpoint_s
from hybrid.estimation.spot_value import Machine
from hybrid.estimation.waits import Duration
from hybrid.planning.cloud import Cloud
from hybrid.planning.deadline_ways import Way
from hybrid.planning.row_refs import claim_ref, job_ref, run_ref
from hybrid.planning.stops import claims_under
from hybrid.planning.workspace import Workspace
from policies import return_home as rules


def move_to_spot(ws: Workspace, cloud: Cloud) -> None:
    """Stop the runs that are better off on spot."""
    for run, job in _candidates(ws):
        way = _way(ws, cloud, run, job)
        if way is None:
            continue
        claims = claims_under(ws, run)
        stop = ws.stop(run, StopCause.DRAIN, _words(way))
        closed = [CordonClaim(claim_id=c.id, words="its job goes to spot") for c in claims]
        ws.add(
            f"stop:{run.id}", (stop, *closed), (job_ref(job), run_ref(run), *map(claim_ref, claims))
        )


def _candidates(ws: Workspace) -> Iterator[tuple[Run, Job]]:
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None or job.spec.deadline_at is None or not job.spec.checkpoint.enabled:
            continue
        if run.checkpoint_problem:
            continue  # its work would not be safe
        if run.state is not RunState.RUNNING or ws.stopping(run) is not None:
            continue
        claims = claims_under(ws, run)
        if claims and all(claim.offer.market is not Market.SPOT for claim in claims):
            yield run, job


def _way(ws: Workspace, cloud: Cloud, run: Run, job: Job) -> Way | None:
    """The way of a run that is to be stopped for spot; None for one that goes on."""
    left = ws.unstopped_left(run, job)
    cls = ws.classes.with_work(job, Duration(left.mean_s * run.speed, left.sd_s * run.speed))
    pool = ws.burst_pool(run.pool)
    if pool is None:
        return None
    saving_s = checkpoint_s(job, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)
    way = cloud.deadlines.from_on_demand(cls, max(saving_s, job.spec.stop.grace))
    if way is None or way.choice.machine is not Machine.SPOT:
        return None
    move = way.choice.spot_micros
    if move is None or rules.refusal(run, way.throughout_micros - move, ws.policy, ws.now):
        return None
    if way.spot.offers.refused or cloud.book.half_open(way.spot.offers):
        return None  # a machine in hand is not given up for one that may be refused
    return None if isinstance(cloud.obtainable(way.spot, job), Reason) else way


def _words(way: Way) -> str:
    return (
        f"goes on on {way.spot.offers.label}: on-demand to the end would cost"
        f" ${cents(way.throughout_micros)}, spot is expected to cost"
        f" ${cents(way.choice.spot_micros or 0)}"
    )
