"""The real loop over a store and a made-up world, tick by tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.pool_spec import POOL_SPEC
from hybrid.domain.snapshot import Pool
from hybrid.domain.transitions import Step
from hybrid.ports.capacity import BootInfo, CapacityProvider
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, Put, SetBudgets, SetPolicy, Store
from hybrid.reconcile.rules import SyncRules
from hybrid.runtime.act import Actor
from hybrid.runtime.loop import Loop
from hybrid.runtime.observe import Observer
from hybrid.runtime.pace import Pace
from hybrid.runtime.policy_source import PolicySource
from hybrid.runtime.tick import CrashPoint, Tick, TickReport
from hybrid.simulation.engine import SimEngine
from policies.loading import parse_policy

SIM_PACE = Pace(
    tick_s=0.0,
    replan_s=0.0,
    list_every_s=0.0,
    list_idle_every_s=0.0,
    offers_every_s=0.0,
    loop_lease_s=30.0,
    rules=SyncRules(absent_grace_s=60.0, call_limit_s=60.0),
)


class Driven(Protocol):
    """A world that the loop can be driven in."""

    @property
    def clock(self) -> Clock:
        """Its time."""
        ...

    @property
    def clouds(self) -> Mapping[str, CapacityProvider]:
        """By the name that pools call them."""
        ...

    @property
    def engine(self) -> SimEngine:
        """Its nodes."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(slots=True)
class Control:
    """A control plane over a store: what a server process is, without the server.

    ``call_workers`` above one makes port calls side by side, as a server does; with one the same
    world twice goes the same way.
    """

    store: Store
    world: Driven
    holder: str = "sim"
    crash_point: CrashPoint = lambda _name: None
    pace: Pace = field(default_factory=lambda: SIM_PACE)
    call_workers: int = 1
    loop: Loop = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again from the store alone, as a process does that was killed."""
        world, clock = self.world, self.world.clock
        engines = {world.engine.name: world.engine}
        tick = Tick(
            store=self.store,
            observer=Observer(engines, world.clouds, clock, self.pace),
            actor=Actor(
                engines,
                world.clouds,
                clock,
                lambda claim_id: f"join-{claim_id}",
                deadline_s=self.pace.call_deadline_s,
                workers=self.call_workers,
                loop_epoch=self.store.loop_epoch,
            ),
            policies=PolicySource(self.store),
            providers=dict(world.clouds),
            boot=BootInfo(installation="sim", server_url="http://sim", checkpoint_url="sim://"),
            clock=clock,
            pace=self.pace,
            crash_point=lambda name: self.crash_point(name),
        )
        self.loop = Loop(self.store, tick, clock, self.pace, holder=self.holder)

    def tick(self) -> TickReport | None:
        """One tick, if this control plane leads."""
        return self.loop.once()

    def run(self, seconds: float, *, every_s: float = 5.0) -> list[TickReport]:
        """Let time pass, with a tick every so often."""
        reports = []
        left = seconds
        while left > 0:
            step = min(every_s, left)
            self.world.advance(step)
            left -= step
            report = self.tick()
            if report is not None:
                reports.append(report)
        return reports

    # --- what people do -------------------------------------------------------------------------

    def apply_pool(self, document: dict[str, object]) -> None:
        """Write a pool document."""
        pool = Pool(spec=POOL_SPEC.validate_python(document))
        self._write(f"pool:{pool.name}", Put(pool))

    def apply_policy(self, text: str) -> None:
        """Write a policy and its budgets."""
        policy = parse_policy(text)
        version = self.store.policy().version
        change = SetPolicy(text, version, "sim", self.world.clock.now())
        self._write("policy", change, SetBudgets(policy.budgets))

    def submit(self, job_id: str, spec: JobSpec, *, user: str = "ann") -> JobId:
        """Write a job, as the API does."""
        now = self.world.clock.now()
        job = Job(
            id=JobId(job_id),
            spec=spec,
            team=spec.team or "default",
            user=user,
            state=JobState.PENDING,
            submitted_at=now,
            queued_at=now,
            history=(Step(JobState.PENDING, now, "submitted"),),
        )
        event = Event(
            kind=EventKind.JOB, subject=job.id, what="submitted", at=now, job_id=job.id, actor=user
        )
        self._write(f"submit:{job.id}", Put(job), Note(event))
        return job.id

    def _write(self, bundle_id: str, *changes: Put | Note | SetPolicy | SetBudgets) -> None:
        done = self.store.commit([Bundle(id=bundle_id, changes=changes)], at=self.world.clock.now())
        if done.dropped:
            raise ValueError(f"{bundle_id}: {done.dropped[0].words}")
