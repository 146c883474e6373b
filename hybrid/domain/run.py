"""A run: one attempt of a job on one placement. A job has at most one live run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from hybrid.domain.ids import ClaimId, JobId, NodeId, PoolName, RunId
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.node import Slot
from hybrid.domain.transitions import Step, TransitionTable
from hybrid.hardware import part_of_gpu


class RunState(StrEnum):
    """``assigned`` holds its slots; ``starting`` is known to the node; ``ended`` holds nothing."""

    ASSIGNED = "assigned"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


RUN_TRANSITIONS: TransitionTable[RunState] = TransitionTable(
    "run",
    {
        RunState.ASSIGNED: frozenset({RunState.STARTING, RunState.STOPPING, RunState.ENDED}),
        RunState.STARTING: frozenset({RunState.RUNNING, RunState.STOPPING, RunState.ENDED}),
        RunState.RUNNING: frozenset({RunState.STOPPING, RunState.ENDED}),
        RunState.STOPPING: frozenset({RunState.ENDED}),
        RunState.ENDED: frozenset(),
    },
)

EXIT_CHECKPOINTED = 85
"""The exit code by which a job says: checkpointed, run me again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt. ``slots[rank]`` is what node ``rank`` of the gang holds.

    ``speed`` is the run's speed relative to the reference GPU; ``expected_end_at`` the planner's
    expectation when it was placed. ``price_micros_per_hour`` is of all its machines (0 at home).
    """

    id: RunId
    job_id: JobId
    attempt: int
    state: RunState
    pool: PoolName
    engine: str
    slots: tuple[Slot, ...]
    assigned_at: float
    epoch: int = 0
    claim_ids: tuple[ClaimId, ...] = ()
    market: Market | None = None
    """How its machines in a cloud are bought; None at home."""
    gpu_model: str = ""
    speed: float = 1.0
    price_micros_per_hour: int = 0
    expected_end_at: float | None = None
    resume_seq: int | None = None
    checkpoint_interval_s: float = 0.0
    """How often it saves, as the job says or as was worked out; 0 for one that does not."""
    start_attempts: int = 0
    started_at: float | None = None
    stop_cause: StopCause | None = None
    stop_requested_at: float | None = None
    stop_by: float | None = None
    """When the whole stop must be over: the grace, or the notice if that is shorter."""
    ended_at: float | None = None
    exit_code: int | None = None
    first_step: int | None = None
    unnamed_since: float | None = None
    """Since when a node that is heard has not named a rank of the run that had begun there."""
    checkpoint_problem: str = ""
    """Why what the job saves is not safe now, in words that begin with what is wrong up to a colon;
    empty while its saves are committed."""
    outputs: tuple[str, ...] = ()
    """Digests of the archives of its named outputs, by rank; empty where there are none."""
    history: tuple[Step, ...] = ()
    version: int = 0

    @property
    def live(self) -> bool:
        """Whether the run holds its slots."""
        return self.state is not RunState.ENDED

    def age_s(self, now: float) -> float:
        """How long it has run; before it begins, how long it has had its slots. Negative where the
        node's clock is ahead."""
        return now - (self.assigned_at if self.started_at is None else self.started_at)

    @property
    def moving(self) -> bool:
        """Whether the run is being stopped only to go on elsewhere: its machine is taken, or given
        up."""
        stopping = self.state is RunState.STOPPING
        return stopping and self.stop_cause is not None and self.stop_cause.moves

    @property
    def gpus(self) -> float:
        """GPUs that it holds, shares and MIG instances counted as the parts that they are."""
        held = sum(len(slot.gpu_ids) * slot.share for slot in self.slots)
        return held * part_of_gpu(self.gpu_model)

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The nodes it runs on, in rank order."""
        return tuple(slot.node_id for slot in self.slots)

    def entered(self, at: float) -> Self:
        """This run with its first state on record."""
        words = f"attempt {self.attempt} in {self.pool}"
        return replace(self, history=(Step(self.state, at, words),))

    def to(self, state: RunState, *, at: float, cause: str = "", **changes: Any) -> Self:
        """This run in another state; raises InvalidTransition."""
        history = RUN_TRANSITIONS.step(
            self.id, self.state, state, at=at, cause=cause, history=self.history
        )
        if state is RunState.ENDED:
            changes.setdefault("ended_at", at)
        return replace(self, state=state, history=history, **changes)
