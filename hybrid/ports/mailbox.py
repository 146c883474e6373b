"""The port through which the built-in engine talks with its nodes: over rows.

Nodes only dial out. What a node should be doing is a row; what it says it does is a row; a long
poll waits for the first to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.ports.engine import NodeReport, RankReport


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """One rank's order for one node. ``document`` is the JSON the agent acts on.

    ``stop`` is the JSON of a stop (cause, grace), empty while there is none.
    """

    run_id: RunId
    rank: int
    node_id: NodeId
    epoch: int
    document: str
    stop: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """All a node should know: a level, not an edge. ``revision`` changes when any of it does."""

    revision: int
    epoch: int
    orders: tuple[NodeOrder, ...]
    acknowledged: tuple[RunId, ...] = ()
    cordoned: bool = False
    lease_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeToken:
    """Who a node's token belongs to."""

    node_id: NodeId
    pool: PoolName
    claim_id: ClaimId | None


class NodeMailbox(Protocol):
    """Rows between the server and the nodes. Writes with an epoch below the row's are refused
    (EpochPassed)."""

    def join(self, report: NodeReport, token_sha256: str, *, join_sha256: str, at: float) -> bool:
        """Register a node under its own token. A join token that is used already is refused
        (False) unless it is the same node with the same token again."""
        ...

    def heard(
        self, report: NodeReport, ranks: tuple[RankReport, ...], *, at: float
    ) -> tuple[RunId, ...]:
        """Keep a heartbeat; returns the runs whose end has been applied and may be forgotten."""
        ...

    def node_of(self, token_sha256: str) -> NodeToken | None:
        """Whose token it is."""
        ...

    def work(self, node_id: NodeId) -> NodeWork:
        """What the node should be doing."""
        ...

    def nodes(self) -> tuple[NodeReport, ...]:
        """The last report of every node that has not been forgotten."""
        ...

    def ranks(self) -> tuple[RankReport, ...]:
        """The last report of every rank that has not been acknowledged."""
        ...

    def put_orders(self, orders: tuple[NodeOrder, ...]) -> None:
        """Write a run's orders; orders that are there already stay as they are."""
        ...

    def put_stop(self, run_id: RunId, stop: str, epoch: int) -> None:
        """Write the stop of a run's orders."""
        ...

    def acknowledge(self, run_id: RunId) -> None:
        """Drop the orders of a run whose end has been applied; tell its nodes to forget it."""
        ...

    def set_cordon(self, node_id: NodeId, cordoned: bool, epoch: int) -> None:
        """Write whether the node may start anything."""
        ...

    def set_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """Write until when the node's machine is paid for."""
        ...

    def forget(self, node_id: NodeId) -> None:
        """The node is gone for good: drop its rows and its token."""
        ...
