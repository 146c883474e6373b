"""The working state of one planning: the snapshot, grouped, and what has been decided so far.

Private to planning and mutable; it begins and ends within one call of ``plan``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import BudgetName, ClaimId, JobId, NodeId, PoolName, RunId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.job_spec import LinkClass
from hybrid.domain.money import to_micros
from hybrid.domain.node import Node, NodeState
from hybrid.domain.plan import Action, ActionBundle, FailJob, RowRef, Stop
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.reasons import Reason, SourceUnknown
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.estimation.runtime import run_left
from hybrid.estimation.waits import Duration
from hybrid.ledger import caps
from hybrid.ledger.caps import falls_under
from hybrid.planning.classes import Classes, JobClass
from hybrid.planning.fit import Fit, Shape, fits, node_facts, node_shape, stated_speed
from hybrid.planning.instances import Instances
from hybrid.planning.replicas import replicas_in
from hybrid.planning.timeline import Timeline
from policies import burst as burst_rules
from policies import placement
from policies.burst import Committed
from policies.document import PolicyDocument

_LIVE_CLAIMS = frozenset(
    {ClaimState.REQUESTED, ClaimState.BOOTING, ClaimState.READY, ClaimState.CORDONED,
     ClaimState.DRAINING, ClaimState.LOST, ClaimState.TERMINATING}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes on which a job runs equally well at equal cost. ``held`` marks cloud machines, whose
    GPUs cost ``rate_micros_per_hour`` for the whole machine; else it is per GPU."""

    index: int
    shape: Shape
    pool: PoolName
    engine: str
    held: bool
    gang: str
    rate_micros_per_hour: int


@dataclass(slots=True, eq=False)
class NodeView:
    """A node that takes new runs."""

    index: int
    node: Node
    type: NodeType
    claim: Claim | None
    shared: dict[int, float] = field(default_factory=dict)
    """Free part of devices that are held in shares, by position."""
    kept_for: JobId | None = None
    """The pending job this machine was asked for."""

    @property
    def id(self) -> NodeId:
        """The node's id."""
        return self.node.id


class Workspace:
    """Everything the steps read and write."""

    def __init__(self, snapshot: Snapshot, policy: PolicyDocument, policy_version: int) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.policy_version = policy_version
        self.now = snapshot.now
        self.classes = Classes(policy, snapshot.learned, snapshot.balances)
        self.bundles: list[ActionBundle] = []
        self.notes: list[str] = []
        self.evaluations = 0
        self.stops: dict[RunId, Stop] = {}
        self.refused: dict[JobId, Reason] = {}
        self.first: list[JobId] = []
        """Jobs for which this plan makes room: the slots are theirs before anybody else's."""
        self.closing: set[ClaimId] = set()
        """Claims whose lease cannot be renewed: they get no new runs."""
        self.extra_holds: dict[BudgetName, int] = {}
        self.held_for_job: dict[JobId, int] = {}
        self.run_of: dict[JobId, Run] = {
            run.job_id: run for _, run in sorted(snapshot.runs.items()) if run.live
        }
        self.claims_of: dict[JobId, list[Claim]] = {}
        self._left: dict[RunId, Duration] = {}
        self.committed = Committed()
        """Machines held, asked for and planned."""
        self._commit_claims()
        self.covering: dict[JobId, tuple[Claim, ...]] = {}
        self.moved: dict[JobId, Claim] = {}
        """Where jobs go on that give up a machine for another: a slot there is kept for them."""
        self.shunned: dict[JobId, frozenset[PoolName]] = {}
        """Pools in which jobs have failed too often that have a cloud to go to instead."""
        self.kept_slots: list[tuple[int, int, float, float, float]] = []
        """Slots kept for runs that are stopping yet: node, devices, until when, cores, GiB."""
        self.orphans: tuple[Claim, ...] = ()
        self._match_claims()
        self.types: list[NodeType] = []
        self.members: list[list[int]] = []
        self.nodes: list[NodeView] = []
        self.node_index: dict[NodeId, int] = {}
        self._fit_of: dict[tuple[int, int], tuple[Fit, ...] | Reason] = {}
        self._usable: dict[tuple[int, int, str], tuple[Fit, ...] | Reason] = {}
        self.scores: dict[tuple[int, int, int, LinkClass], tuple[float, float] | None] = {}
        """How well a slot fills a machine, by shape, free devices, count and links: for packing."""
        self.instances = Instances(snapshot)
        self._group_nodes()
        self.lines: list[Timeline] = []
        self.rebuild_timelines()

    # --- facts --------------------------------------------------------------------------------

    def local_pool(self, name: PoolName) -> LocalPool | None:
        """The pool document if it is an owned pool that is still there."""
        pool = self.snapshot.pools.get(name)
        spec = None if pool is None or pool.removed else pool.spec
        return spec if isinstance(spec, LocalPool) else None

    def burst_pool(self, name: PoolName, *, removed_too: bool = False) -> BurstPool | None:
        """The pool document if it is a burst pool."""
        pool = self.snapshot.pools.get(name)
        if pool is None or (pool.removed and not removed_too):
            return None
        return pool.spec if isinstance(pool.spec, BurstPool) else None

    def fits_of(self, cls: JobClass, type_: NodeType) -> tuple[Fit, ...] | Reason:
        """How a class fits a type of node."""
        return self.fits_shape(cls, type_.shape)

    def fits_shape(self, cls: JobClass, shape: Shape) -> tuple[Fit, ...] | Reason:
        """How a class fits a machine. Shapes are told apart by identity."""
        key = (cls.need_index, id(shape))
        found = self._fit_of.get(key)
        if found is None:
            found = self._fit_of[key] = fits(cls.need, shape)
        return found

    def usable_fits(self, cls: JobClass, type_: NodeType) -> tuple[Fit, ...] | Reason:
        """The fits that the job's and the policy's rules allow there, or the first "no"."""
        found = self.fits_of(cls, type_)
        if isinstance(found, Reason):
            return found
        if type_.held:
            refused = self._held_refusal(cls, type_)
            return found if refused is None else refused
        # hot: where no rule names a pool, all pools with such machines are alike
        named = cls.sample.spec.where.pools or self.policy.placement.reserved
        key = (cls.index, id(type_.shape), type_.pool if named else "")
        usable = self._usable.get(key)
        if usable is None:
            usable = self._usable[key] = self._allowed(cls, type_.pool, found)
        return usable

    def _allowed(
        self, cls: JobClass, pool: PoolName, fits_: tuple[Fit, ...]
    ) -> tuple[Fit, ...] | Reason:
        allowed = []
        refused = None
        for fit in fits_:
            no = placement.refusal(cls.sample, pool, fit.model, self.policy) or cls.too_long(fit)
            if no is None:
                allowed.append(fit)
            refused = refused or no
        return tuple(allowed) if allowed or refused is None else refused

    def _held_refusal(self, cls: JobClass, type_: NodeType) -> Reason | None:
        """Whether a machine held already may take jobs of the class."""
        pool = self.burst_pool(type_.pool)
        claim = next(self.nodes[n].claim for n in self.members[type_.index])
        if pool is None or claim is None:
            return SourceUnknown(f"pool:{type_.pool}", "removed")
        return burst_rules.refusal(
            cls.sample, claim.offer, pool, self.policy, self.committed, now=self.now, machines=0
        )

    def may_use_held(self, job_id: JobId, view: NodeView, *, kept: bool = True) -> bool:
        """A machine is kept for the job it was asked for while that waits; after that any job of
        the team that pays for it may have it."""
        if view.claim is None:
            return True
        if view.claim.id in self.closing:
            return False
        if kept and view.kept_for is not None:
            return view.kept_for == job_id
        return view.claim.team == self.snapshot.jobs[job_id].team

    def stopping(self, run: Run) -> StopCause | None:
        """The cause for which a run is being stopped, now or by this plan."""
        planned = self.stops.get(run.id)
        if planned is not None:
            return planned.cause
        if run.state is RunState.STOPPING:
            return run.stop_cause or StopCause.DRAIN
        return None

    def moving(self, job_id: JobId) -> Run | None:
        """The job's run if it is being stopped, now or by this plan, only to go on elsewhere."""
        run = self.run_of.get(job_id)
        job = self.snapshot.jobs.get(job_id)
        if run is None or job is None or job.cancel_requested:
            return None
        planned = self.stops.get(run.id)
        moving = run.moving if planned is None else planned.cause.moves
        return run if moving else None

    def left_of(self, run: Run) -> Duration:
        """How long a live run still holds its slots."""
        job = self.snapshot.jobs.get(run.job_id)
        if job is None:
            return Duration(1.0)
        if self.stopping(run) is not None:
            return Duration(self.stop_time_s(run, job))
        return self.unstopped_left(run, job)

    def unstopped_left(self, run: Run, job: Job) -> Duration:
        """How long the run would take if nothing stopped it."""
        left = self._left.get(run.id)
        if left is None:
            left = self._left[run.id] = self._run_left(run, job)
        return left

    def _run_left(self, run: Run, job: Job) -> Duration:
        return run_left(
            job,
            run,
            self.snapshot.learned,
            now=self.now,
            progress=self.snapshot.progress.get(run.id),
            stated_speed=stated_speed(job.spec, self.classes.speeds),
        )

    def stop_time_s(self, run: Run, job: Job) -> float:
        """Seconds until a run that is asked to stop now, or was before, is over at the latest."""
        planned = self.stops.get(run.id)
        by = planned.by if planned is not None else run.stop_by
        asked_at = self.now if planned is not None else (run.stop_requested_at or self.now)
        over_at = asked_at + job.spec.stop.grace if by is None else by
        return max(over_at - self.now, 1.0)

    # --- decisions so far ---------------------------------------------------------------------

    def add(self, id_: str, actions: Iterable[Action], rests_on: Iterable[RowRef]) -> None:
        """One more bundle of the plan."""
        self.bundles.append(ActionBundle(id=id_, actions=tuple(actions), rests_on=tuple(rests_on)))

    def stop(self, run: Run, cause: StopCause, words: str, by: float | None = None) -> Stop:
        """Plan the stop of a run. The caller puts it into a bundle."""
        action = Stop(run_id=run.id, cause=cause, words=words, by=by)
        self.stops[run.id] = action
        return action

    def add_to(self, id_: str, actions: Iterable[Action], rests_on: Iterable[RowRef]) -> None:
        """More actions for a bundle that is there already: they change the same rows. A new one if
        there is none."""
        for place, bundle in enumerate(self.bundles):
            if bundle.id == id_:
                more = (ref for ref in rests_on if ref not in bundle.rests_on)
                self.bundles[place] = ActionBundle(
                    id=id_,
                    actions=(*bundle.actions, *actions),
                    rests_on=(*bundle.rests_on, *more),
                )
                return
        self.add(id_, actions, rests_on)

    def fail(self, job: Job, reason: Reason, *, cancelled: bool = False) -> None:
        """Plan the end of a pending job."""
        self.refused[job.id] = reason
        action = FailJob(job_id=job.id, reason=reason, cancelled=cancelled)
        self.add(f"job:{job.id}", (action,), (job_ref(job),))

    def hold(self, job: Job, micros: int) -> None:
        """Count a planned hold against every budget that covers the job."""
        for balance in self.snapshot.balances:
            if falls_under(balance.budget, team=job.team, user=job.user, job_id=str(job.id)):
                self.extra_holds[balance.name] = self.extra_holds.get(balance.name, 0) + micros
        self.held_for_job[job.id] = self.held_for_job.get(job.id, 0) + micros

    def free_micros(self, job: Job) -> float:
        """The least that is free in any budget that covers the job; infinite without one."""
        return min(
            (
                caps.free_micros(balance) - self.extra_holds.get(balance.name, 0)
                for balance in self.snapshot.balances
                if falls_under(balance.budget, team=job.team, user=job.user, job_id=str(job.id))
            ),
            default=math.inf,
        )

    def commit_machines(self, pool: PoolName, machines: int, ceiling_micros: int) -> None:
        """Count machines against the ceilings; negative numbers take back."""
        by_pool, rates = self.committed.machines_by_pool, self.committed.micros_per_hour_by_pool
        rate = machines * ceiling_micros
        self.committed = Committed(
            machines_by_pool={**by_pool, pool: by_pool.get(pool, 0) + machines},
            micros_per_hour_by_pool={**rates, pool: rates.get(pool, 0) + rate},
            machines=self.committed.machines + machines,
            micros_per_hour=self.committed.micros_per_hour + rate,
        )

    def without_stopped(self) -> Mapping[RunId, Run]:
        """Live runs that nothing stops."""
        return {run.id: run for run in self.run_of.values() if self.stopping(run) is None}

    # --- building -----------------------------------------------------------------------------

    def _commit_claims(self) -> None:
        for _, claim in sorted(self.snapshot.claims.items()):
            if claim.state not in _LIVE_CLAIMS:
                continue
            self.commit_machines(claim.pool, 1, claim.offer.price_ceiling_micros_per_hour)
            self.held_for_job[claim.job_id] = (
                self.held_for_job.get(claim.job_id, 0) + claim.held_micros
            )
            if claim.state in (ClaimState.REQUESTED, ClaimState.BOOTING, ClaimState.READY):
                self.claims_of.setdefault(claim.job_id, []).append(claim)

    def _group_nodes(self) -> None:
        shapes: dict[tuple[object, ...], Shape] = {}
        types: dict[tuple[object, ...], NodeType] = {}
        for _, node in sorted(self.snapshot.nodes.items()):
            claim = None
            if node.claim_id is not None:
                claim = self.snapshot.claims.get(node.claim_id)
            if not self._takes_runs(node, claim):
                continue
            replicas = 1 if claim is not None else replicas_in(self.local_pool(node.pool))
            raw = node_facts(node, replicas)
            shape = shapes.get(raw)
            if shape is None:
                shape = shapes[raw] = node_shape(node, replicas)
            rate = self._rate(node, claim)
            # a held machine is of a type of its own: what is paid already differs
            gang = (claim.gang or str(claim.id)) if claim is not None else ""
            key = (id(shape), node.pool, node.engine, claim is not None, gang, rate)
            type_ = types.get(key)
            if type_ is None:
                type_ = types[key] = NodeType(
                    len(self.types), shape, node.pool, node.engine, claim is not None, gang, rate
                )
                self.types.append(type_)
                self.members.append([])
            view = NodeView(len(self.nodes), node, type_, claim)
            if claim is not None:
                owner = self.owner_of(claim)
                view.kept_for = owner.id if owner is not None else None
            self.node_index[node.id] = view.index
            self.nodes.append(view)
            self.members[type_.index].append(view.index)

    def _takes_runs(self, node: Node, claim: Claim | None) -> bool:
        if node.state is not NodeState.READY or not self.snapshot.knows(f"engine:{node.engine}"):
            return False
        if node.claim_id is None:
            return self.local_pool(node.pool) is not None
        return (
            claim is not None
            and claim.state is ClaimState.READY
            and claim.notice_at is None
            and self.burst_pool(node.pool) is not None
        )

    def _rate(self, node: Node, claim: Claim | None) -> int:
        if claim is not None:
            return claim.offer.price_micros_per_hour
        pool = self.local_pool(node.pool)
        return self.rate_of(pool) if pool is not None else 0

    def rate_of(self, pool: LocalPool) -> int:
        """Energy and wear of one GPU of an owned pool, micro-dollars per hour."""
        return to_micros(pool.rate_per_gpu_hour)

    def owner_of(self, claim: Claim) -> Job | None:
        """The pending job that waits for the claim, its gang complete."""
        mine = self.covering.get(claim.job_id, ())
        return self.snapshot.jobs[claim.job_id] if claim in mine else None

    def disown(self, job_id: JobId) -> None:
        """Machines that their job may not use are there for others."""
        claims = self.covering.pop(job_id, ())
        for view in self.nodes:
            if view.kept_for == job_id:
                view.kept_for = None
        orphans = [claim for claim in claims if claim.state is not ClaimState.READY]
        self.orphans = tuple(sorted([*self.orphans, *orphans], key=lambda claim: claim.id))

    def without_refused(self) -> None:
        """Machines of jobs that end here are there for others."""
        self._match_claims()
        for view in self.nodes:
            if view.kept_for in self.refused:
                view.kept_for = None

    def _match_claims(self) -> None:
        """Which pending jobs have all the machines they need held or on their way; and the
        machines on their way that are there for nobody: their job was cancelled, runs elsewhere,
        or lost a part of its gang."""
        covering: dict[JobId, tuple[Claim, ...]] = {}
        orphans: list[Claim] = []
        for job_id, claims in self.claims_of.items():
            job = self.snapshot.jobs.get(job_id)
            gangs: dict[str, list[Claim]] = {}
            for claim in claims:
                gangs.setdefault(claim.gang or str(claim.id), []).append(claim)
            for _, gang in sorted(gangs.items()):
                waits = (
                    job is not None
                    and (job.state is JobState.PENDING or self.moving(job_id) is not None)
                    and not job.cancel_requested
                    and job_id not in self.refused
                    and job_id not in covering
                    and len(gang) == job.spec.resources.nodes
                )
                if waits:
                    covering[job_id] = tuple(gang)
                else:
                    orphans += [c for c in gang if c.state is not ClaimState.READY]
        self.covering = covering
        self.orphans = tuple(sorted(orphans, key=lambda claim: claim.id))

    def rebuild_timelines(self) -> None:
        """What is free from now on, given the live runs and the stops planned so far."""
        self.lines = [
            Timeline(self.now, view.type.shape.healthy, view.node.cpus, view.node.memory_gib)
            for view in self.nodes
        ]
        for view in self.nodes:
            view.shared = {}
        ends: dict[tuple[int, int], float] = {}
        for _, run in sorted(self.snapshot.runs.items()):
            if not run.live:
                continue
            left = self.left_of(run)
            for slot in run.slots:
                index = self.node_index.get(slot.node_id)
                if index is None:
                    continue
                view = self.nodes[index]
                position = {gpu.id: i for i, gpu in enumerate(view.node.gpus)}
                mask = sum(1 << position[g] for g in slot.gpu_ids if g in position)
                self.lines[index].hold(
                    self.now,
                    self.now + left.mean_s,
                    mask,
                    slot.cpus,
                    slot.memory_gib,
                    variance=left.sd_s**2,
                )
                if slot.share < 1 and mask:
                    device = mask.bit_length() - 1
                    view.shared[device] = view.shared.get(device, 1.0) - slot.share
                    ends[index, device] = max(
                        ends.get((index, device), 0.0), self.now + left.mean_s
                    )
        self.shared_until = ends
        for node, mask, until, cpus, memory_gib in self.kept_slots:
            self.lines[node].hold(self.now, until, mask, cpus, memory_gib)


def job_ref(job: Job) -> RowRef:
    """The job's row, as it was read."""
    return RowRef(kind="job", id=str(job.id), version=job.version)


def run_ref(run: Run) -> RowRef:
    """The run's row, as it was read."""
    return RowRef(kind="run", id=str(run.id), version=run.version)


def claim_ref(claim: Claim) -> RowRef:
    """The claim's row, as it was read."""
    return RowRef(kind="claim", id=str(claim.id), version=claim.version)


def node_ref(node: Node) -> RowRef:
    """The node's row, as it was read."""
    return RowRef(kind="node", id=str(node.id), version=node.version)


__all__ = [
    "NodeType",
    "NodeView",
    "Workspace",
    "claim_ref",
    "job_ref",
    "node_ref",
    "run_ref",
]
