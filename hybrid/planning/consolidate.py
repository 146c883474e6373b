"""Two machines in clouds that are each half used become one, when that saves more than it costs.

All runs of a machine move into slots that are free on others the team holds anyway: they save their
work, stop and go on there, and the machine, closed to new runs with the same stroke, ends. Against
the time it would have been held for stand the stop, the checkpoint, the restart, the delay at the
value of each job's time, and whatever longer the other machines are held for.

A team moves one machine at a time. While its runs stop, their slots are kept for them on the
timelines of the other machines, where each next plan finds them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId
from hybrid.domain.job import Job, StopCause
from hybrid.domain.money import cents
from hybrid.domain.plan import CordonClaim, CostTerm
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.run import Run, RunState
from hybrid.estimation import transfer
from hybrid.estimation.runtime import checkpoint_s
from hybrid.estimation.waits import Duration
from hybrid.ledger.charges import egress_micros
from hybrid.planning.held_room import (
    OnMachine,
    Slot,
    held_for_s_of,
    hold,
    longest_held_first,
    restart_s_of,
    runs_by_claim,
    slot_for,
)
from hybrid.planning.nodes import NodeView
from hybrid.planning.options import (
    CHECKPOINT,
    DISKS,
    EGRESS,
    MACHINES,
    RUNNING,
    WAITING,
    Priced,
    cost_micros,
    disk_micros_per_hour,
)
from hybrid.planning.return_home import is_safe, returning, stay_cost
from hybrid.planning.row_refs import claim_ref, job_ref, run_ref
from hybrid.planning.schedule import Schedule
from hybrid.planning.workspace import Workspace
from policies import retire as rules


@dataclass(frozen=True, slots=True)
class Consolidation:
    """A machine whose runs could move: where each would go, and what staying and moving cost."""

    claim: Claim
    runs: tuple[tuple[Run, Job], ...]
    to: tuple[Slot, ...]
    stay: Priced
    move: Priced

    @property
    def saving_micros(self) -> int:
        """What moving saves."""
        return self.stay.micros - self.move.micros

    def target_of(self, run: Run) -> Claim:
        """The machine a run goes to."""
        return next(
            slot.claim
            for (other, _), slot in zip(self.runs, self.to, strict=True)
            if other.id == run.id
        )

    @property
    def words(self) -> str:
        """Why its runs move."""
        where = " and ".join(dict.fromkeys(str(slot.claim.id) for slot in self.to))
        return (
            f"moves to {where}, held anyway, so that {self.claim.id} can end: going on would cost"
            f" ${cents(self.stay.micros)}, moving ${cents(self.move.micros)}"
        )


def consolidate(ws: Workspace, schedule: Schedule) -> dict[ClaimId, Consolidation]:
    """Plan the moves that pay, the best one of each team; returns all that were weighed."""
    found: dict[ClaimId, Consolidation] = {}
    if not ws.policy.retire.consolidate:
        return found
    runs = runs_by_claim(ws)
    settled = _settled(ws, runs, schedule)
    roomy = [
        view
        for view in settled
        if view.kept_for is None and (schedule.lines[view.index].masks[0] or not view.node.gpus)
    ]
    if not roomy:
        return found
    held_for_s = held_for_s_of(ws, runs, roomy)
    roomy = longest_held_first(roomy, held_for_s)
    busy = _teams_that_move(ws)
    best: dict[str, Consolidation] = {}
    for view in settled:
        claim = view.claim
        assert claim is not None
        if claim.team in busy or not _may_move(ws, runs[claim.id]):
            continue
        weighed = _weigh(ws, schedule, runs[claim.id], claim, roomy, held_for_s)
        if weighed is None:
            continue
        found[claim.id] = weighed
        known = best.get(claim.team)
        if known is None or weighed.saving_micros > known.saving_micros:
            best[claim.team] = weighed
    for _, chosen in sorted(best.items()):
        if all(_refusal(ws, run, chosen) is None for run, _ in chosen.runs):
            _carry_out(ws, chosen)
    return found


# --- who may move, and where to -------------------------------------------------------------------


def _settled(ws: Workspace, runs: OnMachine, schedule: Schedule) -> list[NodeView]:
    """Machines all of whose runs simply go on, and that this plan gives nothing new: only of these
    the next plan has the same opinion."""
    given = {node for start in schedule.starts.found.values() if start.at <= ws.now
             for node in start.nodes}  # fmt: skip
    return [
        view
        for view in ws.nodes
        if view.claim is not None
        and view.claim.id not in ws.closing
        and view.index not in given
        and runs.get(view.claim.id)
        and all(
            run.state is RunState.RUNNING and ws.stopping(run) is None
            for run, _ in runs[view.claim.id]
        )
    ]


def _teams_that_move(ws: Workspace) -> set[str]:
    return {
        ws.snapshot.jobs[run.job_id].team
        for run in ws.run_of.values()
        if ws.stopping(run) is StopCause.CONSOLIDATE and run.job_id in ws.snapshot.jobs
    }


def _may_move(ws: Workspace, runs: Sequence[tuple[Run, Job]]) -> bool:
    """Whether all runs of a machine may be moved at all. A job with a deadline stays where the
    choice of its machine put it; a gang and a share of a GPU stay too."""
    return all(
        is_safe(run, job)
        and job.spec.deadline_at is None
        and job.spec.resources.nodes == 1
        and not ws.classes.of(job).need.shared
        and not job.cancel_requested
        # with an infinite saving only the rules that are not about money can refuse
        and rules.consolidation_refusal(run, _INFINITE, ws.policy, ws.now) is None
        for run, job in runs
    )


# --- weighing -------------------------------------------------------------------------------------


def _weigh(
    ws: Workspace,
    schedule: Schedule,
    runs: Sequence[tuple[Run, Job]],
    claim: Claim,
    roomy: Sequence[NodeView],
    held_for_s: Mapping[ClaimId, float],
) -> Consolidation | None:
    """The figures for moving all runs of a machine; None where there is no room for one."""
    pool = ws.burst_pool(claim.pool, removed_too=True)
    others = [view for view in roomy if view.claim is not claim]
    if pool is None or not others:
        return None
    lines = list(schedule.lines)
    longer_s: dict[ClaimId, float] = {}
    slots: list[Slot] = []
    for run, job in runs:
        cls = returning(ws, run, job).cls
        slot = slot_for(ws, lines, cls, job, run.gpu_model, others, ws.stop_time_s(run, job))
        if slot is None:
            return None
        hold(lines, slot, cls, ws.now)
        id_ = slot.claim.id
        longer_s[id_] = max(slot.ends_in_s - held_for_s[id_], longer_s.get(id_, 0.0))
        slots.append(slot)
    return Consolidation(
        claim,
        tuple(runs),
        tuple(slots),
        _staying(ws, claim, pool, runs),
        _moving(ws, claim, pool, runs, slots, longer_s),
    )


def _staying(
    ws: Workspace, claim: Claim, pool: BurstPool, runs: Sequence[tuple[Run, Job]]
) -> Priced:
    ends_s = [stay_cost(ws, run, job).finish_in.mean_s for run, job in runs]
    held_s = max(ends_s)
    running = sum(
        cost_micros(ws.classes.of(job).value_micros_per_hour, end_s)
        for (_, job), end_s in zip(runs, ends_s, strict=True)
    )
    egress = sum(
        egress_micros(transfer.egress_gib(job), pool.egress_usd_per_gib) for _, job in runs
    )
    terms = (
        CostTerm(name=MACHINES, micros=cost_micros(claim.offer.price_micros_per_hour, held_s)),
        CostTerm(name=DISKS, micros=cost_micros(disk_micros_per_hour(pool), held_s)),
        CostTerm(name=EGRESS, micros=egress),
        CostTerm(name=RUNNING, micros=running),
    )
    return Priced(tuple(t for t in terms if t.micros), Duration(0.0), Duration(held_s))


def _moving(
    ws: Workspace,
    claim: Claim,
    pool: BurstPool,
    runs: Sequence[tuple[Run, Job]],
    slots: Sequence[Slot],
    longer_s: Mapping[ClaimId, float],
) -> Priced:
    stop_s = max(ws.stop_time_s(run, job) for run, job in runs)
    machines = cost_micros(claim.offer.price_micros_per_hour, stop_s)
    disks = cost_micros(disk_micros_per_hour(pool), stop_s)
    for target, its_pool in _targets(ws, slots):
        machines += cost_micros(target.offer.price_micros_per_hour, longer_s[target.id])
        disks += cost_micros(disk_micros_per_hour(its_pool), longer_s[target.id])
    egress = saving = waiting = running = 0
    for (run, job), slot in zip(runs, slots, strict=True):
        value = ws.classes.of(job).value_micros_per_hour
        its_pool = ws.burst_pool(slot.claim.pool) or pool
        saves_s = checkpoint_s(job, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)
        saving += cost_micros(value, saves_s + restart_s_of(ws, job, its_pool))
        waiting += cost_micros(value, ws.stop_time_s(run, job))
        running += cost_micros(value, slot.option.time.run.mean_s + slot.option.time.outbound_s)
        leaves = transfer.egress_bound_gib(job) - transfer.egress_gib(job)
        egress += egress_micros(leaves, pool.egress_usd_per_gib)
        egress += egress_micros(transfer.egress_gib(job), its_pool.egress_usd_per_gib)
    amounts = ((MACHINES, machines), (DISKS, disks), (EGRESS, egress), (CHECKPOINT, saving),
               (WAITING, waiting), (RUNNING, running))  # fmt: skip
    terms = tuple(CostTerm(name=name, micros=micros) for name, micros in amounts if micros)
    ends_s = max(slot.ends_in_s for slot in slots)
    return Priced(terms, Duration(stop_s), Duration(ends_s))


def _targets(ws: Workspace, slots: Sequence[Slot]) -> Iterator[tuple[Claim, BurstPool]]:
    for claim in {slot.claim.id: slot.claim for slot in slots}.values():
        pool = ws.burst_pool(claim.pool)
        if pool is not None:
            yield claim, pool


# --- carrying out ---------------------------------------------------------------------------------


def _refusal(ws: Workspace, run: Run, chosen: Consolidation) -> object:
    return rules.consolidation_refusal(run, chosen.saving_micros, ws.policy, ws.now)


def _carry_out(ws: Workspace, chosen: Consolidation) -> None:
    stops = [ws.stop(run, StopCause.CONSOLIDATE, chosen.words) for run, _ in chosen.runs]
    # it would win its jobs back, idle and paid for, and the next plan would undo this one
    closed = CordonClaim(claim_id=chosen.claim.id, words="its runs move to machines held anyway")
    rests_on = [ref for run, job in chosen.runs for ref in (job_ref(job), run_ref(run))]
    rests_on.append(claim_ref(chosen.claim))
    rests_on += [claim_ref(claim) for claim, _ in _targets(ws, chosen.to)]
    ws.add(f"consolidate:{chosen.claim.id}", (*stops, closed), rests_on)


_INFINITE = 2**62
