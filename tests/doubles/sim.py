"""A small installation in a made-up world: one rack, one cloud, the real loop over SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.ports.capacity import MachineState
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.memory_store import MemoryStore
from hybrid.simulation.world import SimWorld
from hybrid.store.sql_store import SqlStore
from tests.doubles.build import NOW

SPOT_MICROS, LIST_MICROS = 400_000, 1_006_000
KIND = "g5.xlarge"

POLICY = """
budgets:
  - {name: all, limit_usd: 20, period: lifetime}
priority_classes:
  normal: {value_per_hour: 3}
return_home: {margin_usd: 0.01, min_stay: 1m}
"""

CLOUD: dict[str, Any] = {
    "kind": "burst",
    "name": "cloud",
    "provider": "aws",
    "region": "us-east-1",
    "zones": [{"name": "us-east-1a"}],
    "template": {"image": "ami-1"},
    "machine_types": [KIND],
    "markets": ["spot", "on_demand"],
    "ceilings": {"machines": 4, "usd_per_hour": 20},
    "boot": {"expected": "60s", "deadline": "10m"},
    "lease": {"duration": "10m", "end_tail": "30s"},
    "idle_after": "2m",
    "notice": "2m",
    "disk": 0,
}


def a_world(*, stop_s: float = 1.0) -> SimWorld:
    """One cloud that sells g5.xlarge, no nodes yet. Jobs take ``stop_s`` to save and end."""
    clock = SimClock(NOW)
    prices = {(KIND, Market.SPOT): SPOT_MICROS, (KIND, Market.ON_DEMAND): LIST_MICROS}
    cloud = SimCloud("aws", clock, prices)
    work_of = lambda job: job.spec.expected_runtime or 600.0  # noqa: E731
    engine = SimEngine("agent", clock, work_of, stop_s=stop_s)
    return SimWorld(clock, {"aws": cloud}, engine, step_s=5.0)


@contextmanager
def an_installation(
    folder: Path | None = None,
    *,
    local_gpus: int = 1,
    policy: str = POLICY,
    stop_s: float = 1.0,
    **cloud: Any,
) -> Iterator[Control]:
    """A control plane with its pools and policy written: in SQLite in a folder, or in memory."""
    world = a_world(stop_s=stop_s)
    with ExitStack() as held:
        store: SqlStore | MemoryStore = MemoryStore()
        if folder is not None:
            store = held.enter_context(SqlStore.open(f"sqlite:///{folder / 'sim.db'}"))
        control = Control(store, world)
        control.apply_policy(policy)
        control.apply_pool({"kind": "local", "name": "rack"})
        control.apply_pool({**CLOUD, **cloud})
        if local_gpus:
            world.add_node(
                "rack", "n1", "a10g", local_gpus, links="pcie" if local_gpus > 1 else "none"
            )
        try:
            yield control
        finally:
            control.loop.stop()


def a_training(minutes: float = 20, **fields: Any) -> JobSpec:
    """A job that checkpoints every minute and is as fast on an A10G as anywhere."""
    return JobSpec(
        **{
            "command": ["train"],
            "expected_runtime": minutes * 60,
            "walltime": minutes * 600,
            "speeds": {"a10g": 1.0},
            "checkpoint": {"enabled": True, "interval": 60, "size": 0.1},
            "stop": {"grace": 20},
            **fields,
        }
    )


def the_job(control: Control, job_id: str) -> Job:
    """A job as it is stored now."""
    job = control.store.job(JobId(job_id))
    assert job is not None
    return job


def quiet(control: Control) -> bool:
    """Whether every job has ended and no claim is left."""
    world = control.loop.tick.world
    return world is not None and not world.jobs and not world.claims


def broken_promises(control: Control) -> list[str]:
    """What must never be, seen in the world itself and in the store."""
    return [
        *_jobs_running_twice(control),
        *_gpus_held_twice(control),
        *_caps_passed(control),
        *_machines_without_a_claim(control),
    ]


def _jobs_running_twice(control: Control) -> Iterator[str]:
    """No rank of one run lives while a rank of another run of the same job does."""
    now = control.world.clock.now()
    lives: dict[JobId, list[tuple[float, float, str]]] = {}
    for run in control.world.engine.lives:
        starts = [rank.started_at for rank in run.ranks.values()]
        ends = [now if r.ended_at is None else r.ended_at for r in run.ranks.values()]
        span = min(starts), max(ends), str(run.order.run.id)
        lives.setdefault(run.order.job.id, []).append(span)
    for job_id, spans in lives.items():
        spans.sort()
        for (_, end, first), (start, _, second) in pairwise(spans):
            if start < end:
                yield f"job {job_id} ran twice at once: {first} until {end}, {second} from {start}"


def _gpus_held_twice(control: Control) -> Iterator[str]:
    now = control.world.clock.now()
    holders: dict[str, str] = {}
    for run in control.world.engine.lives:
        for number, rank in run.ranks.items():
            if rank.ended_at is not None and rank.ended_at <= now:
                continue
            for gpu in run.order.run.slots[number].gpu_ids:
                if gpu in holders:
                    yield f"GPU {gpu} is held by {holders[gpu]} and {run.order.run.id}"
                holders[gpu] = run.order.run.id


def _caps_passed(control: Control) -> Iterator[str]:
    for balance in control.store.balances(now=control.world.clock.now()):
        used = balance.charged_micros + balance.held_micros
        if used > int(balance.budget.limit_usd * 1_000_000):
            yield f"budget {balance.name} is passed: {used} micro-dollars"
    if wrong := control.store.verify_balances(now=control.world.clock.now()):  # type: ignore[attr-defined]
        yield f"balances do not follow from the entries: {wrong}"


def _machines_without_a_claim(control: Control) -> Iterator[str]:
    """A machine lives only under a claim that is not over, but for a grace."""
    now = control.world.clock.now()
    live = {claim.id for claim in control.store.claims() if not claim.state.over}
    for cloud in control.world.clouds.values():
        for machine in cloud.machines.values():
            over = machine.state is MachineState.ENDED
            if not over and machine.claim_id not in live and now - machine.launched_at > 300:
                yield f"machine {machine.id} runs without a live claim"
