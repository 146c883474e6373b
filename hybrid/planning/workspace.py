"""The working state of one planning: the snapshot, grouped, and what has been decided so far.

Private to planning and mutable; it begins and ends within one call of ``plan``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import BudgetName, ClaimId, JobId, PoolName, RunId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.job_spec import LinkClass
from hybrid.domain.plan import Action, ActionBundle, FailJob, RowRef, Stop
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.reasons import Reason, SourceUnknown
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.estimation.runtime import run_left
from hybrid.estimation.waits import Duration
from hybrid.ledger import caps
from hybrid.ledger.caps import falls_under
from hybrid.planning import nodes
from hybrid.planning.claims import match_claims
from hybrid.planning.classes import Classes, JobClass
from hybrid.planning.fit import Fit, Shape, fits, stated_speed
from hybrid.planning.instances import Instances
from hybrid.planning.nodes import NodeType, NodeView
from hybrid.planning.rooms import Hold
from hybrid.planning.row_refs import job_ref
from hybrid.planning.timeline import Timeline
from policies import burst as burst_rules
from policies import placement
from policies.burst import Committed
from policies.document import PolicyDocument

_LIVE_CLAIMS = frozenset(
    {ClaimState.REQUESTED, ClaimState.BOOTING, ClaimState.READY, ClaimState.CORDONED,
     ClaimState.DRAINING, ClaimState.LOST, ClaimState.TERMINATING}
)  # fmt: skip


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
        self.moved: dict[JobId, Claim] = {}
        """Where jobs go on that give up a machine for another: a slot there is kept for them."""
        self.shunned: dict[JobId, frozenset[PoolName]] = {}
        """Pools in which jobs have failed too often that have a cloud to go to instead."""
        self.kept_slots: list[tuple[int, int, float, float, float]] = []
        """Slots kept for runs that are stopping yet: node, devices, until when, cores, GiB."""
        self.covering: dict[JobId, tuple[Claim, ...]]
        """Pending jobs that have all the machines they need, held or on their way."""
        self.orphans: tuple[Claim, ...]
        """Machines on their way that are there for nobody."""
        self._match_claims()
        self._fit_of: dict[tuple[int, int], tuple[Fit, ...] | Reason] = {}
        self._usable: dict[tuple[int, int, str], tuple[Fit, ...] | Reason] = {}
        self.scores: dict[tuple[int, int, int, LinkClass], tuple[float, float] | None] = {}
        """How well a slot fills a machine, by shape, free devices, count and links: for packing."""
        self.instances = Instances(snapshot)
        grouped = nodes.group_nodes(snapshot, self.owner_of)
        self.types, self.members = grouped.types, grouped.members
        self.nodes, self.node_index = grouped.views, grouped.index
        self.lines: list[Timeline] = []
        self.shared_holds: dict[tuple[int, int], list[Hold]] = {}
        """Shares that runs hold, by node and device."""
        self.rebuild_timelines()

    # --- facts --------------------------------------------------------------------------------

    def local_pool(self, name: PoolName) -> LocalPool | None:
        """The pool document if it is an owned pool that is still there."""
        return nodes.local_pool(self.snapshot, name)

    def burst_pool(self, name: PoolName, *, removed_too: bool = False) -> BurstPool | None:
        """The pool document if it is a burst pool."""
        return nodes.burst_pool(self.snapshot, name, removed_too=removed_too)

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
        self.covering, self.orphans = match_claims(self.claims_of, self._waits_for)

    def _waits_for(self, job_id: JobId) -> int:
        """How many machines a job waits for; 0 for one that waits for none."""
        job = self.snapshot.jobs.get(job_id)
        if job is None or job.cancel_requested or job_id in self.refused:
            return 0
        waits = job.state is JobState.PENDING or self.moving(job_id) is not None
        return job.spec.resources.nodes if waits else 0

    def rebuild_timelines(self) -> None:
        """What is free from now on, given the live runs and the stops planned so far."""
        self.lines = [
            Timeline(self.now, view.type.shape.healthy, view.node.cpus, view.node.memory_gib)
            for view in self.nodes
        ]
        for view in self.nodes:
            view.shared = {}
        self.shared_holds = {}
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
                    hold = Hold(self.now, self.now + left.mean_s, slot.share, left.sd_s**2)
                    self.shared_holds.setdefault((index, device), []).append(hold)
        for node, mask, until, cpus, memory_gib in self.kept_slots:
            self.lines[node].hold(self.now, until, mask, cpus, memory_gib)
