"""Preempt or burst: for a job that may preempt, the work others would lose is weighed in dollars
against waiting and against a cloud machine.

Victims by least lost value, on the node where the sum is least. The freed slots are not given away
while their runs stop: the urgent job is first in its rank, and its reservation lies on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hybrid.domain.ids import JobId, RunId
from hybrid.domain.job import Job, StopCause
from hybrid.domain.plan import CostTerm, RowRef, Stop
from hybrid.domain.run import Run, RunState
from hybrid.estimation.runtime import work_done
from hybrid.estimation.waits import Duration
from hybrid.planning.adopt import Adoption, schedule_of
from hybrid.planning.choices import Choices, Start, Waiting
from hybrid.planning.cloud import Cloud
from hybrid.planning.fit import Fit
from hybrid.planning.options import DELAY, LOST_WORK, Priced, cost_micros, local_terms
from hybrid.planning.order import served_first
from hybrid.planning.queue import no_slack
from hybrid.planning.schedule import Schedule
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import NodeType, NodeView, Workspace, job_ref, run_ref
from policies import burst as burst_rules
from policies import preemption
from policies.priority import class_of

MOST_JOBS = 16
"""Urgent jobs for which victims are looked for in one plan, first in the queue first."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that could be stopped: what it would cost, and what it would lose."""

    run: Run
    job: Job
    terms: tuple[CostTerm, ...]
    lost_gpu_hours: float
    stop_s: float

    @property
    def micros(self) -> int:
        """What stopping it costs."""
        return sum(term.micros for term in self.terms)


@dataclass(frozen=True, slots=True)
class Preemption:
    """An urgent job, the runs that make room for it, and what that comes to."""

    job_id: JobId
    victims: tuple[Victim, ...]
    priced: Priced
    pool: str
    instead: Start | None
    """When it would have started without."""
    reclaims: bool = False
    """Its team takes back what it is guaranteed, whatever waiting would cost."""


def preempt(
    ws: Workspace,
    choices: Choices,
    cloud: Cloud,
    waiting: list[Waiting],
    adoptions: Mapping[JobId, Adoption],
    leaving: Collection[JobId],
) -> dict[JobId, Preemption]:
    """Plan the stops that pay; returns what was decided for which job. Jobs that wait for their
    machines, or are ``leaving`` for a cloud, take nobody's place."""
    if not ws.policy.preemption.enabled or not _anybody_may(ws):
        return {}
    team_gpus = local_gpus(ws)
    known: dict[tuple[int, str], bool] = {}
    urgent = [
        job
        for job in waiting
        if _may(ws, job, team_gpus, known)
        and not _coming(adoptions, job.job_id)
        and job.job_id not in leaving
        and job.ready_at <= ws.now
    ]
    if not urgent:
        return {}
    found: dict[JobId, Preemption] = {}

    def made() -> Schedule:
        return schedule_of(ws, choices, waiting, adoptions, leaving)

    schedule = made()
    tried = 0
    for job in urgent:
        start = schedule.starts.get(job.job_id)
        if start is not None and start.at <= ws.now:
            continue
        if tried == MOST_JOBS:
            ws.notes.append(f"preemption was weighed for the first {MOST_JOBS} urgent jobs only")
            break
        tried += 1
        choice = _choose(ws, schedule, cloud, job, start, team_gpus)
        if choice is None:
            continue
        _stop(ws, choice)
        again = made()
        after = again.starts.get(job.job_id)
        soon = ws.now + max(victim.stop_s for victim in choice.victims)
        if after is None or after.at > soon:
            _undo(ws, choice)
            continue
        _commit(ws, job, choice)
        found[job.job_id] = replace(choice, instead=start)
        schedule = again
        team_gpus = local_gpus(ws)
    return found


def _coming(adoptions: Mapping[JobId, Adoption], job_id: JobId) -> bool:
    adoption = adoptions.get(job_id)
    return adoption is not None and not adoption.machines


def local_gpus(ws: Workspace) -> dict[str, int]:
    """Local GPUs each team holds and keeps."""
    return _held_gpus(ws, ws.run_of.values())


def _held_gpus(ws: Workspace, runs: Iterable[Run]) -> dict[str, int]:
    held: dict[str, int] = {}
    for run in runs:
        job = ws.snapshot.jobs.get(run.job_id)
        if job is not None and not run.claim_ids and ws.stopping(run) is None:
            gpus = job.spec.resources.total_gpus
            held[job.team] = held.get(job.team, 0) + gpus
    return held


def may_preempt(ws: Workspace, jobs: Iterable[JobId]) -> bool:
    """Whether the policy lets any of the jobs take the place of runs. What was placed and has not
    begun counts as not held yet, so that placing changes no answer."""
    if not ws.policy.preemption.enabled:
        return False
    begun = [run for run in ws.run_of.values() if run.state is not RunState.ASSIGNED]
    team_gpus = _held_gpus(ws, begun)
    found = (ws.snapshot.jobs[job_id] for job_id in jobs)
    return any(
        class_of(job, ws.policy).preempts or preemption.reclaims(job, ws.policy, team_gpus)
        for job in found
    )


def _anybody_may(ws: Workspace) -> bool:
    """Whether the policy lets anybody at all take the place of runs. Hot: mostly it does not."""
    return any(team.guaranteed_gpus > 0 for team in ws.policy.teams.values()) or any(
        class_of(cls.sample, ws.policy).preempts for cls in ws.classes.all
    )


def _may(
    ws: Workspace,
    waiting: Waiting,
    team_gpus: Mapping[str, int],
    known: dict[tuple[int, str], bool],
) -> bool:
    """Whether the policy lets a job take the place of runs. Hot: jobs of one class (and so of one
    priority and size) and one team may alike."""
    job = ws.snapshot.jobs[waiting.job_id]
    key = (waiting.cls.index, job.team)
    may = known.get(key)
    if may is None:
        may = known[key] = class_of(job, ws.policy).preempts or preemption.reclaims(
            job, ws.policy, team_gpus
        )
    return may


# --- choosing -------------------------------------------------------------------------------------


def _choose(
    ws: Workspace,
    schedule: Schedule,
    cloud: Cloud,
    waiting: Waiting,
    start: Start | None,
    team_gpus: Mapping[str, int],
) -> Preemption | None:
    """The cheapest set of victims, if that is cheaper than waiting by the margin, and than a
    cloud. A team that takes back its guarantee need not show that waiting is dearer."""
    job = ws.snapshot.jobs[waiting.job_id]
    victims = _victims(ws, job, team_gpus)
    if not victims:
        return None
    best: Preemption | None = None
    for type_ in ws.types:
        fits = () if type_.held else ws.usable_fits(waiting.cls, type_)
        if not isinstance(fits, tuple):
            continue
        for fit in fits:
            for option in _on_type(ws, schedule, waiting, type_, fit, victims):
                if best is None or option.priced.micros < best.priced.micros:
                    best = option
    if best is None:
        return None
    reclaims = preemption.reclaims(job, ws.policy, team_gpus)
    if start is not None and not reclaims:
        waits = cost_micros(waiting.cls.value_micros_per_hour, start.wait.mean_s)
        margin = burst_rules.margin_micros(waits, ws.policy)
        if best.priced.micros + margin >= start.micros:
            return None
    away = cloud.best(waiting.cls, job)
    if away is not None and away[0].micros <= best.priced.micros:
        return None
    return replace(best, reclaims=reclaims)


def _victims(ws: Workspace, urgent: Job, team_gpus: Mapping[str, int]) -> dict[RunId, Victim]:
    spent = sum(
        _lost_gpu_hours(ws, run, job)
        for run in ws.run_of.values()
        if ws.stopping(run) is StopCause.PREEMPT
        and (job := ws.snapshot.jobs.get(run.job_id)) is not None
    )
    found: dict[RunId, Victim] = {}
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None or run.claim_ids or ws.stopping(run) is not None:
            continue
        lost = _lost_gpu_hours(ws, run, job)
        refused = preemption.refusal(
            run,
            job,
            urgent,
            ws.policy,
            ws.now,
            team_gpus=team_gpus,
            lost_gpu_hours=lost,
            preempted_gpu_hours=spent,
        )
        if refused is None and not _first_again(ws, job, urgent):
            found[run.id] = _victim(ws, run, job, lost)
    return found


def _first_again(ws: Workspace, job: Job, urgent: Job) -> bool:
    """Whether the victim, once it is pending, would be served before the urgent job: its slots
    would be given back to it, and it would be stopped again."""
    tight = [one.id for one in (job, urgent) if no_slack(ws, one, ws.classes.of(one).work.mean_s)]
    return served_first(job, urgent, ws.policy, ws.now, no_slack=tight)


def _lost_gpu_hours(ws: Workspace, run: Run, job: Job) -> float:
    lost_s = work_done(job, run, now=ws.now) / run.speed
    return lost_s / 3600.0 * run.gpus


def _victim(ws: Workspace, run: Run, job: Job, lost_gpu_hours: float) -> Victim:
    """Its energy and its time since the last checkpoint are spent twice."""
    cls = ws.classes.of(job)
    lost_s = work_done(job, run, now=ws.now) / run.speed
    pool = ws.local_pool(run.pool)
    rate = ws.rate_of(pool) if pool is not None else 0
    lost = cost_micros(round(rate * cls.total_gpus), lost_s) + cost_micros(
        cls.value_micros_per_hour, lost_s
    )
    return Victim(
        run, job, (CostTerm(name=LOST_WORK, micros=lost),), lost_gpu_hours, job.spec.stop.grace
    )


def _on_type(
    ws: Workspace,
    schedule: Schedule,
    waiting: Waiting,
    type_: NodeType,
    fit: Fit,
    victims: Mapping[RunId, Victim],
) -> Iterator[Preemption]:
    """The cheapest victims on nodes of a type; for a gang on as many nodes as it needs."""
    by_node: dict[int, list[Victim]] = {}
    for victim in victims.values():
        for node_id in victim.run.node_ids:
            index = ws.node_index.get(node_id)
            if index is not None and ws.nodes[index].type is type_:
                by_node.setdefault(index, []).append(victim)
    sets = []
    for index in ws.members[type_.index]:
        chosen = _on_node(
            schedule.lines[index], waiting, ws.nodes[index], fit, by_node.get(index, [])
        )
        if chosen is not None:
            sets.append((sum(v.micros for v in chosen), index, chosen))
    sets.sort(key=lambda entry: entry[:2])
    wanted = waiting.cls.nodes
    if len(sets) < wanted:
        return
    together: dict[RunId, Victim] = {}
    for _, _, chosen in sets[:wanted]:
        together.update({victim.run.id: victim for victim in chosen})
    if together:
        yield _priced(ws, waiting, type_, fit, tuple(together[id_] for id_ in sorted(together)))


def _on_node(
    line: Timeline, waiting: Waiting, view: NodeView, fit: Fit, victims: list[Victim]
) -> tuple[Victim, ...] | None:
    """The least of these runs whose slots, with what nobody takes now, let the job in; None if all
    of them together do not."""
    need = waiting.cls.need
    position = {gpu.id: i for i, gpu in enumerate(view.node.gpus)}

    def enough(stopped: list[Victim]) -> bool:
        free, cpus, memory = line.masks[0], line.cpus[0], line.memory[0]
        for victim in stopped:
            for slot in victim.run.slots:
                if slot.node_id == view.id and slot.share >= 1:
                    free |= sum(1 << position[g] for g in slot.gpu_ids if g in position)
                if slot.node_id == view.id:
                    cpus, memory = cpus + slot.cpus, memory + slot.memory_gib
        if cpus + 1e-9 < need.cpus or memory + 1e-9 < need.host_memory_gib:
            return False
        allowed = free & fit.allowed
        if allowed.bit_count() < need.gpus:
            return False
        if need.gpus == 0:
            return True
        return view.type.shape.table.choose(allowed, need.gpus, link=need.link) is not None

    chosen: list[Victim] = []
    if enough(chosen):
        return ()
    for victim in sorted(victims, key=lambda v: (v.micros, v.run.id)):
        chosen.append(victim)
        if enough(chosen):
            break
    else:
        return None
    # the cheap ones taken first may have become needless
    for victim in sorted(chosen, key=lambda v: (-v.micros, v.run.id)):
        rest = [other for other in chosen if other is not victim]
        if enough(rest):
            chosen = rest
    return tuple(chosen)


def _priced(
    ws: Workspace, waiting: Waiting, type_: NodeType, fit: Fit, victims: tuple[Victim, ...]
) -> Preemption:
    cls = waiting.cls
    run = cls.run_time(fit.model, cls.speed_on(fit))
    stop_s = max(victim.stop_s for victim in victims)
    own = local_terms(cls, type_.rate_micros_per_hour, Duration(stop_s), run, fit.part)
    delay = 0
    for victim in victims:
        # the slot comes back to it when the urgent job is done
        value = ws.classes.of(victim.job).value_micros_per_hour
        delay += cost_micros(value, stop_s + run.mean_s)
    lost = sum(victim.micros for victim in victims)
    terms = (
        *own.terms,
        CostTerm(name=LOST_WORK, micros=lost),
        CostTerm(name=DELAY, micros=delay),
    )
    return Preemption(
        waiting.job_id,
        victims,
        Priced(terms, own.start_in, own.finish_in),
        str(type_.pool),
        None,
    )


# --- carrying out ---------------------------------------------------------------------------------


def _stop(ws: Workspace, choice: Preemption) -> None:
    job = ws.snapshot.jobs[choice.job_id]
    for victim in choice.victims:
        words = f"makes room for {job.spec.name} ({job.id})"
        ws.stop(victim.run, StopCause.PREEMPT, words)
    ws.first.append(choice.job_id)
    ws.rebuild_timelines()


def _undo(ws: Workspace, choice: Preemption) -> None:
    for victim in choice.victims:
        del ws.stops[victim.run.id]
    ws.first.remove(choice.job_id)
    ws.rebuild_timelines()


def _commit(ws: Workspace, waiting: Waiting, choice: Preemption) -> None:
    actions: list[Stop] = [ws.stops[victim.run.id] for victim in choice.victims]
    rests_on: list[RowRef] = [job_ref(ws.snapshot.jobs[waiting.job_id])]
    for victim in choice.victims:
        rests_on += [job_ref(victim.job), run_ref(victim.run)]
    ws.add(f"preempt:{waiting.job_id}", actions, rests_on)
