"""A trace run through the same rules as life, from event to event.

What is decided is decided by the same sync, plan, lint and commit over a store in memory. What
differs from :mod:`.drive` is the outside: here nothing fails and nothing is slow, so the clock goes
straight to the next arrival, end of a run, boot or renewal of a lease, and engines and clouds tell
only what is new. A job runs to its end where it started: a policy that stops runs is refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import ClaimId, GpuId, JobId, MachineId, NodeId, RunId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Gpu
from hybrid.domain.offer import Offer
from hybrid.domain.plan import Decision, Plan
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.domain.run import Run
from hybrid.domain.snapshot import Pool
from hybrid.domain.transitions import Step
from hybrid.planning.leases import RENEW_BELOW
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.ports.capacity import Machine, MachineState
from hybrid.ports.engine import NodeReport, RankPhase, RankReport
from hybrid.ports.observation import EngineFacts, Known, MachineFacts, Observation
from hybrid.ports.store import Bundle, Change, Committed, Note, Put, SetBudgets, SetPolicy, World
from hybrid.reconcile.effects import (
    Effect,
    ExtendLease,
    LaunchMachine,
    StartRun,
    StopRun,
    TerminateMachine,
    due,
)
from hybrid.reconcile.enact import enact
from hybrid.reconcile.receipts import Receipt, apply_receipts
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from hybrid.reconcile.views import merged, snapshot_of
from hybrid.simulation.memory_store import MemoryStore
from policies.loading import parse_policy

START_AT = 1_735_689_600.0
"""When a replay begins unless told otherwise: 2025-01-01."""

_MOST_PASSES = 64
_NEVER = float("inf")


class ReplayError(RuntimeError):
    """The replay cannot go on: what it was given does not fit it, or a rule was broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job that will come ``at_s`` after the beginning; ``work_s`` is what it truly takes, in
    seconds on the reference GPU. Nothing that plans sees that."""

    job_id: str
    at_s: float
    spec: JobSpec
    work_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """When a job was predicted to start, at its submission."""

    p50_at: float
    p90_at: float


@dataclass(slots=True, kw_only=True)
class Fate:
    """What became of a job. ``gpus`` is what it held; instants are None until they come."""

    job_id: str
    submitted_at: float
    gpus: int = 0
    in_cloud: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    told: Told | None = None

    @property
    def wait_s(self) -> float:
        """From submission to start. Raises ReplayError for a job that never started."""
        if self.started_at is None:
            raise ReplayError(f"job {self.job_id} never started")
        return self.started_at - self.submitted_at

    @property
    def gpu_s(self) -> float:
        """GPU-seconds held. Raises ReplayError for a job that never ended."""
        if self.started_at is None or self.ended_at is None:
            raise ReplayError(f"job {self.job_id} never ended")
        return self.gpus * (self.ended_at - self.started_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replay from its beginning to its end. ``fates`` are in order of arrival."""

    fates: tuple[Fate, ...]
    local_gpus: int
    plans: int
    evaluations: int

    @property
    def mean_wait_s(self) -> float:
        """Over all jobs."""
        return sum(fate.wait_s for fate in self.fates) / max(len(self.fates), 1)

    @property
    def cloud_gpu_s(self) -> float:
        """GPU-seconds that jobs ran in clouds."""
        return sum(fate.gpu_s for fate in self.fates if fate.in_cloud)

    @property
    def utilisation(self) -> float:
        """Part of the owned GPU time that was used, from the first arrival to the last end."""
        if not self.fates or not self.local_gpus:
            return 0.0
        span_s = max(f.ended_at or 0.0 for f in self.fates) - self.fates[0].submitted_at
        used_s = sum(fate.gpu_s for fate in self.fates if not fate.in_cloud)
        return used_s / (self.local_gpus * span_s) if span_s > 0 else 0.0


@dataclass(slots=True)
class _Outside:
    """Nodes and machines that do as they are told at once, and what they have to tell."""

    engine: str
    now: float
    nodes: list[NodeReport]
    work_s: dict[JobId, float]
    fates: dict[JobId, Fate]
    ranks: list[RankReport] = field(default_factory=list)
    machines: dict[MachineId, Machine] = field(default_factory=dict)
    machines_changed: bool = False
    supply_changed: bool = False
    """A run has ended or a node has joined: there is something to plan with."""
    _ends: list[tuple[float, RunId]] = field(default_factory=list)
    _boots: list[tuple[float, MachineId, NodeReport]] = field(default_factory=list)
    _runs: dict[RunId, tuple[Run, float]] = field(default_factory=dict)

    @property
    def next_at(self) -> float:
        """When something happens by itself."""
        ends = self._ends[0][0] if self._ends else _NEVER
        return min(ends, self._boots[0][0]) if self._boots else ends

    def move(self, now: float) -> None:
        """Let time pass: boots and ends until ``now`` come to be news."""
        self.now = now
        while self._boots and self._boots[0][0] <= now:
            report = heapq.heappop(self._boots)[2]
            self.nodes.append(replace(report, heard_at=self.now))
            self.supply_changed = True
        while self._ends and self._ends[0][0] <= now:
            at, run_id = heapq.heappop(self._ends)
            run, started_at = self._runs.pop(run_id)
            self.fates[run.job_id].ended_at = at
            self.supply_changed = True
            self.ranks += _reports(run, started_at, ended_at=at)

    def news(self, offers: tuple[Offer, ...], providers: Iterable[str]) -> Observation:
        """What is new since it was last asked, and everything that can be had."""
        facts = EngineFacts(tuple(self.nodes), tuple(self.ranks))
        machines = {}
        if self.machines_changed:
            machines = {name: self._listing() for name in providers}
            self.machines = {
                id_: m for id_, m in self.machines.items() if m.state is not MachineState.ENDED
            }
        self.nodes, self.ranks, self.machines_changed = [], [], False
        return Observation(
            at=self.now,
            heard_since=self.now,
            engines={self.engine: Known(facts, self.now)},
            machines=machines,
            offers={name: Known(offers, self.now) for name in providers},
        )

    def _listing(self) -> Known[MachineFacts]:
        return Known(MachineFacts(machines=tuple(self.machines.values())), self.now)

    @property
    def has_news(self) -> bool:
        """Whether asking would bring anything."""
        return bool(self.nodes or self.ranks or self.machines_changed)

    def perform(self, effect: Effect) -> Receipt | None:
        """Do what is asked; None where the nodes' own report is the answer."""
        match effect:
            case StartRun(order=order):
                run = order.run
                ends_at = self.now + self.work_s[run.job_id] / run.speed
                self._runs[run.id] = run, self.now
                heapq.heappush(self._ends, (ends_at, run.id))
                # told together with whatever comes next: nobody waits for it
                self.ranks += _reports(run, self.now)
                self._started(run)
                return None
            case LaunchMachine(claim=claim):
                return Receipt(effect=effect, at=self.now, machine=self._launch(effect, claim.id))
            case TerminateMachine(machine_id=machine_id):
                ended = replace(
                    self.machines[machine_id], state=MachineState.ENDED, ended_at=self.now
                )
                self.machines[machine_id] = ended
                self.machines_changed = True
                return Receipt(effect=effect, at=self.now)
            case ExtendLease():
                return Receipt(effect=effect, at=self.now)
            case StopRun():
                raise ReplayError(f"{effect.run_id} is to be stopped: nothing stops in a replay")
            case _:
                return None

    def _started(self, run: Run) -> None:
        fate = self.fates[run.job_id]
        fate.started_at = self.now
        fate.gpus = sum(len(slot.gpu_ids) for slot in run.slots)
        fate.in_cloud = bool(run.claim_ids)

    def _launch(self, effect: LaunchMachine, claim_id: ClaimId) -> Machine:
        offer = effect.claim.offer
        machine = Machine(
            id=MachineId(f"m-{claim_id}"),
            claim_id=claim_id,
            token=effect.claim.token,
            state=MachineState.RUNNING,
            zone=offer.zone,
            machine_type=offer.machine_type,
            market=offer.market,
            launched_at=self.now,
        )
        self.machines[machine.id] = machine
        report = node_of_offer(offer, NodeId(f"n-{claim_id}"), claim_id, machine.id)
        heapq.heappush(self._boots, (self.now + offer.boot_s, machine.id, report))
        return machine


class Replay:
    """One control plane with its policy, pools, owned nodes and offers, ready to be run once."""

    def __init__(
        self,
        *,
        policy: str,
        pools: Sequence[dict[str, object]],
        nodes: Sequence[NodeReport],
        offers: Sequence[Offer] = (),
        evaluation_budget: int = 200_000,
        start_at: float = START_AT,
    ) -> None:
        self._offers = tuple(offers)
        self._providers = tuple(sorted({offer.provider for offer in offers}))
        self._budget = evaluation_budget
        self._start_at = start_at
        self._document = parse_policy(policy)
        self._rules = SyncRules(usage_half_life_s=self._document.fair_share.half_life)
        self._fates: dict[JobId, Fate] = {}
        self._untold: set[JobId] = set()
        self._local_gpus = sum(len(node.gpus) for node in nodes)
        self._outside = _Outside("agent", start_at, list(nodes), {}, self._fates)
        self._store = MemoryStore("replay")
        lease = self._store.acquire_loop("replay", now=start_at, ttl_s=_NEVER)
        assert lease is not None
        self._epoch = lease.epoch
        documents = [Pool(spec=POOL_SPEC.validate_python(pool)) for pool in pools]
        self._leases = {p.name: p.spec.lease for p in documents if isinstance(p.spec, BurstPool)}
        changes: tuple[Change, ...] = (
            SetPolicy(policy, self._store.policy().version, "replay", start_at),
            SetBudgets(self._document.budgets),
            *(Put(pool) for pool in documents),
        )
        self._commit((Bundle(id="setup", changes=changes),))
        self._world = self._store.load(now=start_at)
        self._plans = self._evaluations = 0

    def run(self, arrivals: Iterable[Arrival]) -> Replayed:
        """Play all arrivals to the end of the last run. Raises ReplayError."""
        coming = sorted(arrivals, key=lambda a: a.at_s)
        position = 0
        while True:
            arrives_at = _NEVER
            if position < len(coming):
                arrives_at = self._start_at + coming[position].at_s
            at = min(arrives_at, self._outside.next_at, self._next_renewal())
            if at == _NEVER:
                break
            self._outside.move(at)
            first = position
            while position < len(coming) and self._start_at + coming[position].at_s <= at:
                position += 1
            if position > first:
                self._submit(coming[first:position])
            self._settle()
        return Replayed(
            fates=tuple(self._fates.values()),
            local_gpus=self._local_gpus,
            plans=self._plans,
            evaluations=self._evaluations,
        )

    def _submit(self, arrivals: Sequence[Arrival]) -> None:
        now = self._outside.now
        bundles = []
        for arrival in arrivals:
            job_id = JobId(arrival.job_id)
            if job_id in self._fates:
                raise ReplayError(f"two jobs are called {job_id}")
            job = Job(
                id=job_id,
                spec=arrival.spec,
                team=arrival.spec.team or "default",
                user="replay",
                state=JobState.PENDING,
                submitted_at=now,
                queued_at=now,
                history=(Step(JobState.PENDING, now, "submitted"),),
            )
            event = Event(
                kind=EventKind.JOB, subject=job.id, what="submitted", at=now, job_id=job.id
            )
            bundles.append(Bundle(id=f"submit:{job_id}", changes=(Put(job), Note(event))))
            self._fates[job_id] = Fate(job_id=job_id, submitted_at=now)
            self._outside.work_s[job_id] = arrival.work_s
            self._untold.add(job_id)
        self._commit(bundles)
        self._outside.supply_changed = True

    # --- the loop -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Tick until nothing is left to do at this instant."""
        first = True
        for _ in range(_MOST_PASSES):
            busy = self._tick(always=first)
            first = False
            self._outside.move(self._outside.now)
            if not busy and not self._outside.supply_changed:
                return
        raise ReplayError(f"the loop does not come to rest at {self._outside.now}")

    def _tick(self, *, always: bool) -> bool:
        """One tick; whether it leaves anything for another at the same instant."""
        outside = self._outside
        self._refresh()
        observation = outside.news(self._offers, self._providers)
        synced = self._commit(sync(self._world, observation, self._rules))
        if synced.applied:
            self._refresh()
        dropped = False
        if always or outside.supply_changed:
            outside.supply_changed = False
            dropped = self._plan(observation)
        effects = due(
            self._world, observation, now=outside.now, epoch=self._epoch, rules=self._rules
        )
        receipts = [receipt for e in effects if (receipt := outside.perform(e)) is not None]
        if receipts:
            self._commit(apply_receipts(self._world, tuple(receipts)))
        return dropped or bool(receipts) or outside.machines_changed or bool(outside.nodes)

    def _plan(self, observation: Observation) -> bool:
        """Plan and commit; whether a bundle was dropped."""
        world = self._world
        if not world.claims and all(j.state is not JobState.PENDING for j in world.jobs.values()):
            return False
        snapshot = snapshot_of(
            world,
            observation,
            now=self._outside.now,
            epoch=self._epoch,
            evaluation_budget=self._budget,
            usage_half_life_s=self._rules.usage_half_life_s,
        )
        made = plan(snapshot, self._document, world.policy_version)
        self._plans += 1
        self._evaluations += made.evaluations
        findings = lint(snapshot, made.bundles)
        if findings:
            raise ReplayError(f"a plan is not clean: {findings[0]}")
        self._hear(made)
        done = self._commit(enact(made, world, lambda claim: claim.token))
        if done.applied:
            self._refresh()
        return bool(done.dropped)

    def _hear(self, made: Plan) -> None:
        """Note what new jobs are told of their start."""
        for decision in made.decisions:
            if decision.job_id in self._untold:
                self._fates[decision.job_id].told = _told(decision)
        self._untold.clear()

    def _commit(self, bundles: Sequence[Bundle]) -> Committed:
        if not bundles:
            return Committed((), (), 0)
        return self._store.commit(bundles, at=self._outside.now, epoch=self._epoch)

    def _refresh(self) -> World:
        now, since = self._outside.now, self._world.revision
        self._world = merged(self._world, self._store.load(now=now, since=since))
        return self._world

    def _next_renewal(self) -> float:
        claims = self._world.claims.values()
        return min(
            (c.lease_until - self._leases[c.pool].duration * RENEW_BELOW for c in claims),
            default=_NEVER,
        )


def node_of_offer(
    offer: Offer, node_id: NodeId, claim_id: ClaimId, machine_id: MachineId
) -> NodeReport:
    """What a machine of an offer reports once it has booted."""
    return NodeReport(
        id=node_id,
        pool=offer.pool,
        hostname=str(node_id),
        heard_at=0.0,
        run_lease_s=_NEVER,
        claim_id=claim_id,
        machine_id=machine_id,
        gpus=tuple(
            Gpu(
                id=GpuId(f"{node_id}-gpu{index}"),
                index=index,
                model=model,
                memory_gib=memory_gib,
            )
            for index, (model, memory_gib) in enumerate(
                zip(offer.models, offer.memories_gib, strict=True)
            )
        ),
        links_gbps=offer.links_gbps,
        cpus=offer.cpus,
        memory_gib=offer.memory_gib,
        architecture=offer.architecture,
    )


def _reports(run: Run, started_at: float, *, ended_at: float | None = None) -> list[RankReport]:
    phase = RankPhase.RUNNING if ended_at is None else RankPhase.ENDED
    return [
        RankReport(
            run_id=run.id,
            rank=rank,
            node_id=slot.node_id,
            phase=phase,
            started_at=started_at,
            ended_at=ended_at,
            exit_code=None if ended_at is None else 0,
        )
        for rank, slot in enumerate(run.slots)
    ]


def _told(decision: Decision) -> Told | None:
    """The start predicted for what was chosen."""
    for option in decision.alternatives:
        if option.option == decision.chosen and option.start_p50_at is not None:
            p90_at = option.start_p90_at
            return Told(
                p50_at=option.start_p50_at,
                p90_at=option.start_p50_at if p90_at is None else p90_at,
            )
    return None
