"""Whose place an urgent job could take: the runs that may be stopped for it, with what stopping
each costs, and those of them that let it in at the least cost, on the node where the sum is least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybrid.domain.ids import JobId, RunId
from hybrid.domain.job import Job, StopCause
from hybrid.domain.reasons import (
    AlreadyStopping,
    DoesNotPreempt,
    Guaranteed,
    Reason,
    SwitchedOff,
    TooMuchPreempted,
    TooYoung,
    WaitedTooLong,
)
from hybrid.domain.run import Run
from hybrid.estimation.runtime import work_done
from hybrid.planning.choices import Waiting
from hybrid.planning.fit import Fit
from hybrid.planning.nodes import NodeType, NodeView, rate_of
from hybrid.planning.options import cost_micros
from hybrid.planning.order import served_first
from hybrid.planning.queue import no_slack
from hybrid.planning.rooms import SLACK
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from policies import preemption

_NEAREST = (
    TooMuchPreempted, TooYoung, Guaranteed, WaitedTooLong, DoesNotPreempt, SwitchedOff,
    AlreadyStopping,
)  # fmt: skip
"""Of several reasons that of the run that could be stopped soonest is told."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that could be stopped: what the work is worth that it would lose, and how long it takes
    to stop."""

    run: Run
    job: Job
    micros: int
    stop_s: float


def victims_for(
    ws: Workspace, urgent: Job, team_gpus: Mapping[str, int]
) -> tuple[dict[RunId, Victim], tuple[JobId, Reason] | None]:
    """The local runs that may be stopped for a job; and of the others the job of the one that could
    be soonest, with what protects it."""
    spent = sum(
        _lost_s(ws, run, job) / 3600.0 * run.gpus
        for run in ws.run_of.values()
        if ws.stopping(run) is StopCause.PREEMPT
        and (job := ws.snapshot.jobs.get(run.job_id)) is not None
    )
    found: dict[RunId, Victim] = {}
    refusals: list[tuple[int, float, JobId, Reason]] = []
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None or run.claim_ids or ws.stopping(run) is not None:
            continue
        lost_s = _lost_s(ws, run, job)
        lost_gpu_hours = lost_s / 3600.0 * run.gpus
        refused = preemption.refusal(
            run,
            job,
            urgent,
            ws.policy,
            ws.now,
            team_gpus=team_gpus,
            lost_gpu_hours=lost_gpu_hours,
            preempted_gpu_hours=spent,
        )
        if refused is not None:
            refusals.append((_nearness(refused), lost_gpu_hours, job.id, refused))
        elif not _first_again(ws, job, urgent):
            found[run.id] = _victim(ws, run, job, lost_s)
    nearest = min(refusals, key=lambda one: one[:3], default=None)
    return found, None if nearest is None else nearest[2:]


def _nearness(refused: Reason) -> int:
    kind = type(refused)
    return _NEAREST.index(kind) if kind in _NEAREST else len(_NEAREST)


def _first_again(ws: Workspace, job: Job, urgent: Job) -> bool:
    """Whether the victim, once it is pending, would be served before the urgent job: its slots
    would be given back to it, and it would be stopped again."""
    tight = [one.id for one in (job, urgent) if no_slack(ws, one, ws.classes.of(one).work.mean_s)]
    return served_first(job, urgent, ws.policy, ws.now, no_slack=tight)


def _lost_s(ws: Workspace, run: Run, job: Job) -> float:
    """How long the run has worked since its last checkpoint."""
    return work_done(job, run, now=ws.now) / run.speed


def _victim(ws: Workspace, run: Run, job: Job, lost_s: float) -> Victim:
    """Its energy and its time since the last checkpoint are spent twice."""
    cls = ws.classes.of(job)
    pool = ws.local_pool(run.pool)
    rate = rate_of(pool) if pool is not None else 0
    energy = cost_micros(round(rate * cls.total_gpus), lost_s)
    time = cost_micros(cls.value_micros_per_hour, lost_s)
    return Victim(run, job, energy + time, job.spec.stop.grace)


def cheapest_on(
    ws: Workspace,
    lines: Sequence[Timeline],
    waiting: Waiting,
    type_: NodeType,
    fit: Fit,
    victims: Mapping[RunId, Victim],
) -> tuple[Victim, ...]:
    """The cheapest victims on nodes of a type; for a gang on as many nodes as it needs. None where
    all together would not let the job in, or where it needs nobody to go."""
    by_node: dict[int, list[Victim]] = {}
    for victim in victims.values():
        for node_id in victim.run.node_ids:
            index = ws.node_index.get(node_id)
            if index is not None and ws.nodes[index].type is type_:
                by_node.setdefault(index, []).append(victim)
    sets = []
    for index in ws.members[type_.index]:
        chosen = _on_node(lines[index], waiting, ws.nodes[index], fit, by_node.get(index, []))
        if chosen is not None:
            sets.append((sum(v.micros for v in chosen), index, chosen))
    sets.sort(key=lambda entry: entry[:2])
    wanted = waiting.cls.nodes
    if len(sets) < wanted:
        return ()
    together: dict[RunId, Victim] = {}
    for _, _, chosen in sets[:wanted]:
        together.update({victim.run.id: victim for victim in chosen})
    return tuple(together[id_] for id_ in sorted(together))


def _on_node(
    line: Timeline, waiting: Waiting, view: NodeView, fit: Fit, victims: list[Victim]
) -> tuple[Victim, ...] | None:
    """The least of these runs whose slots, with what nobody takes now, let the job in; None if all
    of them together do not."""
    need = waiting.cls.need
    position = {gpu.id: i for i, gpu in enumerate(view.node.gpus)}

    def enough(stopped: list[Victim]) -> bool:
        free, cpus, memory = line.masks[0], line.cpus[0], line.memory[0]
        parts = dict(view.shared)
        for victim in stopped:
            for slot in victim.run.slots:
                if slot.node_id != view.id:
                    continue
                cpus, memory = cpus + slot.cpus, memory + slot.memory_gib
                mask = sum(1 << position[g] for g in slot.gpu_ids if g in position)
                if slot.share < 1 and mask:
                    device = mask.bit_length() - 1
                    parts[device] = parts.get(device, 0.0) + slot.share
                    # a device is free once nobody holds a share of it
                    mask = mask if parts[device] > 1 - SLACK else 0
                free |= mask
        if cpus + SLACK < need.cpus or memory + SLACK < need.host_memory_gib:
            return False
        if need.shared and any(
            fit.allowed >> device & 1 and part + SLACK >= fit.share
            for device, part in parts.items()
        ):
            return True
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
