"""The planner: one step after the other, each in its own file.

Pure and deterministic. Planning again with clock and facts frozen, after the plan was carried out,
gives an empty plan: every step either acts on facts that its own action removes, or decides by the
same figures as before.
"""

from __future__ import annotations

from hybrid.domain.ids import ClaimId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.plan import Plan, RowRef
from hybrid.domain.run import Run
from hybrid.domain.snapshot import Snapshot
from hybrid.estimation.runtime import work_left
from hybrid.planning import return_home
from hybrid.planning.admit import admitted
from hybrid.planning.adopt import adopt
from hybrid.planning.burst import Burst, Bursting
from hybrid.planning.choices import Choices, Waiting
from hybrid.planning.claims import open_claims
from hybrid.planning.cloud import Cloud
from hybrid.planning.explain import Explainer
from hybrid.planning.fit import stated_speed
from hybrid.planning.leases import renew_leases
from hybrid.planning.order import ordered
from hybrid.planning.outcome import Outcome
from hybrid.planning.place import place
from hybrid.planning.preempt import preempt
from hybrid.planning.retire import retire
from hybrid.planning.schedule import Schedule
from hybrid.planning.stops import request_stop, stop_what_must
from hybrid.planning.supply import supply
from hybrid.planning.workspace import Workspace, job_ref
from policies.document import PolicyDocument
from policies.fairshare import demand_gpus


def plan(snapshot: Snapshot, policy: PolicyDocument, policy_version: int) -> Plan:
    """What to do now, and why, for every live job."""
    ws = Workspace(snapshot, policy, policy_version)
    stop_what_must(ws)
    refuse_the_impossible(ws)
    renew_leases(ws)
    ws.rebuild_timelines()
    choices = Choices(ws)
    outcome = Outcome(Schedule(ws, choices), queue(ws))
    cloud = Cloud(ws)
    bursting = choose_places(ws, choices, cloud, outcome)
    bring_home(ws, bursting, outcome)
    carry_out(ws, outcome)
    retire(ws, wanted_claims(ws, outcome))
    decisions = Explainer(ws, cloud, outcome).decisions()
    return Plan(
        at=snapshot.now,
        revision=snapshot.revision,
        bundles=tuple(ws.bundles),
        decisions=decisions,
        notes=tuple(ws.notes),
        evaluations=ws.evaluations,
        complete=outcome.complete,
    )


def refuse_the_impossible(ws: Workspace) -> None:
    """Pending jobs that can never run end here, told why."""
    snapshot = ws.snapshot
    there = supply(
        snapshot.nodes.values(),
        snapshot.pools.values(),
        snapshot.offers,
        [gap.source for gap in snapshot.unknown],
    )
    verdicts: dict[int, bool] = {}
    for job in pending_jobs(ws):
        cls = ws.classes.of(job)
        if verdicts.get(cls.index, False):
            continue
        refused = admitted(job, job.team, there, ws.policy, ws.now, user=job.user)
        verdicts[cls.index] = refused is None
        if refused is not None:
            ws.fail(job, refused)


def pending_jobs(ws: Workspace) -> list[Job]:
    """Jobs that want to start, by id."""
    return [
        job
        for job_id, job in sorted(ws.snapshot.jobs.items())
        if job.state is JobState.PENDING and job_id not in ws.run_of and job_id not in ws.refused
    ]


def queue(ws: Workspace) -> list[Waiting]:
    """Pending jobs, and those that are stopping to come home, in the order in which they are
    served."""
    jobs = pending_jobs(ws)
    usage = dict(ws.snapshot.usage_gpu_s)
    team_gpus: dict[str, int] = {}
    for run in ws.run_of.values():
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None:
            continue
        # what runs is going to use: or a team's turn would come twice, before and after it starts
        usage[job.team] = usage.get(job.team, 0.0) + _committed_gpu_s(ws, job, run)
        if not run.claim_ids:
            held = job.spec.resources.total_gpus
            team_gpus[job.team] = team_gpus.get(job.team, 0) + held
    coming = {
        run.job_id: return_home.returning(ws, run, ws.snapshot.jobs[run.job_id])
        for run in return_home.stopping_for_home(ws).values()
        if run.job_id in ws.snapshot.jobs
    }
    jobs += [ws.snapshot.jobs[job_id] for job_id in sorted(coming)]
    predicted = {job.id: ws.classes.of(job).work.mean_s for job in jobs}
    predicted.update({job_id: waiting.cls.work.mean_s for job_id, waiting in coming.items()})
    order = ordered(
        jobs,
        ws.policy,
        ws.now,
        usage,
        predicted_s=predicted,
        team_gpus=team_gpus,
        no_slack=[job.id for job in jobs if _no_slack(ws, job, predicted[job.id])],
    )
    by_id = {job.id: job for job in jobs}
    return [
        coming[id_] if id_ in coming
        else Waiting(id_, ws.classes.of(by_id[id_]), max(ws.now, by_id[id_].not_before))
        for id_ in order
    ]


def _committed_gpu_s(ws: Workspace, job: Job, run: Run) -> float:
    demand = demand_gpus(job.spec.resources, ws.policy)
    if run.started_at is None:
        pace = stated_speed(job.spec, ws.classes.speeds)
        left_s = work_left(job, ws.snapshot.learned, stated_speed=pace).mean_s
    else:
        left_s = ws.left_of(run).mean_s * run.speed
    return demand * left_s


def _no_slack(ws: Workspace, job: Job, predicted_s: float) -> bool:
    deadline_at = job.spec.deadline_at
    return deadline_at is not None and 0 < deadline_at - ws.now <= predicted_s * _SLACK


_SLACK = 1.25
"""A deadline closer than this many times the expected run time leaves no slack."""


def choose_places(
    ws: Workspace, choices: Choices, cloud: Cloud, outcome: Outcome
) -> Bursting:
    """Where every pending job goes: here now, here later, in another's place, to a cloud, to a
    machine on its way."""
    outcome.adoptions = adopt(ws, choices, outcome.waiting)
    outcome.preemptions = preempt(
        ws, choices, cloud, outcome.waiting, frozenset(outcome.adoptions)
    )
    bursting = Bursting(ws, choices, cloud, outcome.waiting, outcome.adoptions)
    bursting.choose()
    outcome.bursts, outcome.complete = bursting.bursts, bursting.complete
    outcome.schedule = bursting.schedule
    return bursting


def bring_home(ws: Workspace, bursting: Bursting, outcome: Outcome) -> None:
    """Stop runs in clouds that are better off at home, one after the other."""
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        if job is not None and ws.stopping(run) is None:
            outcome.stays[run.id] = return_home.stay_cost(ws, run, job).terms
    for run, job in return_home.candidates(ws):
        coming = return_home.weigh(ws, run, job, outcome.schedule)
        if coming is None:
            continue
        outcome.homecomings[run.id] = coming
        if not return_home.worth_it(ws, coming):
            continue
        ws.stop(run, StopCause.RETURN, return_home.words(coming))
        waiting = queue(ws)
        again = bursting.with_queue(waiting)
        del ws.stops[run.id]
        if again is None or not return_home.harmless(coming, again, outcome.schedule):
            continue
        request_stop(ws, run, job, StopCause.RETURN, return_home.words(coming))
        outcome.waiting, outcome.schedule = waiting, again


def carry_out(ws: Workspace, outcome: Outcome) -> None:
    """Turn choices into actions."""
    schedule = outcome.schedule
    for waiting in outcome.waiting:
        job = ws.snapshot.jobs[waiting.job_id]
        start = schedule.starts.get(job.id)
        burst = outcome.bursts.get(job.id)
        if burst is not None:
            _ask(ws, job, burst)
        elif start is not None and start.at <= ws.now and waiting.ready_at <= ws.now:
            outcome.placed[job.id] = start, place(ws, job, start)


def _ask(ws: Workspace, job: Job, burst: Burst) -> None:
    pool = burst.option.offers.pool
    opened = open_claims(
        job, burst.offer, pool, now=ws.now, installation=ws.snapshot.installation
    )
    version = ws.snapshot.pools[burst.offer.pool].version
    rests_on = (job_ref(job), RowRef(kind="pool", id=pool.name, version=version))
    ws.add(f"burst:{job.id}", opened, rests_on)


def wanted_claims(ws: Workspace, outcome: Outcome) -> frozenset[ClaimId]:
    """Claims that a run is on, or a job waits for."""
    wanted = {claim for run in ws.run_of.values() for claim in run.claim_ids}
    for _, run in outcome.placed.values():
        wanted.update(run.claim_ids)
    for job_id, adoption in outcome.adoptions.items():
        if job_id not in outcome.placed:
            wanted.update(claim.id for claim in adoption.claims)
    return frozenset(wanted)
