"""What the same jobs would have cost elsewhere: the same planner, in a simulated world.

*All local* forbids bursting; *all on demand* buys each job its own machines the moment it is sent.
Run times are those that the demo's jobs really had.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.demo import scene
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.money import cost_micros, to_micros
from hybrid.ledger.charges import billed_s
from hybrid.simulation.clock import SimClock
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.world import SimWorld
from hybrid.store.sql_store import SqlStore

BEGIN_AT = 1_800_000_000.0
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Lived:
    """One job as it went: sent when, which document, how long it ran in all."""

    document: Mapping[str, Any]
    sent_after_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What another way of doing it comes to. ``unrun`` counts jobs that could not run so."""

    name: str
    cost_micros: int
    mean_wait_s: float
    makespan_s: float
    unrun: int


def all_on_demand(lived: Sequence[Lived], boot_s: float) -> WhatIf:
    """Every job on machines of its own, bought when it is sent and given back when it ends."""
    price = to_micros(scene.ON_DEMAND_USD)
    cost, ends = 0, []
    for job in lived:
        resources = job.document.get("resources", {})
        machines = resources.get("nodes", 1) * max(1, resources.get("gpus", 1))
        cost += machines * cost_micros(price, billed_s(boot_s + job.run_s))
        ends.append(job.sent_after_s + boot_s + job.run_s)
    return WhatIf("all on demand", cost, boot_s, max(ends, default=0.0), 0)


def all_local(lived: Sequence[Lived]) -> WhatIf:
    """Every job on this machine, by the same planner with bursting switched off."""
    clock = SimClock(BEGIN_AT)
    true_s = {str(job.document["name"]): job.run_s for job in lived}
    engine = SimEngine("agent", clock, lambda job: true_s[job.spec.name])
    world = SimWorld(clock, {}, engine)
    model, gpus, links = scene.VIRTUAL_GPUS.split(":")
    with (
        tempfile.TemporaryDirectory(prefix="hybrid-what-if-") as folder,
        SqlStore.open(f"sqlite:///{Path(folder) / 'what-if.db'}") as store,
    ):
        control = Control(store, world)
        control.apply_policy(scene.policy() + "\nscheduling: break_even\n")
        control.apply_pool(scene.local_pool())
        world.add_node(
            "local",
            "here",
            f"{model.replace('a100-80gb', 'a100-pcie-80gb')}",
            int(gpus),
            links=links,
        )
        _send_and_run(control, lived)
        jobs = [store.job(job_id) for job_id in map(_job_id, lived)]
        control.loop.stop()
    ended = [job for job in jobs if job is not None and job.state == "succeeded"]
    waits = [
        next((s.at for s in job.history if s.state == "running"), job.submitted_at)
        - job.submitted_at
        for job in ended
    ]
    last = max((job.ended_at or BEGIN_AT for job in ended), default=BEGIN_AT)
    return WhatIf(
        "all local",
        0,
        sum(waits) / len(waits) if waits else 0.0,
        last - BEGIN_AT,
        len(jobs) - len(ended),
    )


def _job_id(job: Lived) -> Any:
    return f"w-{job.document['name']}"


def _send_and_run(control: Control, lived: Sequence[Lived]) -> None:
    clock = control.world.clock
    waiting = sorted(lived, key=lambda job: job.sent_after_s)
    while clock.now() - BEGIN_AT < LONGEST_S:
        while waiting and BEGIN_AT + waiting[0].sent_after_s <= clock.now():
            job = waiting.pop(0)
            # a job that only clouds would take comes home here: that is the question asked
            document = {k: v for k, v in job.document.items() if k not in ("where", "deadline")}
            control.submit(_job_id(job), JobSpec(**document))
        control.run(1.0, every_s=1.0)
        live = control.loop.tick.world
        if not waiting and live is not None and not _can_still_end(control):
            return


def _can_still_end(control: Control) -> bool:
    """Whether anything runs or could start: a gang wider than this machine never does."""
    live = control.loop.tick.world
    if live is None:
        return False
    return bool(live.runs) or any(job.spec.resources.nodes == 1 for job in live.jobs.values())
