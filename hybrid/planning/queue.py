"""Who wants to start, and in which order they are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.run import Run, RunState
from hybrid.planning import return_home
from hybrid.planning.choices import Waiting
from hybrid.planning.order import Rank, Ranking
from hybrid.planning.workspace import Workspace
from policies.fairshare import demand_gpus

_HELD_BACK_S = 86_400.0

_SLACK = 1.25
"""A deadline closer than this many times the expected run time leaves no slack."""


_NO_PREFERENCE: Mapping[JobId, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Queue:
    """Who wants to start, and the orders in which they may be served."""

    ranking: Ranking
    waiting: Mapping[JobId, Waiting]

    def in_order(self, preferred: Mapping[JobId, int] = _NO_PREFERENCE) -> list[Waiting]:
        """All who wait, the first to be served in front; see :meth:`Ranking.order`."""
        order = self.ranking.order(preferred)
        return [self.waiting[job_id] for job_id in order if job_id in self.waiting]

    def ranks(self) -> dict[JobId, Rank]:
        """Where each of them stands."""
        return self.ranking.ranks()


def pending_jobs(ws: Workspace) -> list[Job]:
    """Jobs that want to start, by id."""
    return [
        job
        for job_id, job in sorted(ws.snapshot.jobs.items())
        if job.state is JobState.PENDING and job_id not in ws.run_of and job_id not in ws.refused
    ]


def queue(ws: Workspace) -> Queue:
    """Pending jobs, and those that are stopping to come home or to go on elsewhere.

    Jobs that were given their place but have not begun there take part in the ordering as if they
    still waited, and are then left out: the turns of the others are those of the plan that placed
    them, whatever it placed.
    """
    pending = pending_jobs(ws)
    coming = {
        run.job_id: return_home.returning(ws, run, ws.snapshot.jobs[run.job_id])
        for run in return_home.stopping_for_home(ws).values()
        if run.job_id in ws.snapshot.jobs
    }
    for job_id in sorted(ws.run_of):
        run = ws.moving(job_id)
        if run is not None:
            coming[job_id] = return_home.returning(ws, run, ws.snapshot.jobs[job_id])
    jobs = pending + [ws.snapshot.jobs[job_id] for job_id in sorted(coming)]
    usage = dict(ws.snapshot.usage_gpu_s)
    team_gpus: dict[str, int] = {}
    for run in ws.run_of.values():
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None:
            continue
        if run.state is RunState.ASSIGNED:
            jobs.append(job)
            continue
        # what runs is going to use: or a team would have its turn again as soon as a run begins
        usage[job.team] = usage.get(job.team, 0.0) + _committed_gpu_s(ws, job, run)
        if not run.claim_ids:
            held = job.spec.resources.total_gpus
            team_gpus[job.team] = team_gpus.get(job.team, 0) + held
    classes = {job.id: ws.classes.of(job) for job in jobs}
    predicted = {job_id: cls.work.mean_s for job_id, cls in classes.items()}
    predicted.update({job_id: waiting.cls.work.mean_s for job_id, waiting in coming.items()})
    ranking = Ranking(
        jobs,
        ws.policy,
        ws.now,
        usage,
        predicted_s=predicted,
        demand={job_id: cls.demand_gpus for job_id, cls in classes.items()},
        team_gpus=team_gpus,
        no_slack=[
            job.id
            for job in jobs
            if job.spec.deadline is not None and no_slack(ws, job, predicted[job.id])
        ],
    )
    waiting = {job.id: Waiting(job.id, classes[job.id], _ready_at(ws, job)) for job in pending}
    waiting.update(coming)
    return Queue(ranking, waiting)


def _ready_at(ws: Workspace, job: Job) -> float:
    """From when on the job may start; one that a rule holds back is looked at again at every plan
    and keeps nobody waiting meanwhile."""
    if job.id in ws.snapshot.held_back:
        return ws.now + _HELD_BACK_S
    return max(ws.now, job.not_before)


def _committed_gpu_s(ws: Workspace, job: Job, run: Run) -> float:
    left_s = ws.unstopped_left(run, job).mean_s * run.speed
    return demand_gpus(job.spec.resources, ws.policy) * left_s


def no_slack(ws: Workspace, job: Job, predicted_s: float) -> bool:
    """Whether the job meets its deadline only if it is served now."""
    deadline_at = job.spec.deadline_at
    return deadline_at is not None and 0 < deadline_at - ws.now <= predicted_s * _SLACK
