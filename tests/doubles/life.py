"""A small company in a made-up world, with everything that can go wrong, and what must never be.

Two nodes of two GPUs at home, one cloud of two machine types, two control planes over one store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hybrid.domain.budget import Budget
from hybrid.domain.ids import ClaimId, JobId, MachineId, PoolName
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.pool_spec import BurstPool
from hybrid.ledger.caps import covers, free_micros
from hybrid.ledger.replay import by_claim, replay
from hybrid.ports.access import Role
from hybrid.ports.capacity import BootInfo
from hybrid.ports.store import EpochPassed, Store
from hybrid.runtime.tick import TickReport
from hybrid.services.access import Principal
from hybrid.services.errors import Conflict
from hybrid.services.jobs import Jobs
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.world import SimWorld
from tests.doubles.build import NOW, a_claim, an_offer
from tests.doubles.sim import CLOUD, broken_promises

SMALL, BIG = "g5.xlarge", "g5.12xlarge"
LIST_MICROS = {SMALL: 1_006_000, BIG: 5_672_000}
HOME = ("n1", "n2")
ZONE = "us-east-1a"
GRACE_S = 300.0
"""For how long a machine without a live claim may be there while everything can be reached."""

ANN = Principal(name="ann", role=Role.ADMIN)

POLICY = """
budgets:
  - {{name: all, limit_usd: {all_usd}, period: lifetime}}
  - {{name: blues, limit_usd: {blue_usd}, scope: team, subject: blue, period: lifetime}}
priority_classes:
  normal: {{value_per_hour: {value}}}
preemption: {{min_run: 2m}}
return_home: {{margin_usd: 0.01, min_stay: 1m}}
"""


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


@dataclass(slots=True)
class Boundaries:
    """The moments before and after every port call, and before every commit."""

    left: int | None = None
    then: Callable[[], None] = lambda: None

    def arm(self, count: int, then: Callable[[], None]) -> None:
        """Do something at the ``count``-th boundary from now."""
        self.left, self.then = count, then

    def pass_one(self, _name: str = "") -> None:
        """A boundary is reached."""
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.then()

    def around(self, port: Any, names: tuple[str, ...]) -> None:
        """Make every named call of a port two boundaries: before it, and after the deed."""
        for name in names:
            setattr(port, name, self._both_sides(getattr(port, name)))

    def _both_sides(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.pass_one()
            result = call(*args, **kwargs)
            self.pass_one()
            return result

        return wrapped


@dataclass(slots=True)
class Life:
    """The world, its two control planes, and how long all has been well."""

    store: Store
    begins_at: float = NOW
    world: SimWorld = field(init=False)
    cloud: SimCloud = field(init=False)
    leader: Control = field(init=False)
    standby: Control = field(init=False)
    boundaries: Boundaries = field(default_factory=Boundaries)
    all_usd: float = 60.0
    blue_usd: float = 20.0
    value: float = 4.0
    submitted: dict[JobId, float] = field(default_factory=dict)
    strays: set[MachineId] = field(default_factory=set)
    well_since: float = field(init=False)
    ticked_at: float = field(init=False)
    _entries_seen: int = 0
    _budgets: tuple[Budget, ...] = ()

    def __post_init__(self) -> None:
        clock = SimClock(self.begins_at)
        self.well_since = self.ticked_at = self.begins_at
        prices = {(kind, Market.ON_DEMAND): micros for kind, micros in LIST_MICROS.items()}
        prices |= {(kind, Market.SPOT): micros * 2 // 5 for kind, micros in LIST_MICROS.items()}
        self.cloud = SimCloud("aws", clock, prices)
        engine = SimEngine("agent", clock, _true_work_s)
        self.world = SimWorld(clock, {"aws": self.cloud}, engine, step_s=5.0)
        self.boundaries.around(self.cloud, ("launch", "terminate"))
        self.boundaries.around(engine, ("start", "stop", "acknowledge", "extend_lease"))
        self.leader = Control(self.store, self.world, holder="one")
        self.standby = Control(self.store, self.world, holder="two")
        self.apply_policy()
        self.leader.apply_pool({"kind": "local", "name": "rack"})
        self.leader.apply_pool({**CLOUD, "machine_types": [SMALL, BIG]})
        for name in HOME:
            self.world.add_node("rack", name, "a10g", 2, links="pcie")
        self.leader.crash_point = self.boundaries.pass_one
        self._budgets_changed()

    # --- what people do -------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time in the world."""
        return self.world.clock.now()

    def submit(self, minutes: float, **fields: Any) -> None:
        """A job as users write them; ``due_in_m`` is its deadline."""
        due_in_m = fields.pop("due_in_m", None)
        if due_in_m is not None:
            fields["deadline"] = datetime.fromtimestamp(self.now + due_in_m * 60, UTC)
        spec = JobSpec(
            **{
                "command": ["train"],
                "expected_runtime": minutes * 60,
                "walltime": minutes * 600,
                "speeds": {"a10g": 1.0},
                "stop": {"grace": 20},
                **fields,
            }
        )
        job_id = self.leader.submit(f"j{len(self.submitted) + 1}", spec)
        self.submitted[job_id] = self.now

    def cancel(self, job_id: JobId) -> None:
        """As the service does it; a job that has ended stays as it is."""
        before = self.job(job_id)
        try:
            Jobs(self.store, self.world.clock, lambda: None).cancel(ANN, job_id)
        except Conflict:
            assert before.state.ended

    def apply_policy(self) -> None:
        """Write the policy as it is to be now."""
        self.leader.apply_policy(self.policy())
        self._budgets_changed()

    def policy(self) -> str:
        """The policy as it is to be now."""
        return POLICY.format(all_usd=self.all_usd, blue_usd=self.blue_usd, value=self.value)

    # --- time and the loop ----------------------------------------------------------------------

    def tick(self) -> TickReport | None:
        """One tick of the leader. If it is killed in the middle, it begins again from the store."""
        try:
            report = self.leader.tick()
        except Killed:
            self.leader.restart()
            self.well_since = self.now
            return None
        finally:
            self.boundaries.left = None
        if report is not None:
            assert report.findings == ()
            self.ticked_at = self.now
            self._everybody_knows_why()
        if report is None or self.trouble():
            self.well_since = self.now
        return report

    def live(self, seconds: float, every_s: float = 15.0) -> None:
        """Let time pass with ticks."""
        left = seconds
        while left > 0:
            self.world.advance(min(every_s, left))
            left -= every_s
            self.tick()

    def sleep(self, seconds: float, *, deaf: bool) -> None:
        """Time passes without a control plane; ``deaf``: the nodes hear nothing meanwhile."""
        nodes = [node for node in self.world.engine.nodes.values() if deaf and not node.silent]
        for node in nodes:
            node.silent = True
        self.world.advance(seconds)
        for node in nodes:
            node.silent = False
        self.leader.restart()
        self.well_since = self.now

    def crash(self, boundary: int) -> None:
        """The leader is killed at the so many-th boundary of its next tick."""

        def die() -> None:
            raise Killed

        self.boundaries.arm(boundary, die)
        self.tick()

    def pause_and_replace(self, boundary: int, pause_s: float) -> None:
        """The leader stands still in the middle of a tick; the standby takes over meanwhile."""
        taken: list[int] = []

        def stand_still() -> None:
            waited_s = self.leader.pace.loop_lease_s + 5.0
            self.world.advance(waited_s)
            assert self.standby.tick() is not None, "the lease had lapsed"
            while waited_s < pause_s:
                self.world.advance(15.0)
                self.standby.tick()
                waited_s += 15.0
            self.standby.tick()
            taken.append(self.store.load(now=self.now).revision)

        self.boundaries.arm(boundary, stand_still)
        try:
            self.leader.tick()
        except EpochPassed:
            assert taken
        finally:
            self.boundaries.left = None
        if taken:
            assert self.store.load(now=self.now).revision == taken[0], "a former leader wrote"
            assert self.leader.tick() is None
            self.leader, self.standby = self.standby, self.leader
            self.leader.crash_point = self.boundaries.pass_one
            self.standby.crash_point = lambda _name: None
        self.well_since = self.now

    def trouble(self) -> bool:
        """Whether anything cannot be reached or will not answer."""
        engine, trouble = self.world.engine, self.cloud.trouble
        return (
            engine.deaf
            or trouble.deaf
            or trouble.lose > 0
            or any(engine.nodes[name].silent for name in HOME)
            or any(node.silent and not node.dead for node in engine.nodes.values())
        )

    def all_is_well_again(self) -> None:
        """Every trouble ends."""
        self.cloud.trouble.deaf = self.world.engine.deaf = False
        self.cloud.trouble.lose = 0
        self.cloud.trouble.quota = None
        self.cloud.trouble.empty.clear()
        for node in self.world.engine.nodes.values():
            node.silent = False

    # --- what is looked at ----------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job:
        """A job as it is stored."""
        job = self.store.job(job_id)
        assert job is not None, f"job {job_id} is lost"
        return job

    def jobs(self) -> list[Job]:
        """All jobs as they are stored."""
        return [self.job(job_id) for job_id in self.submitted]

    def running(self) -> list[MachineId]:
        """The cloud's machines that are not over."""
        return [machine.id for machine in self.cloud.running]

    def broken(self) -> list[str]:
        """Everything that must never be and is."""
        return [
            *(words for words in broken_promises(self.leader) if not self._of_life(words)),
            *self._holds_past_a_cap(),
            *self._machines_beyond_the_grace(),
            *self._machines_beyond_their_money(),
            *self._rows_that_disagree(),
        ]

    def _of_life(self, words: str) -> bool:
        # limits are lowered here, and clouds cannot be reached: both are looked at more closely
        return "is passed" in words or "without a live claim" in words

    def _budgets_changed(self) -> None:
        self._entries_seen = len(self.store.entries())
        self._budgets = tuple(b.budget for b in self.store.balances(now=self.now))

    def _holds_past_a_cap(self) -> Iterator[str]:
        """No hold is opened or renewed that passes a limit, as it is when that is done: in the
        period of that moment, by all that had been written by then."""
        entries = self.store.entries()
        for place in range(self._entries_seen, len(entries)):
            entry = entries[place]
            if entry.kind is not EntryKind.HOLD:
                continue
            covering = [budget for budget in self._budgets if covers(budget, entry)]
            if not covering:
                yield f"{entry.id} is held under no budget"
            for balance in replay(covering, entries[: place + 1], now=entry.at):
                if free_micros(balance) < 0:
                    yield f"{entry.id} passes budget {balance.name}"
        self._entries_seen = len(entries)

    def _machines_beyond_the_grace(self) -> Iterator[str]:
        if self.now - self.well_since < GRACE_S or self.now - self.ticked_at > 60:
            return
        live = {claim.id for claim in self.store.claims() if not claim.state.over}
        for machine in self.cloud.running:
            if machine.claim_id not in live and self.now - machine.launched_at > GRACE_S:
                yield f"machine {machine.id} runs without a live claim"

    def _machines_beyond_their_money(self) -> Iterator[str]:
        """What a machine has cost is charged, or held for it: whatever happens to us."""
        money = by_claim(self.store.entries())
        otherwise = self.billed_otherwise()
        for machine in self.cloud.machines.values():
            if machine.claim_id is None or machine.id in self.strays:
                continue
            if machine.claim_id in otherwise:
                continue
            until = machine.ended_at if machine.ended_at is not None else self.now
            seconds = max(60.0, until - machine.launched_at)
            cost = int(self.cloud.requests[machine.id]["price"]) * seconds / 3600
            has = money[machine.claim_id]
            if cost > has.held_micros + has.charged_micros + 1_000:
                yield f"machine {machine.id} has cost {cost:.0f} micro-dollars, held is {has}"

    def _rows_that_disagree(self) -> Iterator[str]:
        for job in self.jobs():
            live = [run for run in self.store.runs_of(job.id) if run.live]
            wanted = job.state in (JobState.PLACED, JobState.RUNNING, JobState.STOPPING)
            if len(live) != int(wanted):
                yield f"job {job.id} is {job.state} with live runs {[run.id for run in live]}"
        for machine in self.cloud.machines.values():
            claim = self.store.claim(machine.claim_id) if machine.claim_id else None
            if claim is None and machine.id not in self.strays:
                yield f"machine {machine.id} was never claimed"

    def _everybody_knows_why(self) -> None:
        for job in self.jobs():
            if not job.state.ended and self.submitted[job.id] < self.ticked_at:
                decision = self.store.decision(job.id)
                assert decision is not None, f"nothing was decided about job {job.id}"
                assert decision.sentence, f"job {job.id} was told nothing"

    # --- the end --------------------------------------------------------------------------------

    def end(self, within_s: float = 6 * 3600.0) -> None:
        """All trouble ends; everybody is served, or told why not; nothing is left behind."""
        self.all_is_well_again()
        begun = self.now
        while self.now - begun < within_s and not self._at_rest():
            self.live(60.0, every_s=20.0)
            self._expect(not self.broken(), f"{self.broken()}")
        self.live(240.0, every_s=20.0)
        self._expect(not self.broken(), f"{self.broken()}")
        for job in self.jobs():
            decision = self.store.decision(job.id)
            told = decision is not None and decision.reason is not None and str(decision.reason)
            waits = job.state is JobState.PENDING and told
            self._expect(job.state.ended or waits, f"job {job.id} does not end", job.id)
        self._expect(not self.running(), f"machines are left: {self.running()}")
        claims = [claim.id for claim in self.store.claims() if not claim.state.over]
        self._expect(not claims, f"claims are left: {claims}")
        for balance in self.store.balances(now=self.now):
            self._expect(balance.held_micros == 0, f"money is still held: {balance}")
        self.settle_up()
        charged = sum(m.charged_micros for m in by_claim(self.store.entries()).values())
        bill = self.cloud.bill_micros(but=self.strays)
        self._expect(charged == bill, f"charged are {charged} micro-dollars, the bill is {bill}")
        report = self.tick()
        self._expect(report is not None and report.quiet, f"not quiet: {report}")

    def billed_otherwise(self) -> set[ClaimId]:
        """Claims of which a bill has said something else than their machines' times do."""
        return set()

    def settle_up(self) -> None:
        """What is done about money once all is over and before it is counted."""

    def _expect(self, holds: object, words: str, job_id: JobId | None = None) -> None:
        if not holds:
            raise AssertionError(f"{words}{self.story(job_id)}")

    def _at_rest(self) -> bool:
        live = [claim for claim in self.store.claims() if not claim.state.over]
        return not live and all(
            job.state.ended or (job.state is JobState.PENDING and self._waits_for_good(job))
            for job in self.jobs()
        )

    def _waits_for_good(self, job: Job) -> bool:
        """Waiting for something that no passing of time brings."""
        return self.now - max(job.queued_at, job.not_before, self.well_since) > 3 * 3600.0

    def story(self, job_id: JobId | None) -> str:
        """What happened, for a failure's message."""
        lines = [
            f"{event.at - self.begins_at:9.1f}"
            f" {event.kind} {event.subject} {event.what} {event.words}"
            for _, event in self.store.events(job_id=job_id, limit=100_000)
        ]
        if job_id is not None:
            decision = self.store.decision(job_id)
            lines += [str(self.job(job_id).state), decision.sentence if decision else "no decision"]
        return "\n".join(["", *lines])

    def stray(self, kind: str) -> None:
        """Somebody makes a machine under our tag, for a claim that there is not."""
        claim = a_claim(f"c-ghost-{len(self.strays)}", offer=an_offer(machine_type=kind))
        pool = self.store.load(now=self.now).pools[PoolName("cloud")].spec
        assert isinstance(pool, BurstPool)
        boot = BootInfo(installation="sim", server_url="http://sim", checkpoint_url="sim://")
        self.strays.add(self.cloud.launch(self.cloud.prepare(claim, pool, boot), "").id)

    def close(self) -> None:
        """Let both control planes go."""
        for control in (self.leader, self.standby):
            control.loop.stop()


def _true_work_s(job: Job) -> float:
    """What a job really takes: two thirds to one and a half of what was expected."""
    expected = job.spec.expected_runtime or 600.0
    return expected * (2 / 3, 1.0, 1.5)[int(job.id[1:]) % 3]
