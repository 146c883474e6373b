"""The planner: one step after the other, each in its own file.

Pure and deterministic. Planning again with clock and facts frozen, after the plan was carried out,
gives an empty plan: every step either acts on facts that its own action removes, or decides by the
same figures as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybrid.domain.claim import Bargain
from hybrid.domain.ids import ClaimId, JobId, PoolName
from hybrid.domain.job import Job, StopCause
from hybrid.domain.plan import Plan, RowRef
from hybrid.domain.reasons import Reason
from hybrid.domain.snapshot import Snapshot
from hybrid.planning import quarantine, return_home
from hybrid.planning.admit import admitted, unknown_model
from hybrid.planning.adopt import Adoption, adopt
from hybrid.planning.burst import Burst, Bursting
from hybrid.planning.choices import Choices, Waiting
from hybrid.planning.claims import open_claims
from hybrid.planning.classes import JobClass
from hybrid.planning.cloud import Cloud
from hybrid.planning.consolidate import consolidate
from hybrid.planning.explain import Explainer
from hybrid.planning.failed_places import failed_pools
from hybrid.planning.held_room import keep_slots
from hybrid.planning.improve import improve
from hybrid.planning.leases import renew_leases
from hybrid.planning.options import CLOUD_TERMS, local_terms
from hybrid.planning.outcome import Outcome
from hybrid.planning.place import place
from hybrid.planning.preempt import preempt
from hybrid.planning.queue import Queue, pending_jobs, queue
from hybrid.planning.retire import retire
from hybrid.planning.row_refs import job_ref
from hybrid.planning.schedule import Schedule
from hybrid.planning.stops import request_stop, stop_what_must
from hybrid.planning.supply import Supply, supply
from hybrid.planning.to_spot import move_to_spot
from hybrid.planning.workspace import Workspace
from policies.document import PolicyDocument


@dataclass(frozen=True, slots=True)
class Weighed:
    """Everything weighed and chosen, before it is carried out."""

    ws: Workspace
    choices: Choices
    cloud: Cloud
    outcome: Outcome


def weigh(snapshot: Snapshot, policy: PolicyDocument, policy_version: int) -> Weighed:
    """The choices of a plan: all steps but those that turn them into actions."""
    taken = quarantine.quarantined(snapshot, policy)
    ws = Workspace(quarantine.without(snapshot, taken), policy, policy_version)
    ws.bundles.extend(quarantine.bundles(snapshot, taken))
    stop_what_must(ws)
    refuse_the_impossible(ws)
    ws.without_refused()
    renew_leases(ws)
    if ws.stops:
        ws.rebuild_timelines()
    keep_slots(ws)
    choices = Choices(ws)
    line = queue(ws)
    outcome = Outcome(Schedule(ws, choices), line.in_order())
    cloud = Cloud(ws)
    shun_failed_pools(ws, cloud, outcome.waiting)
    bursting = choose_places(ws, choices, cloud, line, outcome)
    bring_home(ws, bursting, outcome)
    move_to_spot(ws, cloud)
    outcome.consolidations = consolidate(ws, outcome.schedule)
    return Weighed(ws, choices, cloud, outcome)


def plan(snapshot: Snapshot, policy: PolicyDocument, policy_version: int) -> Plan:
    """What to do now, and why, for every live job."""
    weighed = weigh(snapshot, policy, policy_version)
    ws, outcome = weighed.ws, weighed.outcome
    carry_out(ws, outcome)
    retire(ws, wanted_claims(ws, outcome))
    decisions = Explainer(ws, weighed.cloud, outcome).decisions()
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
    verdicts: dict[int, Reason | None] = {}
    for job in pending_jobs(ws):
        cls = ws.classes.of(job)
        if cls.index not in verdicts:
            verdicts[cls.index] = (
                None
                if _at_home(ws, cls, there)
                else admitted(job, job.team, there, ws.policy, ws.now, user=job.user)
            )
        refused = verdicts[cls.index]
        if refused is not None:
            ws.fail(job, refused)


def _at_home(ws: Workspace, cls: JobClass, there: Supply) -> bool:
    """Whether one pool has nodes enough that would take jobs of the class: then nothing refuses
    them. Hot: so it is with most, and their fit is needed later in any case."""
    if unknown_model(cls.need, there) is not None:
        return False
    nodes: dict[PoolName, int] = {}
    for type_ in ws.types:
        if type_.held or isinstance(ws.usable_fits(cls, type_), Reason):
            continue
        found = nodes[type_.pool] = nodes.get(type_.pool, 0) + len(ws.members[type_.index])
        if found >= cls.nodes:
            return True
    return False


def shun_failed_pools(ws: Workspace, cloud: Cloud, waiting: Sequence[Waiting]) -> None:
    """Jobs that have failed too often in a pool are not better off there than in a cloud where
    they have not, whatever that costs, while one is open to them or on its way."""
    for each in waiting:
        job = ws.snapshot.jobs[each.job_id]
        failed = failed_pools(job)
        if not failed:
            continue
        coming = ws.covering.get(job.id)
        away = cloud.best(each.cls, job) if coming is None else None
        pool = away[1].pool if away is not None else coming[0].pool if coming is not None else None
        if pool is not None and pool not in failed:
            ws.shunned[job.id] = failed


def choose_places(
    ws: Workspace, choices: Choices, cloud: Cloud, line: Queue, outcome: Outcome
) -> Bursting:
    """Where every pending job goes: here now, here later, in another's place, to a cloud, to a
    machine on its way. Whenever a run is stopped to make room, all is weighed anew."""
    while True:
        adoptions = adopt(ws, choices, outcome.waiting)
        if outcome.preempted(preempt(ws, choices, cloud, outcome.waiting, adoptions, ())):
            continue
        bursting = Bursting(ws, choices, cloud, outcome.waiting, adoptions)
        bursting.choose()
        # some for whom a cloud was the better place have found it full
        leaving = bursting.bursts.keys()
        stopped = outcome.preempted(
            preempt(ws, choices, cloud, outcome.waiting, adoptions, leaving)
        )
        if not stopped and not _unwanted_after_all(ws, choices, outcome, adoptions, bursting):
            break
        bursting.give_back()
    bursting = improve(ws, choices, cloud, line, adoptions, bursting)
    outcome.waiting = list(bursting.waiting)
    outcome.bursts, outcome.complete = bursting.bursts, bursting.complete
    outcome.schedule = bursting.schedule
    outcome.adoptions = {
        job_id: adoption
        for job_id, adoption in bursting.adoptions.items()
        if not adoption.machines or _on_own(bursting.schedule, job_id)
    }
    return bursting


def _unwanted_after_all(
    ws: Workspace,
    choices: Choices,
    outcome: Outcome,
    adoptions: Mapping[JobId, Adoption],
    bursting: Bursting,
) -> bool:
    """Whether a machine that lost its job finds no other one now that some have left the queue;
    such machines are nobody's any more."""
    if not ws.orphans:
        return False
    again = adopt(ws, choices, outcome.waiting, bursting.bursts.keys())
    still = {claim.id for adoption in again.values() for claim in adoption.claims}
    before = {claim.id for adoption in adoptions.values() for claim in adoption.claims}
    gone = before - still
    ws.orphans = tuple(claim for claim in ws.orphans if claim.id not in gone)
    return bool(gone)


def _on_own(schedule: Schedule, job_id: JobId) -> bool:
    start = schedule.starts.get(job_id)
    return start is not None and start.type.held


def bring_home(ws: Workspace, bursting: Bursting, outcome: Outcome) -> None:
    """Stop runs in clouds that are better off at home, one after the other."""
    for run, job in return_home.candidates(ws):
        coming = return_home.weigh(ws, run, job, outcome.schedule)
        if coming is None:
            continue
        outcome.homecomings[run.id] = coming
        if not return_home.worth_it(ws, coming):
            continue
        ws.stop(run, StopCause.RETURN, return_home.words(coming))
        waiting = queue(ws).in_order()
        again = bursting.with_queue(waiting)
        del ws.stops[run.id]
        if again is None or not return_home.harmless(coming, again, outcome.schedule):
            continue
        request_stop(ws, run, job, StopCause.RETURN, return_home.words(coming))
        outcome.waiting, outcome.schedule = waiting, again


def carry_out(ws: Workspace, outcome: Outcome) -> None:
    """Turn choices into actions."""
    found = outcome.schedule.starts.found  # what is only estimated is never now
    for waiting in outcome.waiting:
        id_ = waiting.job_id
        start = found.get(id_)
        burst = outcome.bursts.get(id_)
        if burst is not None:
            _ask(ws, ws.snapshot.jobs[id_], burst)
        elif start is not None and start.at <= ws.now and waiting.ready_at <= ws.now:
            job = ws.snapshot.jobs[id_]
            outcome.placed[id_] = start, place(ws, job, start)


def _ask(ws: Workspace, job: Job, burst: Burst) -> None:
    pool = burst.option.offers.pool
    opened = open_claims(
        job,
        burst.offer,
        pool,
        now=ws.now,
        installation=ws.snapshot.installation,
        bargain=_bargain(ws, job, burst),
    )
    version = ws.snapshot.pools[burst.offer.pool].version
    rests_on = (job_ref(job), RowRef(kind="pool", id=pool.name, version=version))
    run = ws.run_of.get(job.id)
    if run is not None and run.id in ws.stops:
        ws.add_to(f"stop:{run.id}", opened, rests_on)
    else:
        ws.add(f"burst:{job.id}", opened, rests_on)


def _bargain(ws: Workspace, job: Job, burst: Burst) -> Bargain | None:
    """What waiting would cost beside what the machine does; None where home has no place."""
    home, priced = burst.instead, burst.option.priced
    if home is None or priced is None or home.type.held:
        return None
    rate = home.type.rate_micros_per_hour
    waiting = local_terms(ws.classes.of(job), rate, home.wait, home.run, home.part)
    return Bargain(
        waiting_micros=waiting.micros,
        cloud_micros=priced.micros - burst.shortened_micros,
        paid_micros=sum(term.micros for term in priced.terms if term.name in CLOUD_TERMS),
    )


def wanted_claims(ws: Workspace, outcome: Outcome) -> frozenset[ClaimId]:
    """Claims that a run is on, or a job waits for."""
    wanted = {claim for run in ws.run_of.values() for claim in run.claim_ids}
    for _, run in outcome.placed.values():
        wanted.update(run.claim_ids)
    for job_id, adoption in outcome.adoptions.items():
        if job_id not in outcome.placed:
            wanted.update(claim.id for claim in adoption.claims)
    return frozenset(wanted)
