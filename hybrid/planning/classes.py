"""Jobs that differ in nothing the planner weighs are one class, planned once.

10,000 pending jobs come from a few hundred specs; everything that costs more than a look-up is
done per class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from hybrid.domain.budget import Balance, Scope
from hybrid.domain.ids import JobId, NodeId
from hybrid.domain.job import Job
from hybrid.domain.learned import Learned
from hybrid.domain.reasons import WalltimeTooShort
from hybrid.estimation.runtime import total_work, work_left
from hybrid.estimation.waits import Duration
from hybrid.planning.fit import (
    Fit,
    LearnedSpeeds,
    Need,
    need_of,
    speed_on,
    stated_speed,
)
from policies.document import PolicyDocument
from policies.fairshare import demand_gpus
from policies.priority import value_micros_per_hour


@dataclass(slots=True, eq=False)
class JobClass:
    """What jobs of the class have in common. ``sample`` stands for any of them; ``work`` is what
    is left, in reference-seconds."""

    index: int
    sample: Job
    need: Need
    need_index: int
    nodes: int
    work: Duration
    whole_work: Duration
    value_micros_per_hour: int
    demand_gpus: float
    """Its dominant resource, as its team's share counts it."""
    deadline_at: float | None
    run_time_known: bool
    learned: LearnedSpeeds
    home_only: bool = False
    """It comes home: machines in clouds are no option."""
    value_per_s: float = field(init=False)
    """Micro-dollars that a second's delay costs."""
    _speeds: dict[tuple[str, float], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.value_per_s = self.value_micros_per_hour / 3600.0

    @property
    def avoid(self) -> frozenset[NodeId]:
        """Nodes on which it has failed."""
        return frozenset(self.sample.avoid_nodes)

    @property
    def total_gpus(self) -> float:
        """GPUs over the whole gang, shares counted as such; a slice of memory, whose share depends
        on the device, as a whole one."""
        return self.gpus_at(self.need.share)

    def gpus_at(self, part: float) -> float:
        """GPUs over the whole gang where each of its devices is such a part of one."""
        return self.nodes * self.need.gpus * part

    def speed(self, model: str, link_gbps: float) -> float:
        """Relative to the reference GPU."""
        key = (model, link_gbps)
        found = self._speeds.get(key)
        if found is None:
            found = self._speeds[key] = speed_on(self.sample.spec, model, link_gbps, self.learned)
        return found

    def speed_on(self, fit: Fit) -> float:
        """On devices that fit: one of several replicas has its part of the time."""
        return self.speed(fit.model, fit.link_gbps) / fit.replicas

    def run_time(self, model: str, speed: float) -> Duration:
        """How long what is left takes at this speed, cut off at the walltime."""
        work = self.work
        if self.sample.checkpoint is not None and self.sample.resumes_on(model) is None:
            work = self.whole_work  # the checkpoint does not restore there
        walltime = self.sample.spec.walltime
        return Duration(min(work.mean_s / speed, walltime), work.sd_s / speed)

    def fastest(self, fits: tuple[Fit, ...]) -> Fit:
        """The devices on which it runs fastest, of those of a machine that fit: what one asks for
        when a machine is asked for."""
        if len(fits) == 1:
            return fits[0]
        return max(fits, key=lambda fit: self.speed(fit.model, fit.link_gbps))

    def too_long(self, fit: Fit) -> WalltimeTooShort | None:
        """Why the job should not start on these devices: it is known to need longer than its
        walltime there. Where nobody knows, the walltime is all there is to go by."""
        spec = self.sample.spec
        if not self.run_time_known:
            return None
        needed_s = self.work.mean_s / self.speed_on(fit)
        if needed_s <= spec.walltime:
            return None
        return WalltimeTooShort(needed_s, spec.walltime)


class Classes:
    """The classes of one plan."""

    def __init__(
        self, policy: PolicyDocument, learned: Learned, balances: Iterable[Balance]
    ) -> None:
        self._policy = policy
        self._learned = learned
        self.speeds: LearnedSpeeds = learned.speed
        self._by_key: dict[Hashable, JobClass] = {}
        self._by_job: dict[JobId, JobClass] = {}
        # a budget of one user or job tells apart what would otherwise be one class
        scopes = {balance.budget.scope for balance in balances}
        self._per_user = Scope.USER in scopes
        self._per_team = bool(
            Scope.TEAM in scopes
            or Scope.ORG not in scopes  # then "no budget covers team so-and-so"
            or policy.teams
            or policy.placement.reserved
        )
        self._needs: dict[Need, int] = {}
        self._jobs_with_budget = frozenset(
            balance.budget.subject for balance in balances if balance.budget.scope is Scope.JOB
        )
        self.all: list[JobClass] = []

    def of(self, job: Job) -> JobClass:
        """The class of a job."""
        known = self._by_job.get(job.id)
        if known is not None:
            return known
        key = self._key(job)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._new(job)
            self.all.append(found)
        self._by_job[job.id] = found
        return found

    def with_work(self, job: Job, work: Duration) -> JobClass:
        """A class of its own for a job on its way home, with the work it will have left then."""
        found = replace(
            self.of(job),
            index=len(self.all),
            sample=job,
            work=work,
            home_only=True,
            _speeds={},
        )
        self.all.append(found)
        return found

    def _key(self, job: Job) -> Hashable:
        # hot: once per job; flat tuples hash several times faster than nested models
        spec = job.spec
        resources, where, data = spec.resources, spec.where, spec.data
        gpu, saving = resources.gpu, spec.checkpoint
        saved = job.checkpoint
        own = str(job.id)
        return (
            resources.nodes, resources.gpus, resources.cpus, resources.memory,
            resources.architecture, gpu.models, gpu.memory, gpu.min_compute_capability, gpu.link,
            gpu.share, gpu.slice_memory, gpu.time_slicing, gpu.mig_profile,
            where.pools, where.providers, where.regions, where.burst, where.markets,
            spec.profile, spec.family, tuple(spec.speeds.items()), spec.expected_runtime,
            spec.walltime, spec.deadline, spec.value_per_hour, spec.priority,
            job.team if self._per_team else "",
            spec.image, data.input, data.output,
            saving.enabled, saving.interval, saving.size, saving.portable,
            spec.retries.on_spot_restart, spec.stop.grace,
            spec.max_cost, job.cost_micros if spec.max_cost is not None else 0,
            job.avoid_nodes, job.failed_at,
            None if saved is None else (saved.work_s, saved.size_bytes, saved.commit_s,
                                        saved.gpu_model),
            job.user if self._per_user else "",
            own if own in self._jobs_with_budget or own in self._learned.checkpoint_s else "",
        )  # fmt: skip

    def _new(self, job: Job) -> JobClass:
        pace = stated_speed(job.spec, self.speeds)
        need = need_of(job.spec)
        return JobClass(
            index=len(self.all),
            sample=job,
            need=need,
            need_index=self._needs.setdefault(need, len(self._needs)),
            nodes=job.spec.resources.nodes,
            work=work_left(job, self._learned, stated_speed=pace),
            whole_work=total_work(job.spec, self._learned, stated_speed=pace),
            value_micros_per_hour=value_micros_per_hour(job, self._policy),
            demand_gpus=demand_gpus(job.spec.resources, self._policy),
            deadline_at=job.spec.deadline_at,
            run_time_known=job.spec.expected_runtime is not None
            or job.spec.family in self._learned.work_s,
            learned=self.speeds,
        )
