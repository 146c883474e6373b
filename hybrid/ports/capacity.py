"""The port to a cloud's machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool


class MachineState(StrEnum):
    """What the cloud says of a machine."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    """Halted but not ended, by somebody's hand: it runs nothing, and still has to be ended."""
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine tagged as ours, as its cloud lists it. Times are the cloud's own."""

    id: MachineId
    claim_id: ClaimId | None
    token: str
    state: MachineState
    zone: str
    machine_type: str
    market: Market
    launched_at: float
    ended_at: float | None = None
    address: str = ""
    end_reason: str = ""
    interrupted: bool = False
    """Whether its provider took it, as against its having been ended."""


class NoticeKind(StrEnum):
    """``interruption`` will happen; ``rebalance`` is a hint and drains nothing by itself."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The provider's word that it takes a machine at ``at``, or, for a hint, that since ``at`` it
    may sooner than others. May come late, twice or for nobody."""

    machine_id: MachineId
    kind: NoticeKind
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BootInfo:
    """What a machine must know to join: the same for all claims of an installation."""

    installation: str
    server_url: str
    checkpoint_url: str
    server_ca_pem: str = ""


@dataclass(frozen=True, slots=True)
class Offers:
    """Offers of the pools asked for, and those that were ignored, each with the reason."""

    usable: tuple[Offer, ...]
    ignored: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One thing that a provider's credentials must be allowed to do, and whether they are.

    ``granted`` is None where it could not be told without doing it; ``words`` say why.
    """

    name: str
    what_for: str
    granted: bool | None
    words: str = ""


@runtime_checkable
class Examined(Protocol):
    """A provider that can tell what its credentials allow, without changing anything."""

    def permissions(self, pools: Sequence[BurstPool]) -> tuple[Permission, ...]:
        """Every permission that is needed; for those of launching, tried with these pools. Raises
        PortError when the cloud cannot be asked at all."""
        ...


@runtime_checkable
class Queued(Protocol):
    """A provider whose notices lie in a queue, which keeps them until it is told that they need be
    kept no longer: what a crash takes from us comes again."""

    def recorded(self, notices: Sequence[Notice]) -> None:
        """These are in the store, or concern nobody here. Calls nobody, may be told twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that bears our tag, was made for a machine or a gang, and is used by nothing.

    ``kind`` is the cloud's word for it; ``place`` is where it is, as the cloud needs it told.
    """

    kind: str
    id: str
    place: str = ""
    claim_id: ClaimId | None = None
    gang: str = ""


@runtime_checkable
class Sweeping(Protocol):
    """A provider that makes more than machines, or whose machines may leave something behind."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """What is ours and used by nothing now; complete or an error. What was made for a machine
        that is on its way may be among it."""
        ...

    def remove(self, leftover: Leftover) -> None:
        """Remove it. Raises InUse where something uses it all the same, Gone where it is not
        there."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A provider that does something by itself and must be told to end."""

    def close(self) -> None:
        """End what goes on by itself. Twice is as once."""
        ...


class CapacityProvider(Protocol):
    """A cloud account in one region. Every method may raise the errors of
    :mod:`hybrid.ports.errors`; whatever is not mapped is ``OutcomeUnknown``."""

    @property
    def name(self) -> str:
        """What pools call it."""
        ...

    @property
    def token_validity_s(self) -> float:
        """For how long repeating a request under its token cannot make a second machine."""
        ...

    def offers(self, pools: Sequence[BurstPool]) -> Offers:
        """What the pools could get now."""
        ...

    def list_machines(self) -> tuple[Machine, ...]:
        """Every machine tagged with this installation, recently ended ones included.

        Complete or an error, never a part.
        """
        ...

    def prepare(self, claim: Claim, pool: BurstPool, boot: BootInfo) -> str:
        """The complete launch request for a claim, as JSON text. Pure: no I/O, no secret in it.

        Where the join token belongs it holds a placeholder that ``launch`` fills in.
        """
        ...

    def launch(self, request: str, join_token: str) -> Machine:
        """Make the machine of a prepared request. Repeating it under the same token returns the
        same machine."""
        ...

    def terminate(self, machine_id: MachineId) -> None:
        """End a machine and what belongs to it. Ending one that has ended is a success."""
        ...

    def notices(self) -> tuple[Notice, ...]:
        """Interruptions that the cloud tells of; what machines hear comes from their agents."""
        ...

    def console(self, machine_id: MachineId) -> str:
        """The machine's console output (the last 64 KiB), for a machine that never joined."""
        ...
