"""Bringing a job home from a cloud, when that saves more than it costs.

``cost(stay) − cost(home) > margin``, both with price, value × finishing time, checkpoint and
restart. A home slot must be free now, and no start of a job that waits may change: the schedule is
made anew with the job in its rank, exactly as the next plan will see it, and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybrid.domain.ids import RunId
from hybrid.domain.job import Job, StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.money import cents
from hybrid.domain.plan import CostTerm
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.run import Run, RunState
from hybrid.estimation import interruptions, transfer
from hybrid.estimation.runtime import checkpoint_s
from hybrid.estimation.waits import Duration
from hybrid.ledger.charges import egress_micros
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.failed_places import failed_pools
from hybrid.planning.nodes import rate_of
from hybrid.planning.options import (
    CHECKPOINT,
    DISKS,
    EGRESS,
    ENERGY,
    MACHINES,
    RUNNING,
    WAITING,
    Priced,
    cost_micros,
    disk_micros_per_hour,
)
from hybrid.planning.schedule import Schedule
from hybrid.planning.workspace import Workspace
from policies import return_home as rules
from policies.priority import value_micros_per_hour


@dataclass(frozen=True, slots=True)
class Homecoming:
    """What going on in the cloud and coming home would cost; ``start`` is the slot at home."""

    run: Run
    job: Job
    stay: Priced
    home: Priced
    start: Start

    @property
    def saving_micros(self) -> int:
        """What coming home saves."""
        return self.stay.micros - self.home.micros


def stay_cost(ws: Workspace, run: Run, job: Job) -> Priced:
    """What it costs to go on where the run is, from now to its end."""
    left = ws.left_of(run)
    value = value_micros_per_hour(job, ws.policy)
    pool = ws.burst_pool(run.pool, removed_too=True)
    if pool is None or not run.claim_ids:
        local = ws.local_pool(run.pool)
        rate = rate_of(local) if local is not None else 0
        energy = cost_micros(round(rate * run.gpus), left.mean_s)
        running = cost_micros(value, left.mean_s)
        at_home = (CostTerm(name=ENERGY, micros=energy), CostTerm(name=RUNNING, micros=running))
        return Priced(at_home, Duration(0.0), left)
    left = _stretched(ws, run, job, pool, left)
    out_s = transfer.outbound_s(job, pool)
    paid_s = left.mean_s + out_s
    machines = len(run.claim_ids)
    terms = (
        CostTerm(name=MACHINES, micros=cost_micros(run.price_micros_per_hour, paid_s)),
        CostTerm(
            name=DISKS,
            micros=cost_micros(disk_micros_per_hour(pool) * machines, paid_s),
        ),
        CostTerm(
            name=EGRESS, micros=egress_micros(transfer.egress_gib(job), pool.egress_usd_per_gib)
        ),
        CostTerm(name=RUNNING, micros=cost_micros(value, paid_s)),
    )
    return Priced(
        tuple(term for term in terms if term.micros),
        Duration(0.0),
        Duration(paid_s, left.sd_s),
    )


def consider(ws: Workspace, run: Run, job: Job, start: Start) -> Homecoming | None:
    """The figures for coming home to a slot; None when a rule forbids it or it saves too little."""
    pool = ws.burst_pool(run.pool, removed_too=True)
    if pool is None:
        return None
    stay = stay_cost(ws, run, job)
    cls = ws.classes.of(job)
    saving_s = checkpoint_s(job, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)
    stop_s = start.at - ws.now
    restore_s = transfer.restore_s(job, pool)
    value = cls.value_micros_per_hour
    leaves = transfer.egress_bound_gib(job) - transfer.egress_gib(job)
    rate = start.type.rate_micros_per_hour
    terms = (
        CostTerm(name=MACHINES, micros=cost_micros(run.price_micros_per_hour, stop_s)),
        CostTerm(name=EGRESS, micros=egress_micros(leaves, pool.egress_usd_per_gib)),
        CostTerm(name=CHECKPOINT, micros=cost_micros(value, saving_s + restore_s)),
        CostTerm(
            name=ENERGY,
            micros=cost_micros(round(rate * cls.gpus_at(start.part)), start.run.mean_s + restore_s),
        ),
        CostTerm(name=WAITING, micros=cost_micros(value, stop_s)),
        CostTerm(name=RUNNING, micros=cost_micros(value, start.run.mean_s)),
    )
    finish = Duration(stop_s + restore_s + start.run.mean_s, start.run.sd_s)
    home = Priced(tuple(t for t in terms if t.micros), Duration(stop_s + restore_s), finish)
    return Homecoming(run, job, stay, home, start)


def candidates(ws: Workspace) -> list[tuple[Run, Job]]:
    """Runs in clouds that may come home at all, dearest machines first."""
    found = []
    for _, run in sorted(ws.run_of.items()):
        job = ws.snapshot.jobs.get(run.job_id)
        if job is None or not run.claim_ids or run.state is not RunState.RUNNING:
            continue
        if not is_safe(run, job) or ws.stopping(run) is not None:
            continue
        # with an infinite saving only the rules that are not about money can refuse
        if rules.refusal(run, _INFINITE, ws.policy, ws.now) is None:
            found.append((run, job))
    found.sort(key=lambda entry: (-entry[0].price_micros_per_hour, entry[0].id))
    return found


def is_safe(run: Run, job: Job) -> bool:
    """Whether a run that nothing forces to stop may be: its job saves its work, a checkpoint of it
    was committed, and nothing keeps the next one from being."""
    saves = job.spec.checkpoint.enabled and job.checkpoint is not None
    return saves and not run.checkpoint_problem


def weigh(ws: Workspace, run: Run, job: Job, schedule: Schedule) -> Homecoming | None:
    """The figures for a run, with a slot that is free now and stays so; None when there is none."""
    at_home = returning(ws, run, job)
    if schedule.find(replace(at_home, ready_at=ws.now, now_only=True)) is None:
        return None
    start = schedule.find(at_home)
    if start is None or start.at > at_home.ready_at:
        return None
    if start.type.pool in failed_pools(job):
        return None  # that is why it left
    return consider(ws, run, job, start)


def harmless(coming: Homecoming, after: Schedule, before: Schedule) -> bool:
    """Whether the job gets its slot in time, and everybody else starts when they did."""
    start = after.starts.get(coming.job.id)
    if start is None or start.at > coming.start.at:
        return False
    return all(
        (other := after.starts.get(id_)) is not None
        and (other.at, other.micros) == (was.at, was.micros)
        for id_, was in before.starts.items()
    )


def worth_it(ws: Workspace, coming: Homecoming) -> bool:
    """Whether the saving exceeds the policy's margin."""
    return rules.refusal(coming.run, coming.saving_micros, ws.policy, ws.now) is None


def words(coming: Homecoming) -> str:
    """Why it comes home."""
    return (
        f"comes home to {coming.start.type.pool}: going on would cost"
        f" ${cents(coming.stay.micros)}, coming home ${cents(coming.home.micros)}"
    )


def returning(ws: Workspace, run: Run, job: Job) -> Waiting:
    """The job as one that waits for its next slot until its run is over."""
    if not job.spec.checkpoint.enabled:
        return Waiting(job.id, ws.classes.of(job), ws.now + ws.stop_time_s(run, job))
    left = ws.unstopped_left(run, job)
    cls = ws.classes.with_work(job, Duration(left.mean_s * run.speed, left.sd_s * run.speed))
    return Waiting(job.id, cls, ws.now + ws.stop_time_s(run, job))


def stopping_for_home(ws: Workspace) -> dict[RunId, Run]:
    """Runs on their way home."""
    return {
        run.id: run for _, run in sorted(ws.run_of.items()) if ws.stopping(run) is StopCause.RETURN
    }


def _stretched(ws: Workspace, run: Run, job: Job, pool: BurstPool, left: Duration) -> Duration:
    """What is left, with the interruptions still to come."""
    claims = [ws.snapshot.claims[id_] for id_ in run.claim_ids if id_ in ws.snapshot.claims]
    rate = sum(c.offer.interruptions_per_hour for c in claims if c.offer.market is Market.SPOT)
    if rate <= 0:
        return left
    restart_s = pool.boot.expected + transfer.restore_s(job, pool)
    if job.spec.checkpoint.enabled:
        overhead_s = checkpoint_s(job, ws.snapshot.learned, gib_per_s=pool.transfer_gib_per_s)
        stretched = interruptions.with_checkpoints(
            left.mean_s,
            rate_per_s=rate / 3600.0,
            overhead_s=overhead_s,
            interval_s=run.checkpoint_interval_s
            or interruptions.interval_s(
                job.spec.checkpoint, overhead_s=overhead_s, rate_per_s=rate / 3600.0
            ),
            restart_s=restart_s,
        )
    else:
        stretched = interruptions.without_checkpoints(
            left.mean_s, rate_per_s=rate / 3600.0, restart_s=restart_s
        )
    return left if stretched is None else Duration(stretched.mean_s, left.sd_s)


_INFINITE = 2**62
