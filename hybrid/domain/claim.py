"""A claim: our intent to hold one cloud machine. It exists before the machine does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from hybrid.domain.ids import ClaimId, JobId, MachineId, NodeId, PoolName
from hybrid.domain.offer import Offer
from hybrid.domain.transitions import Step, TransitionTable


class ClaimState(StrEnum):
    """Where a claim stands; ``failed`` only on a definite refusal."""

    REQUESTED = "requested"
    BOOTING = "booting"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    LOST = "lost"
    TERMINATING = "terminating"
    FAILED = "failed"
    GONE = "gone"

    @property
    def over(self) -> bool:
        """Whether no machine can come of it or is left of it."""
        return self in (ClaimState.FAILED, ClaimState.GONE)


_C = ClaimState
CLAIM_TRANSITIONS: TransitionTable[ClaimState] = TransitionTable(
    "claim",
    {
        _C.REQUESTED: frozenset({_C.BOOTING, _C.TERMINATING, _C.FAILED}),
        _C.BOOTING: frozenset({_C.READY, _C.TERMINATING, _C.LOST}),
        _C.READY: frozenset({_C.CORDONED, _C.DRAINING, _C.TERMINATING, _C.LOST}),
        _C.CORDONED: frozenset({_C.READY, _C.DRAINING, _C.TERMINATING, _C.LOST}),
        _C.DRAINING: frozenset({_C.READY, _C.TERMINATING, _C.LOST}),
        _C.LOST: frozenset({_C.TERMINATING, _C.GONE}),
        _C.TERMINATING: frozenset({_C.GONE}),
        _C.FAILED: frozenset(),
        _C.GONE: frozenset(),
    },
)


@dataclass(frozen=True, slots=True)
class PriceStep:
    """From ``at`` on a machine costs so much an hour."""

    at: float
    micros_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bargain:
    """What was weighed when a machine was asked for, in micro-dollars, one machine's part of it.

    ``waiting`` is the cost of the best place at home with the value of the time until the job is
    done, ``cloud`` the same of the machine (less the waits it shortens for others), of which
    ``paid`` goes to the cloud.
    """

    waiting_micros: int
    cloud_micros: int
    paid_micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One request for one offer. Another offer is another claim.

    ``request`` is the complete provider request, stored before the call and repeated byte for
    byte under ``token``. ``gang`` groups the machines of one multi-node job: all or none.
    ``lease_until`` is how long the machine is paid for; ``held_micros`` the money held for that.
    """

    id: ClaimId
    pool: PoolName
    offer: Offer
    state: ClaimState
    token: str
    request: str
    requested_at: float
    team: str
    user: str
    job_id: JobId
    gang: str = ""
    launch_attempts: int = 0
    last_attempt_at: float | None = None
    absent_since: float | None = None
    """When a complete listing first did not show the machine (eventual consistency: one is not
    enough)."""
    machine_id: MachineId | None = None
    node_id: NodeId | None = None
    launched_at: float | None = None
    """When the machine came to be, by the cloud's own clock."""
    boot_deadline_at: float | None = None
    ready_at: float | None = None
    idle_since: float | None = None
    lease_until: float = 0.0
    lease_sent_until: float = 0.0
    """The lease that the machine has been told of (the receipt of that call)."""
    held_micros: int = 0
    charged_micros: int = 0
    notice_at: float | None = None
    """When the provider said it will take the machine."""
    rebalance_at: float | None = None
    """Since when the provider recommends to leave the machine. A hint: nothing is stopped for it,
    and new work goes elsewhere where that costs no more."""
    terminate_attempts: int = 0
    ended_at: float | None = None
    """When the machine ended, by the cloud's own clock where it tells."""
    price_steps: tuple[PriceStep, ...] = ()
    """Prices that came into force while the machine lived, oldest first; its offer's before."""
    bargain: Bargain | None = None
    """None where there was nothing to weigh it against: no place at home would do."""
    cause: str = ""
    console: str = ""
    history: tuple[Step, ...] = ()
    version: int = 0

    def entered(self, at: float) -> Self:
        """This claim with its first state on record."""
        return replace(self, history=(Step(self.state, at, f"for {self.job_id}"),))

    def to(self, state: ClaimState, *, at: float, cause: str = "", **changes: Any) -> Self:
        """This claim in another state; raises InvalidTransition."""
        history = CLAIM_TRANSITIONS.step(
            self.id, self.state, state, at=at, cause=cause, history=self.history
        )
        if cause:
            changes.setdefault("cause", cause)
        return replace(self, state=state, history=history, **changes)
