"""Every "no" has a type, and words a person can read.

A reason is a small value with a stable ``code``; ``str(reason)`` is the sentence. Rows and API
answers carry ``{"code", "text", ...fields}`` from :func:`as_dict`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hybrid.domain.money import cents
from hybrid.domain.quantities import format_duration


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons."""

    code: ClassVar[str] = "reason"

    def __str__(self) -> str:
        raise NotImplementedError


def as_dict(reason: Reason) -> dict[str, Any]:
    """The reason for a row or an answer."""
    return {"code": reason.code, "text": str(reason), **asdict(reason)}


@dataclass(frozen=True, slots=True)
class Said(Reason):
    """A reason read back from a row, whose text was written when it was decided."""

    code: ClassVar[str] = "said"
    said_code: str
    text: str

    def __str__(self) -> str:
        return self.text


# --- hardware ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnknownGpu(Reason):
    """Nobody knows such a GPU."""

    code: ClassVar[str] = "unknown_gpu"
    name: str
    nearest: tuple[str, ...]
    available: tuple[str, ...]

    def __str__(self) -> str:
        near = f"; nearest names: {', '.join(self.nearest)}" if self.nearest else ""
        have = f"; the pools have: {', '.join(self.available)}" if self.available else ""
        return f"no GPU is called {self.name!r}{near}{have}"


@dataclass(frozen=True, slots=True)
class NoSuchHardware(Reason):
    """No pool, here or in a cloud, has what the job asks for."""

    code: ClassVar[str] = "no_such_hardware"
    wanted: str
    available: tuple[str, ...]

    def __str__(self) -> str:
        have = ", ".join(self.available) or "no GPUs at all"
        return f"no pool has {self.wanted}; the pools have: {have}"


@dataclass(frozen=True, slots=True)
class TooManyGpusPerNode(Reason):
    """More devices on one machine than any machine has."""

    code: ClassVar[str] = "too_many_gpus_per_node"
    wanted: int
    largest: int
    largest_where: str

    def __str__(self) -> str:
        nodes = -(-self.wanted // self.largest) if self.largest else 0
        hint = (
            f"; a gang could do it: nodes: {nodes}, gpus: {-(-self.wanted // nodes)}"
            if nodes
            else ""
        )
        return (
            f"{self.wanted} GPUs on one node; the largest node has {self.largest}"
            f" ({self.largest_where or 'none'}){hint}"
        )


@dataclass(frozen=True, slots=True)
class GpuMemoryTooSmall(Reason):
    """The devices have less usable memory than asked for."""

    code: ClassVar[str] = "gpu_memory_too_small"
    wanted_gib: float
    largest_gib: float

    def __str__(self) -> str:
        return (
            f"needs {self.wanted_gib:g} GiB of memory per GPU; the largest has"
            f" {self.largest_gib:g} GiB usable"
        )


@dataclass(frozen=True, slots=True)
class Contradiction(Reason):
    """Constraints of the job that no place can meet together, and none of which is needless for
    that; ``paths`` are where they stand in the spec, ``places`` what there is says to it."""

    code: ClassVar[str] = "contradiction"
    constraints: tuple[str, ...]
    paths: tuple[str, ...]
    places: str = ""

    def __str__(self) -> str:
        *most, last = self.constraints
        fewer = "each alone" if len(most) == 1 else f"any {len(most)} of them"
        there = f" ({self.places})" if self.places else ""
        return f"no place meets {', '.join(most)} and {last} together; {fewer} can be met{there}"


@dataclass(frozen=True, slots=True)
class HardwareMismatch(Reason):
    """This node or offer does not fit, for one named aspect."""

    code: ClassVar[str] = "hardware_mismatch"
    aspect: str
    wanted: str
    has: str

    def __str__(self) -> str:
        return f"{self.aspect}: wants {self.wanted}, has {self.has}"


@dataclass(frozen=True, slots=True)
class TimeSliced(Reason):
    """The GPUs are given out in replicas, and the job does not accept one."""

    code: ClassVar[str] = "time_sliced"
    replicas: int
    gpus: int
    share: float

    def __str__(self) -> str:
        told = f"GPUs there are time-sliced into {self.replicas} replicas"
        if self.gpus > 1:
            return f"{told}, of which a job gets one: it wants {self.gpus} GPUs"
        wants = "a whole GPU" if self.share == 1 else f"{self.share:.3g} of a GPU"
        return (
            f"{told}: the job wants {wants}; gpu.time_slicing: true accepts one, and so does a"
            f" share of {1 / self.replicas:.3g} or less"
        )


@dataclass(frozen=True, slots=True)
class NoContainerRuntime(Reason):
    """The job names an image, and the node can run none."""

    code: ClassVar[str] = "no_container_runtime"
    image: str

    def __str__(self) -> str:
        return f"no docker, podman or apptainer there to run {self.image}"


# --- where it may go --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MayNotLeave(Reason):
    """The job, its class or the policy keeps it on the premises."""

    code: ClassVar[str] = "may_not_leave"
    whose: str

    def __str__(self) -> str:
        return f"may not leave the premises: {self.whose} says burst: never"


@dataclass(frozen=True, slots=True)
class NotOffered(Reason):
    """Its cloud lists no machine of it that could be had."""

    code: ClassVar[str] = "not_offered"
    what: str

    def __str__(self) -> str:
        return f"no machine of {self.what} is offered now"


@dataclass(frozen=True, slots=True)
class NeverFree(Reason):
    """It would fit, and nothing says when so much is free at once."""

    code: ClassVar[str] = "never_free"
    nodes: int

    def __str__(self) -> str:
        what = "the node it needs is" if self.nodes == 1 else f"{self.nodes} nodes at once are"
        return f"{what} never free there as far as can be foreseen"


@dataclass(frozen=True, slots=True)
class NotAllowedThere(Reason):
    """A pool, provider, region or market that is not on a list."""

    code: ClassVar[str] = "not_allowed_there"
    aspect: str
    name: str
    whose: str

    def __str__(self) -> str:
        return f"{self.aspect} {self.name} is not allowed by {self.whose}"


@dataclass(frozen=True, slots=True)
class PoolCeiling(Reason):
    """The pool's ceiling on machines or dollars per hour is reached."""

    code: ClassVar[str] = "pool_ceiling"
    pool: str
    limit: str

    def __str__(self) -> str:
        return f"pool {self.pool} is at its ceiling of {self.limit}"


@dataclass(frozen=True, slots=True)
class PolicyCeiling(Reason):
    """The policy's ceiling on all bursting is reached."""

    code: ClassVar[str] = "policy_ceiling"
    limit: str

    def __str__(self) -> str:
        return f"the policy's ceiling on bursting, {self.limit}, is reached"


@dataclass(frozen=True, slots=True)
class QuotaReached(Reason):
    """The provider's quota is used up."""

    code: ClassVar[str] = "quota_reached"
    scope: str
    use: str = ""
    """How much of which quota, where the provider tells."""

    def __str__(self) -> str:
        if self.use:
            return f"quota {self.use}"
        return f"the provider's quota is used up: {self.scope}"


@dataclass(frozen=True, slots=True)
class BreakerOpen(Reason):
    """The provider refused lately; the next try is at ``until``."""

    code: ClassVar[str] = "breaker_open"
    scope: str
    cause: str
    retry_in_s: float

    def __str__(self) -> str:
        wait = format_duration(round(self.retry_in_s))
        return f"{self.scope} refused lately ({self.cause}); next try in {wait}"


@dataclass(frozen=True, slots=True)
class SourceUnknown(Reason):
    """The source could not be read, so nothing new is started on what it would say."""

    code: ClassVar[str] = "source_unknown"
    source: str
    cause: str

    def __str__(self) -> str:
        return f"{self.source} could not be read ({self.cause})"


# --- money ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OverBudget(Reason):
    """The worst case does not fit into what is left."""

    code: ClassVar[str] = "over_budget"
    budget: str
    needed_micros: int
    free_micros: int

    def __str__(self) -> str:
        return (
            f"budget {self.budget} has ${cents(max(0, self.free_micros))} free;"
            f" the worst case needs ${cents(self.needed_micros)}"
        )


@dataclass(frozen=True, slots=True)
class NoBudget(Reason):
    """Nothing says how much may be spent, so nothing is."""

    code: ClassVar[str] = "no_budget"
    team: str

    def __str__(self) -> str:
        return f"no budget covers team {self.team}: without one nothing is spent"


@dataclass(frozen=True, slots=True)
class OverJobCost(Reason):
    """The job's own max_cost."""

    code: ClassVar[str] = "over_job_cost"
    needed_micros: int
    left_micros: int

    def __str__(self) -> str:
        return (
            f"would come to ${cents(self.needed_micros)}; the job's max_cost leaves"
            f" ${cents(max(0, self.left_micros))}"
        )


@dataclass(frozen=True, slots=True)
class NotWorthIt(Reason):
    """Possible, but dearer than what was chosen (or cheaper, and why that is not enough)."""

    code: ClassVar[str] = "not_worth_it"
    dearer_by_micros: int
    than: str
    although: str = "within the margin"

    def __str__(self) -> str:
        if self.dearer_by_micros < 0:
            return f"${cents(-self.dearer_by_micros)} cheaper than {self.than}, {self.although}"
        return f"${cents(self.dearer_by_micros)} dearer than {self.than}"


# --- time -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MissesDeadline(Reason):
    """The option would end too late, or too probably so."""

    code: ClassVar[str] = "misses_deadline"
    late_by_s: float
    probability: float

    def __str__(self) -> str:
        if self.late_by_s > 0:
            return f"would end {format_duration(round(self.late_by_s))} after the deadline"
        return f"misses the deadline with probability {self.probability:.0%}"


@dataclass(frozen=True, slots=True)
class WaitsForSpot(Reason):
    """There is time before the deadline to wait until spot can be had again."""

    code: ClassVar[str] = "waits_for_spot"
    offer: str
    saves_micros: int

    def __str__(self) -> str:
        return (
            f"waits for {self.offer}: the deadline allows it, and that is expected to cost"
            f" ${cents(self.saves_micros)} less than on-demand to the end"
        )


@dataclass(frozen=True, slots=True)
class EndangersDeadline(Reason):
    """On spot the deadline could no longer be met for certain once it is taken."""

    code: ClassVar[str] = "endangers_deadline"

    def __str__(self) -> str:
        return "if spot were taken, on-demand could no longer meet the deadline"


@dataclass(frozen=True, slots=True)
class NoticeTooShort(Reason):
    """A spot machine would be taken before the job could save its work."""

    code: ClassVar[str] = "notice_too_short"
    notice_s: float
    checkpoint_s: float

    def __str__(self) -> str:
        return (
            f"notice of {format_duration(round(self.notice_s, 1))} is shorter than a checkpoint"
            f" ({format_duration(round(self.checkpoint_s, 1))})"
        )


@dataclass(frozen=True, slots=True)
class InterruptedTooOften(Reason):
    """At this interruption rate the job would hardly get anywhere."""

    code: ClassVar[str] = "interrupted_too_often"
    per_hour: float

    def __str__(self) -> str:
        return f"interrupted {self.per_hour:g} times an hour: it would hardly get anywhere"


@dataclass(frozen=True, slots=True)
class CannotCheckpoint(Reason):
    """A job that would lose all its work, and has not accepted that."""

    code: ClassVar[str] = "cannot_checkpoint"

    def __str__(self) -> str:
        return "the job cannot checkpoint and has not accepted a restart (retries.on_spot_restart)"


@dataclass(frozen=True, slots=True)
class WalltimeTooShort(Reason):
    """On this hardware the job would be cut off by its own walltime."""

    code: ClassVar[str] = "walltime_too_short"
    needed_s: float
    walltime_s: float

    def __str__(self) -> str:
        return (
            f"would need {format_duration(round(self.needed_s))} there; walltime is"
            f" {format_duration(round(self.walltime_s))}"
        )


@dataclass(frozen=True, slots=True)
class WaitingForGpus(Reason):
    """It fits, others hold the devices; ``start_p50_in_s`` is expected. ``lacking`` says what it
    is where GPUs would be free."""

    code: ClassVar[str] = "waiting_for_gpus"
    pool: str
    start_p50_in_s: float
    ahead: int
    lacking: str = ""

    def __str__(self) -> str:
        return (
            f"waits for {self.lacking or 'GPUs'} in {self.pool}, expected in"
            f" {format_duration(round(self.start_p50_in_s))} ({self.ahead} ahead)"
        )


@dataclass(frozen=True, slots=True)
class WaitingForInstance(Reason):
    """Others hold the MIG instances of its profile. ``where`` says where there is ``room`` for
    another, or, where there is none, which positions the GPUs have for it."""

    code: ClassVar[str] = "waiting_for_mig_instance"
    pool: str
    start_p50_in_s: float
    ahead: int
    profile: str
    instances: int
    room: bool
    where: tuple[str, ...]

    def __str__(self) -> str:
        several = (
            f"one of the {self.instances} MIG instances"
            if self.instances != 1
            else ("the only MIG instance")
        )
        told = "; ".join(self.where)
        words = ""
        if told:
            words = (
                f"; there is room for another on {told}"
                if self.room
                else (f"; there is room for no other: {told}")
            )
        return (
            f"waits for {several} of {self.profile} in {self.pool}, expected in"
            f" {format_duration(round(self.start_p50_in_s))} ({self.ahead} ahead){words}"
        )


@dataclass(frozen=True, slots=True)
class WaitingForMachine(Reason):
    """A machine has been asked for and is not there yet."""

    code: ClassVar[str] = "waiting_for_machine"
    claims: tuple[str, ...]
    ready_in_s: float

    def __str__(self) -> str:
        return (
            f"{len(self.claims)} machine(s) asked for, expected in"
            f" {format_duration(round(self.ready_in_s))}"
        )


@dataclass(frozen=True, slots=True)
class BackingOff(Reason):
    """It failed; the next try is later."""

    code: ClassVar[str] = "backing_off"
    retry_in_s: float
    failures: int

    def __str__(self) -> str:
        wait = format_duration(round(self.retry_in_s))
        return f"failed {self.failures} time(s); next try in {wait}"


@dataclass(frozen=True, slots=True)
class ClassNotAllowed(Reason):
    """The team may not use this priority class, or there is none of that name."""

    code: ClassVar[str] = "class_not_allowed"
    priority: str
    allowed: tuple[str, ...]

    def __str__(self) -> str:
        return f"priority {self.priority!r} is not one of: {', '.join(self.allowed)}"


@dataclass(frozen=True, slots=True)
class DeadlineInThePast(Reason):
    """Asked for by a time that has gone by."""

    code: ClassVar[str] = "deadline_in_the_past"
    by_s: float

    def __str__(self) -> str:
        return f"the deadline passed {format_duration(round(self.by_s))} ago"


@dataclass(frozen=True, slots=True)
class Nowhere(Reason):
    """All constraints together leave no place; ``because`` has each place's own reason."""

    code: ClassVar[str] = "nowhere"
    because: tuple[str, ...]

    def __str__(self) -> str:
        return "no place satisfies all constraints: " + "; ".join(self.because)


# --- the policy's rules -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BudgetClosed(Reason):
    """A threshold of the budget is reached at which nothing new is asked for."""

    code: ClassVar[str] = "budget_closed"
    budget: str
    used: float
    threshold: float

    def __str__(self) -> str:
        return (
            f"budget {self.budget} is used to {self.used:.0%}; from {self.threshold:.0%} on"
            " no new machine is asked for"
        )


@dataclass(frozen=True, slots=True)
class SwitchedOff(Reason):
    """The policy has this section switched off."""

    code: ClassVar[str] = "switched_off"
    section: str

    def __str__(self) -> str:
        return f"the policy has {self.section} switched off"


@dataclass(frozen=True, slots=True)
class QuietTime(Reason):
    """The policy asks for no machine at this time of day."""

    code: ClassVar[str] = "quiet_time"
    start: str
    until: str
    timezone: str

    def __str__(self) -> str:
        return f"quiet hours, {self.start} to {self.until} {self.timezone}"


@dataclass(frozen=True, slots=True)
class KeptForOthers(Reason):
    """The policy reserves these devices for other teams or classes."""

    code: ClassVar[str] = "kept_for_others"
    gpu_model: str
    kept_for: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.gpu_model} is reserved for {', '.join(self.kept_for)}"


@dataclass(frozen=True, slots=True)
class NotAMember(Reason):
    """The team lists who may submit for it."""

    code: ClassVar[str] = "not_a_member"
    user: str
    team: str

    def __str__(self) -> str:
        return f"{self.user} is not a member of team {self.team}"


@dataclass(frozen=True, slots=True)
class DoesNotPreempt(Reason):
    """The class does not preempt, or its rank is not above the victim's."""

    code: ClassVar[str] = "does_not_preempt"
    priority: str
    victim_priority: str

    def __str__(self) -> str:
        return f"priority {self.priority} does not preempt priority {self.victim_priority}"


@dataclass(frozen=True, slots=True)
class TooYoung(Reason):
    """The run has not been there long enough to be moved or stopped."""

    code: ClassVar[str] = "too_young"
    age_s: float
    least_s: float

    def __str__(self) -> str:
        return (
            f"has run for {format_duration(round(self.age_s))}; it is left alone for"
            f" {format_duration(round(self.least_s))}"
        )


@dataclass(frozen=True, slots=True)
class AlreadyStopping(Reason):
    """The run is on its way out, or over."""

    code: ClassVar[str] = "already_stopping"
    run: str

    def __str__(self) -> str:
        return f"run {self.run} is stopping already"


@dataclass(frozen=True, slots=True)
class WaitedTooLong(Reason):
    """The victim was past its class's longest wait when it began: it is not sent back."""

    code: ClassVar[str] = "waited_too_long"
    waited_s: float
    max_wait_s: float

    def __str__(self) -> str:
        return (
            f"began after waiting {format_duration(round(self.waited_s))}, longer than its class's"
            f" {format_duration(round(self.max_wait_s))}: it is not sent back"
        )


@dataclass(frozen=True, slots=True)
class Guaranteed(Reason):
    """Stopping the run would leave its team below what it is guaranteed."""

    code: ClassVar[str] = "guaranteed"
    team: str
    guaranteed_gpus: int
    left_gpus: int

    def __str__(self) -> str:
        return (
            f"team {self.team} is guaranteed {self.guaranteed_gpus} GPUs and would be left with"
            f" {self.left_gpus}"
        )


@dataclass(frozen=True, slots=True)
class TooMuchPreempted(Reason):
    """The policy's bound on work thrown away in one hour."""

    code: ClassVar[str] = "too_much_preempted"
    lost_gpu_hours: float
    left_gpu_hours: float

    def __str__(self) -> str:
        return (
            f"would throw {self.lost_gpu_hours:.1f} GPU-hours of work away; the policy leaves"
            f" {max(0.0, self.left_gpu_hours):.1f} in this hour"
        )


@dataclass(frozen=True, slots=True)
class NotIdleYet(Reason):
    """The machine has not been idle for long enough to be ended."""

    code: ClassVar[str] = "not_idle_yet"
    idle_s: float
    idle_after_s: float

    def __str__(self) -> str:
        return (
            f"idle for {format_duration(round(self.idle_s))}; it ends after"
            f" {format_duration(round(self.idle_after_s))}"
        )


@dataclass(frozen=True, slots=True)
class InUse(Reason):
    """The machine is in use, or not there yet."""

    code: ClassVar[str] = "in_use"
    what: str

    def __str__(self) -> str:
        return f"{self.what} is in use or not there yet"


@dataclass(frozen=True, slots=True)
class GpusUnhealthy(Reason):
    """So many of a node's devices do not work that the node takes no new runs."""

    code: ClassVar[str] = "gpus_unhealthy"
    broken: int
    gpus: int
    first: str

    def __str__(self) -> str:
        why = f": {self.first}" if self.first else ""
        return f"{self.broken} of {self.gpus} GPUs do not work{why}"


@dataclass(frozen=True, slots=True)
class FailsJobs(Reason):
    """So many jobs have failed on a node that it takes no new runs."""

    code: ClassVar[str] = "fails_jobs"
    jobs: int

    def __str__(self) -> str:
        return f"{self.jobs} jobs have failed on it and go elsewhere"


@dataclass(frozen=True, slots=True)
class RuleObjects(Reason):
    """A rule that the policy names does not let the job start now."""

    code: ClassVar[str] = "rule_objects"
    rule: str
    words: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.words}"


@dataclass(frozen=True, slots=True)
class RuleFailed(Reason):
    """A rule that the policy names could not be asked: what it might forbid does not start."""

    code: ClassVar[str] = "rule_failed"
    rule: str
    words: str

    def __str__(self) -> str:
        return f"rule {self.rule} could not be asked: {self.words}"
