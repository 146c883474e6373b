"""Machines, their devices, what connects them, and the slots runs hold on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from hybrid.domain.ids import ClaimId, GpuId, NodeId, PoolName
from hybrid.domain.transitions import Step, TransitionTable


class NodeState(StrEnum):
    """``ready`` takes new runs; ``cordoned`` finishes what it has; ``lost`` is beyond its lease;
    ``gone`` has left for good."""

    READY = "ready"
    CORDONED = "cordoned"
    LOST = "lost"
    GONE = "gone"


NODE_TRANSITIONS: TransitionTable[NodeState] = TransitionTable(
    "node",
    {
        NodeState.READY: frozenset({NodeState.CORDONED, NodeState.LOST, NodeState.GONE}),
        NodeState.CORDONED: frozenset({NodeState.READY, NodeState.LOST, NodeState.GONE}),
        NodeState.LOST: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.GONE}),
        NodeState.GONE: frozenset(),
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """What a device that is a MIG instance is part of.

    It takes ``size`` memory slices of the GPU ``parent`` from ``start`` on: those of the GPU
    instance with the number ``number``, whose compute instances, if there are several, share them.
    None for what the node's agent may not ask.
    """

    parent: GpuId
    number: int | None = None
    start: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigRoom:
    """Memory slices at which one more instance of a profile could begin now."""

    profile: str
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedGpu:
    """A GPU in MIG mode: it is no device itself, its instances are. ``room`` has the profiles that
    would still fit, smallest first."""

    id: GpuId
    index: int
    model: str
    room: tuple[MigRoom, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. ``memory_gib`` is what a program can use, not what the box says. ``mig`` says
    where on its GPU a MIG instance is."""

    id: GpuId
    index: int
    model: str
    memory_gib: float
    numa: int = 0
    healthy: bool = True
    health_reason: str = ""
    virtual: bool = False
    mig: MigInstance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that has joined.

    ``links_gbps[i][j]`` is the bandwidth between devices ``i`` and ``j`` (positions in ``gpus``)
    in GB/s per direction; symmetric, diagonal 0. ``block`` and ``rack`` are network domains,
    empty when unknown.
    """

    id: NodeId
    pool: PoolName
    engine: str
    state: NodeState
    joined_at: float
    hostname: str = ""
    address: str = ""
    claim_id: ClaimId | None = None
    gpus: tuple[Gpu, ...] = ()
    links_gbps: tuple[tuple[float, ...], ...] = ()
    parted: tuple[PartedGpu, ...] = ()
    """GPUs in MIG mode, with or without instances."""
    cpus: float = 1
    memory_gib: float = 1
    architecture: str = "x86_64"
    container_runtimes: tuple[str, ...] = ()
    block: str = ""
    rack: str = ""
    boot_id: str = ""
    cordon_cause: str = ""
    drain_by: float | None = None
    """While it is being emptied: when it is to be empty."""
    cordon_sent: bool = False
    """Whether the engine has been told of the cordon (the receipt of that call)."""
    history: tuple[Step, ...] = ()
    version: int = 0

    def to(self, state: NodeState, *, at: float, cause: str = "") -> Self:
        """This node in another state; raises InvalidTransition."""
        history = NODE_TRANSITIONS.step(
            self.id, self.state, state, at=at, cause=cause, history=self.history
        )
        cordon_cause = cause if state is NodeState.CORDONED else self.cordon_cause
        drain_by = self.drain_by
        if state is NodeState.READY:
            cordon_cause, drain_by = "", None
        return replace(
            self, state=state, history=history, cordon_cause=cordon_cause, drain_by=drain_by
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What one run holds on one node: whole GPUs, or a share of one.

    ``share`` is the fraction of the single GPU in ``gpu_ids``; 1 when the devices are held whole.
    ``gpu_memory_gib`` is how much of that GPU's memory goes with a share; None for whole devices.
    ``replicas`` is into how many the GPU is time-sliced of which the run holds one; 1: it is not.
    ``gpu_ids`` is in rank order (link order), and empty for a CPU job.
    """

    node_id: NodeId
    gpu_ids: tuple[GpuId, ...] = ()
    share: float = 1.0
    cpus: float = 1
    memory_gib: float = 1
    min_link_gbps: float | None = None
    mig_profile: str | None = None
    gpu_memory_gib: float | None = None
    replicas: int = 1
