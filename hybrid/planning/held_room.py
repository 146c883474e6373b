"""Room on machines in clouds that are held anyway, for runs that give up their own.

While such a run stops, its slot is kept for it on the other machine's timeline, where each next
plan finds it again: nobody else is given it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.run import Run
from hybrid.estimation import transfer
from hybrid.estimation.runtime import restart_s
from hybrid.planning.choices import slot_gbps
from hybrid.planning.classes import JobClass
from hybrid.planning.nodes import NodeView
from hybrid.planning.options import (
    HeldOption,
    checkpoint_time_s,
    held_option,
)
from hybrid.planning.return_home import returning, stay_cost
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from policies import spot as spot_rules

OnMachine = Mapping[ClaimId, Sequence[tuple[Run, Job]]]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a job goes on: its devices on a machine held already, and for how long it needs them,
    counted from now."""

    view: NodeView
    claim: Claim
    mask: int
    option: HeldOption
    ends_in_s: float


def keep_slots(ws: Workspace) -> None:
    """Keep for runs that are stopping to move, and for jobs that have stopped for it, their slots
    on other machines: nobody else is given them."""
    moved = [
        (job, None)
        for job in ws.snapshot.jobs.values()
        # hot: hardly a job gets beyond this line
        if job.stop_cause is StopCause.CONSOLIDATE
        and job.state is JobState.PENDING
        and job.id not in ws.run_of
        and job.id not in ws.refused
        and job.id not in ws.snapshot.held_back
        and job.not_before <= ws.now
    ]
    stopping = [
        (ws.snapshot.jobs[run.job_id], run)
        for _, run in sorted(ws.run_of.items())
        if ws.stopping(run) is StopCause.CONSOLIDATE and ws.moving(run.job_id) is not None
    ]
    if not moved and not stopping:
        return
    moved.sort(key=lambda each: each[0].id)
    lines = list(ws.lines)
    runs = runs_by_claim(ws)
    views = [view for view in ws.nodes if view.claim is not None and view.claim.id in runs]
    views = longest_held_first(views, held_for_s_of(ws, runs, views))
    for job, run in (*moved, *stopping):
        cls = ws.classes.of(job) if run is None else returning(ws, run, job).cls
        stop_s = 0.0 if run is None else ws.stop_time_s(run, job)
        slot = slot_for(ws, lines, cls, job, _model_of(job, run), views, stop_s)
        if slot is None:
            continue
        hold(lines, slot, cls, ws.now)
        ws.disown(job.id)
        ws.moved[job.id] = slot.claim
        if run is not None:
            until = ws.now + slot.ends_in_s
            need = cls.need
            ws.kept_slots.append(
                (slot.view.index, slot.mask, until, need.cpus, need.host_memory_gib)
            )
    if ws.kept_slots:
        ws.rebuild_timelines()


def _model_of(job: Job, run: Run | None) -> str:
    if run is not None:
        return run.gpu_model
    return "" if job.checkpoint is None else job.checkpoint.gpu_model


def runs_by_claim(ws: Workspace) -> dict[ClaimId, list[tuple[Run, Job]]]:
    """The live runs on each machine in a cloud, with their jobs, by job."""
    found: dict[ClaimId, list[tuple[Run, Job]]] = {}
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        for claim_id in run.claim_ids:
            if job is not None:
                found.setdefault(claim_id, []).append((run, job))
    return found


def held_for_s_of(
    ws: Workspace, runs: OnMachine, views: Sequence[NodeView]
) -> dict[ClaimId, float]:
    """How long machines are still held for their runs: up to the end of the longest."""
    return {
        claim.id: max(stay_cost(ws, run, job).finish_in.mean_s for run, job in runs[claim.id])
        for claim in (view.claim for view in views)
        if claim is not None
    }


def longest_held_first(
    views: Sequence[NodeView], held_for_s: Mapping[ClaimId, float]
) -> list[NodeView]:
    """Machines in the order of how long they are held anyway, the longest first, then by id."""

    def longest(view: NodeView) -> tuple[float, str]:
        held_s = 0.0 if view.claim is None else held_for_s[view.claim.id]
        return -held_s, str(view.id)

    return sorted(views, key=longest)


def slot_for(
    ws: Workspace,
    lines: Sequence[Timeline],
    cls: JobClass,
    job: Job,
    model: str,
    views: Sequence[NodeView],
    stop_s: float,
) -> Slot | None:
    """The slot on the first of the machines that has one. They come in the order of how long they
    are held anyway, so it is the one that need be held least longer: with hundreds of machines,
    all of them against all others would be too many to price."""
    found = (_slot_on(ws, lines[v.index], cls, job, model, v, stop_s) for v in views)
    return next((slot for slot in found if slot is not None), None)


def _slot_on(
    ws: Workspace,
    line: Timeline,
    cls: JobClass,
    job: Job,
    model: str,
    view: NodeView,
    stop_s: float,
) -> Slot | None:
    need, claim = cls.need, view.claim
    if claim is None or need.gpus > line.masks[0].bit_count():
        return None
    pool = ws.burst_pool(view.type.pool)
    if pool is None or view.id in cls.avoid or not ws.may_use_held(job.id, view):
        return None
    usable = ws.usable_fits(cls, view.type)
    saving_s = checkpoint_time_s(ws, cls, pool)
    if not isinstance(usable, tuple) or spot_rules.refusal(job, claim.offer, saving_s, ws.policy):
        return None
    for fit in usable:
        if not job.spec.checkpoint.portable and model not in ("", fit.model):
            continue
        option = held_option(ws, cls, view.type, fit)
        if not isinstance(option, HeldOption):
            continue
        ends_in_s = stop_s + restart_s_of(ws, job, pool)
        ends_in_s += option.time.run.mean_s + option.time.outbound_s
        free = line.free_throughout(ws.now, ends_in_s, need.cpus, need.host_memory_gib)
        if free is None:
            continue
        if need.gpus == 0:
            return Slot(view, claim, 0, option, ends_in_s)
        found = view.type.shape.table.choose(
            free & fit.allowed, need.gpus, link=need.link, min_gbps=slot_gbps(fit)
        )
        if found is not None:
            return Slot(view, claim, found.mask, option, ends_in_s)
    return None


def restart_s_of(ws: Workspace, job: Job, pool: BurstPool) -> float:
    """How long a job takes to go on on a machine that is there: its data, and its own start-up."""
    learned = ws.snapshot.learned
    return restart_s(job, learned, boot_s=0.0, inbound_s=transfer.restore_s(job, pool))


def hold(lines: list[Timeline], slot: Slot, cls: JobClass, now: float) -> None:
    """Take the slot on its machine's line, which is copied first."""
    line = lines[slot.view.index] = lines[slot.view.index].copy()
    need = cls.need
    line.hold(now, now + slot.ends_in_s, slot.mask, need.cpus, need.host_memory_gib)
