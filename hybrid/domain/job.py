"""A job: a spec and a state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from hybrid.domain.ids import JobId, NodeId, PoolName
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.domain.transitions import Step, TransitionTable


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    PLACED = "placed"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to the job any more."""
        return self in _ENDED


_ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})

JOB_TRANSITIONS: TransitionTable[JobState] = TransitionTable(
    "job",
    {
        JobState.PENDING: frozenset({JobState.PLACED, JobState.FAILED, JobState.CANCELLED}),
        JobState.PLACED: frozenset({JobState.RUNNING, JobState.PENDING, JobState.STOPPING}),
        JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPING}),
        JobState.STOPPING: frozenset({JobState.PENDING, *_ENDED}),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset(),
        JobState.CANCELLED: frozenset(),
    },
)


class StopCause(StrEnum):
    """Why a run is stopped, from the mildest to the hardest: of two at once the harder wins.

    ``consolidate``: its machine in a cloud is given up, and it goes on on another that is held
    anyway. ``peer_failed``: another rank of the gang has ended by itself, so this one has no more
    to do.
    """

    RETURN = "return"
    CONSOLIDATE = "consolidate"
    PREEMPT = "preempt"
    DRAIN = "drain"
    LEASE = "lease"
    INTERRUPTION = "interruption"
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    PEER_FAILED = "peer_failed"
    NODE_LOST = "node_lost"

    @property
    def moves(self) -> bool:
        """Whether the job is to go on elsewhere as soon as it can, because its machine is taken or
        given up.

        Its next place is chosen, and a machine asked for, while the old one still runs."""
        return self in (StopCause.INTERRUPTION, StopCause.CONSOLIDATE)

    @property
    def hardness(self) -> int:
        """Position in the order of hardness; larger is harder."""
        return list(StopCause).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a job says of itself: ``step`` of ``total`` (0 when unknown), when it said so."""

    step: int
    total: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint: its number, the job's step in it, and what committing it took."""

    seq: int
    step: int
    committed_at: float
    size_bytes: int
    commit_s: float
    work_s: float = 0.0
    """Seconds of work on the reference GPU that need not be done again."""
    total: int = 0
    """Steps of the whole job by its own word; 0 when it has not said."""
    gpu_model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPlace:
    """Where a run of a job failed: the pool, and in a cloud the market."""

    pool: PoolName
    market: Market | None = None

    def __str__(self) -> str:
        return self.pool if self.market is None else f"{self.pool} ({self.market})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a user asked for, and where it stands.

    ``attempts`` counts runs begun; ``failures`` those that ended by the job's own fault.
    ``not_before`` holds a retry back. ``cost_micros`` is what its runs in clouds have cost so far.
    """

    id: JobId
    spec: JobSpec
    team: str
    user: str
    state: JobState
    submitted_at: float
    queued_at: float
    """When it last became pending: waiting is counted from here, age from ``submitted_at``."""
    attempts: int = 0
    failures: int = 0
    not_before: float = 0.0
    avoid_nodes: tuple[NodeId, ...] = ()
    failed_at: tuple[FailedPlace, ...] = ()
    """The place of each of its last failures, the latest last."""
    claims_opened: int = 0
    stop_cause: StopCause | None = None
    cancel_requested: bool = False
    checkpoint: Checkpoint | None = None
    exit_code: int | None = None
    reason: str = ""
    ended_at: float | None = None
    cost_micros: int = 0
    history: tuple[Step, ...] = ()
    version: int = 0

    def resumes_on(self, gpu_model: str) -> Checkpoint | None:
        """The checkpoint that a run on a GPU model goes on from; None where it begins anew: there
        is none, or it is from another model and not portable. Both may be without a GPU ("")."""
        saved = self.checkpoint
        if saved is None or self.spec.checkpoint.portable:
            return saved
        return saved if saved.gpu_model in ("", gpu_model) else None

    def to(self, state: JobState, *, at: float, cause: str = "", **changes: Any) -> Self:
        """This job in another state; raises InvalidTransition."""
        history = JOB_TRANSITIONS.step(
            self.id, self.state, state, at=at, cause=cause, history=self.history
        )
        if state.ended:
            changes.setdefault("ended_at", at)
        if state is JobState.PENDING:
            changes.setdefault("queued_at", at)
        return replace(self, state=state, history=history, **changes)
