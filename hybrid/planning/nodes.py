"""The nodes that take new runs, and those of them on which a job runs equally well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import JobId, NodeId, PoolName
from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.node import Node, NodeState
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.fit import Shape, node_facts, node_shape
from hybrid.planning.replicas import replicas_in


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


@dataclass(slots=True)
class Nodes:
    """All nodes that take new runs, by type. ``members`` are positions in ``views``, by type."""

    types: list[NodeType] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    views: list[NodeView] = field(default_factory=list)
    index: dict[NodeId, int] = field(default_factory=dict)


def group_nodes(snapshot: Snapshot, owner_of: Callable[[Claim], Job | None]) -> Nodes:
    """The nodes of a snapshot; ``owner_of`` tells which pending job a machine is kept for."""
    found = Nodes()
    shapes: dict[tuple[object, ...], Shape] = {}
    types: dict[tuple[object, ...], NodeType] = {}
    for _, node in sorted(snapshot.nodes.items()):
        claim = None if node.claim_id is None else snapshot.claims.get(node.claim_id)
        if not _takes_runs(snapshot, node, claim):
            continue
        pool = local_pool(snapshot, node.pool)
        replicas = 1 if claim is not None else replicas_in(pool)
        raw = node_facts(node, replicas)
        shape = shapes.get(raw)
        if shape is None:
            shape = shapes[raw] = node_shape(node, replicas)
        if claim is not None:
            rate = claim.offer.price_micros_per_hour
        else:
            rate = rate_of(pool) if pool is not None else 0
        # a held machine is of a type of its own: what is paid already differs
        gang = (claim.gang or str(claim.id)) if claim is not None else ""
        key = (id(shape), node.pool, node.engine, claim is not None, gang, rate)
        type_ = types.get(key)
        if type_ is None:
            type_ = types[key] = NodeType(
                len(found.types), shape, node.pool, node.engine, claim is not None, gang, rate
            )
            found.types.append(type_)
            found.members.append([])
        view = NodeView(len(found.views), node, type_, claim)
        if claim is not None:
            owner = owner_of(claim)
            view.kept_for = owner.id if owner is not None else None
        found.index[node.id] = view.index
        found.views.append(view)
        found.members[type_.index].append(view.index)
    return found


def local_pool(snapshot: Snapshot, name: PoolName) -> LocalPool | None:
    """The pool document if it is an owned pool that is still there."""
    pool = snapshot.pools.get(name)
    spec = None if pool is None or pool.removed else pool.spec
    return spec if isinstance(spec, LocalPool) else None


def burst_pool(
    snapshot: Snapshot, name: PoolName, *, removed_too: bool = False
) -> BurstPool | None:
    """The pool document if it is a burst pool."""
    pool = snapshot.pools.get(name)
    if pool is None or (pool.removed and not removed_too):
        return None
    return pool.spec if isinstance(pool.spec, BurstPool) else None


def rate_of(pool: LocalPool) -> int:
    """Energy and wear of one GPU of an owned pool, micro-dollars per hour."""
    return to_micros(pool.rate_per_gpu_hour)


def _takes_runs(snapshot: Snapshot, node: Node, claim: Claim | None) -> bool:
    if node.state is not NodeState.READY or not snapshot.knows(f"engine:{node.engine}"):
        return False
    if node.claim_id is None:
        return local_pool(snapshot, node.pool) is not None
    return (
        claim is not None
        and claim.state is ClaimState.READY
        and claim.notice_at is None
        and burst_pool(snapshot, node.pool) is not None
    )
