"""The port to what runs jobs on nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hybrid.domain.ids import ClaimId, GpuId, JobId, MachineId, NodeId, PoolName, RunId
from hybrid.domain.job import Checkpoint, Job, Progress, StopCause
from hybrid.domain.node import Gpu, Node, PartedGpu
from hybrid.domain.run import Run

ORDER_KEPT_PART = 0.5
"""For how long an order may still be begun, as a part of the node's run lease, counted from the
run's ``assigned_at``. A node that cannot be heard is given up after a whole lease: an order that it
finds when it is back must not begin a run that somebody else has by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node as its engine sees it. ``heard_at`` is the server's receipt of its last heartbeat.

    ``run_lease_s`` is for how long the node goes on with its runs without hearing from us.
    """

    id: NodeId
    pool: PoolName
    hostname: str
    heard_at: float
    run_lease_s: float
    address: str = ""
    claim_id: ClaimId | None = None
    machine_id: MachineId | None = None
    gpus: tuple[Gpu, ...] = ()
    links_gbps: tuple[tuple[float, ...], ...] = ()
    parted: tuple[PartedGpu, ...] = ()
    cpus: float = 1
    memory_gib: float = 1
    architecture: str = "x86_64"
    container_runtimes: tuple[str, ...] = ()
    block: str = ""
    rack: str = ""
    boot_id: str = ""
    notice_at: float | None = None
    """When the machine's own metadata says it will be taken."""
    rebalance_at: float | None = None
    """Since when its metadata recommends to leave it: a hint."""
    closing: bool = False
    """Its agent is ending: it stops what it runs and begins nothing."""
    left: bool = False
    """The node said goodbye: nothing of ours runs there any more."""


class RankPhase(StrEnum):
    """How far one rank of a run has come on its node."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What a node says of its part of a run. Delivered at least once, applied once."""

    run_id: RunId
    rank: int
    node_id: NodeId
    phase: RankPhase
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    """The process's exit code; negative for a signal; None while it lives, or when it never
    started (then ``problem`` says why)."""
    cause: StopCause | None = None
    stop_s: float = 0.0
    problem: str = ""
    tail: str = ""
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_problem: str = ""
    """Why what it saves is not committed now, what is wrong up to a colon; empty while it is."""
    first_step: int | None = None
    outputs: str = ""
    """Digest of the archive of the named outputs, once they are in the artifact store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What an engine needs to start a run."""

    run: Run
    job: Job
    nodes: tuple[Node, ...]
    """In rank order; rank 0's address is the gang's master."""
    epoch: int


class WorkloadRuntime(Protocol):
    """An engine. Start, stop, cordon and uncordon are idempotent; errors as in
    :mod:`hybrid.ports.errors`."""

    @property
    def name(self) -> str:
        """What pools call it."""
        ...

    def inventory(self) -> tuple[NodeReport, ...]:
        """Every node of the engine that is known, heard of lately or not."""
        ...

    def list_runs(self) -> tuple[RankReport, ...]:
        """Every rank that the nodes know of and whose end has not been acknowledged."""
        ...

    def start(self, order: RunOrder) -> None:
        """Bring a run to its nodes. Returns once it is sure to be delivered, if the node comes for
        it in time: past :data:`ORDER_KEPT_PART` of the run lease nobody begins it any more."""
        ...

    def stop(self, run_id: RunId, cause: StopCause, grace_s: float, epoch: int) -> None:
        """Stop a run: signal, grace, kill. A second stop can only be harder and shorter."""
        ...

    def acknowledge(self, run_id: RunId) -> None:
        """The end of a run has been applied: nodes may forget it."""
        ...

    def forget(self, node_id: NodeId) -> None:
        """The node's machine is gone for good: it need not be listed any more."""
        ...

    def cordon(self, node_id: NodeId, words: str, epoch: int) -> None:
        """Let nothing else start on the node."""
        ...

    def uncordon(self, node_id: NodeId, epoch: int) -> None:
        """Take new runs again."""
        ...

    def extend_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """Tell a burst machine for how long it is paid: past that it ends itself."""
        ...

    def logs(self, job_id: JobId, run_id: RunId, rank: int, *, offset: int = 0) -> Iterator[bytes]:
        """What the run has printed so far, from a byte offset on."""
        ...


__all__ = [
    "GpuId",
    "NodeReport",
    "RankPhase",
    "RankReport",
    "RunOrder",
    "WorkloadRuntime",
]
