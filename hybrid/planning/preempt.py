"""Preempt or burst: for a job that may preempt, the work others would lose is weighed in dollars
against waiting and against a cloud machine.

The freed slots are not given away while their runs stop: the urgent job is first in its rank, and
its reservation lies on them. What was weighed and not done is kept for the report.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hybrid.domain.ids import JobId
from hybrid.domain.job import StopCause
from hybrid.domain.plan import CostTerm, RowRef, Stop
from hybrid.domain.reasons import NotWorthIt, Reason, Said
from hybrid.domain.run import Run, RunState
from hybrid.estimation.waits import Duration
from hybrid.planning.adopt import Adoption, schedule_of
from hybrid.planning.choices import Choices, Start, Waiting
from hybrid.planning.cloud import Cloud
from hybrid.planning.fit import Fit
from hybrid.planning.nodes import NodeType
from hybrid.planning.options import DELAY, LOST_WORK, Priced, cost_micros, local_terms
from hybrid.planning.row_refs import job_ref, run_ref
from hybrid.planning.schedule import Schedule
from hybrid.planning.victims import Victim, cheapest_on, victims_for
from hybrid.planning.workspace import Workspace
from policies import burst as burst_rules
from policies import preemption
from policies.priority import class_of

MOST_JOBS = 16
"""Urgent jobs for which victims are looked for in one plan, first in the queue first."""

_TOO_LITTLE = Said("victims_hold_too_little", "all runs that may be stopped hold too little for it")
_IN_VAIN = Said("preemption_in_vain", "the room would go to jobs before it")


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


@dataclass(frozen=True, slots=True)
class Spared:
    """A job that may preempt and does not: what was weighed, where it came so far, and why not.
    ``protected`` is the job of which the reason speaks, if it speaks of one."""

    refused: Reason
    weighed: Preemption | None = None
    protected: JobId | None = None


@dataclass(slots=True)
class Preempting:
    """What was decided for the jobs that may preempt."""

    chosen: dict[JobId, Preemption] = field(default_factory=dict)
    spared: dict[JobId, Spared] = field(default_factory=dict)


def preempt(
    ws: Workspace,
    choices: Choices,
    cloud: Cloud,
    waiting: list[Waiting],
    adoptions: Mapping[JobId, Adoption],
    leaving: Collection[JobId],
) -> Preempting:
    """Plan the stops that pay; returns what was decided for which job. Jobs that wait for their
    machines, or are ``leaving`` for a cloud, take nobody's place."""
    found = Preempting()
    if not ws.policy.preemption.enabled or not _anybody_may(ws):
        return found
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
        return found

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
        if isinstance(choice, Spared):
            found.spared[job.job_id] = choice
        if not isinstance(choice, Preemption):
            continue
        _stop(ws, choice)
        again = made()
        after = again.starts.get(job.job_id)
        soon = ws.now + max(victim.stop_s for victim in choice.victims)
        if after is None or after.at > soon:
            _undo(ws, choice)
            found.spared[job.job_id] = Spared(_IN_VAIN, choice)
            continue
        _commit(ws, job, choice)
        found.chosen[job.job_id] = replace(choice, instead=start)
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
) -> Preemption | Spared | None:
    """The cheapest set of victims, if that is cheaper than waiting by the margin, and than a
    cloud; None if nothing runs that it could be. A team that takes back its guarantee need not show
    that waiting is dearer."""
    job = ws.snapshot.jobs[waiting.job_id]
    victims, nearest = victims_for(ws, job, team_gpus)
    if not victims and nearest is None:
        return None
    best: Preemption | None = None
    for type_ in ws.types:
        fits = () if type_.held else ws.usable_fits(waiting.cls, type_)
        if not isinstance(fits, tuple):
            continue
        for fit in fits:
            chosen = cheapest_on(ws, schedule.lines, waiting, type_, fit, victims)
            if chosen:
                option = _priced(ws, waiting, type_, fit, chosen)
                if best is None or option.priced.micros < best.priced.micros:
                    best = option
    if best is None:
        if nearest is None:
            return Spared(_TOO_LITTLE)
        return Spared(nearest[1], protected=nearest[0])
    reclaims = preemption.reclaims(job, ws.policy, team_gpus)
    if start is not None and not reclaims:
        waits = cost_micros(waiting.cls.value_micros_per_hour, start.wait.mean_s)
        margin = burst_rules.margin_micros(waits, ws.policy)
        if best.priced.micros + margin >= start.micros:
            dearer = math.ceil(best.priced.micros - start.micros)
            return Spared(NotWorthIt(dearer, f"waiting for {start.type.pool}"), best)
    away = cloud.best(waiting.cls, job)
    if away is not None and away[0].micros <= best.priced.micros:
        dearer = best.priced.micros - away[0].micros
        return Spared(NotWorthIt(dearer, away[0].offers.label), best)
    return replace(best, reclaims=reclaims)


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
