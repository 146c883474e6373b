"""Empties nodes for maintenance: no new runs at once, and what runs there is over in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.node import Node, NodeState
from hybrid.domain.pool_spec import LocalPool
from hybrid.domain.quantities import format_duration
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, Put, Store
from hybrid.services.errors import Conflict, NotFound, NotNow
from hybrid.services.live import Live
from hybrid.services.nodes import TRIES, Nodes, NodeUse


@dataclass(frozen=True, slots=True)
class Drain:
    """How far emptying has come: the nodes that are meant, with what still runs on each, and by
    when they are to be empty (None: nothing is being emptied)."""

    target: str
    nodes: tuple[NodeUse, ...]
    by: float | None

    @property
    def runs_left(self) -> int:
        """Runs that still hold something on one of the nodes."""
        return len({run.id for use in self.nodes for run in use.runs})

    @property
    def empty(self) -> bool:
        """Whether nothing runs there any more, and nothing will."""
        return self.by is not None and self.runs_left == 0


@dataclass(frozen=True, slots=True)
class Draining:
    """Drains a node, or all nodes of an owned pool. ``poke`` wakes the loop."""

    store: Store
    live: Live
    nodes: Nodes
    clock: Clock
    poke: Callable[[], None]

    def status(self, target: str) -> Drain:
        """How far it is; NotFound when neither a node nor a pool has the name."""
        uses = self._meant(target)
        by = [use.node.drain_by for use in uses if use.node.drain_by is not None]
        return Drain(target, uses, max(by, default=None))

    def drain(self, target: str, *, within_s: float, by: str, why: str = "") -> Drain:
        """Let nothing else start there, and have it empty ``within_s`` from now. Again: the newer
        time counts. Conflict for a cloud's pool, and for a node that is lost."""
        now = self.clock.now()
        words = f"emptied by {by} within {format_duration(round(within_s))}"
        words += f": {why}" if why else ""
        for use in self._meant(target):
            self._change(use.node.id, now + within_s, words, by)
        self.poke()
        return self.status(target)

    def undrain(self, target: str, *, by: str) -> Drain:
        """Take new runs again; runs that are stopping already go on stopping."""
        for use in self._meant(target):
            if use.node.drain_by is not None:
                self.nodes.uncordon(use.node.id, by=by)
        return self.status(target)

    def _meant(self, target: str) -> tuple[NodeUse, ...]:
        uses = self.nodes.listing()
        found = tuple(use for use in uses if use.node.id == target)
        if found:
            return found
        pool = self.live.world().pools.get(PoolName(target))
        if pool is None:
            raise NotFound("no_such_target", f"there is neither a node nor a pool {target}")
        if not isinstance(pool.spec, LocalPool):
            raise Conflict(
                "not_an_owned_pool",
                f"pool {target} is a cloud's: set its ceilings.machines to 0 with `hybrid pools"
                " apply` so that no machine is added, then drain its nodes one by one",
            )
        return tuple(use for use in uses if use.node.pool == target)

    def _change(self, node_id: NodeId, until: float, words: str, by: str) -> None:
        for _ in range(TRIES):
            node = self.nodes.get(node_id).node
            if node.state in (NodeState.LOST, NodeState.GONE):
                raise Conflict(f"node_{node.state}", f"node {node_id} is {node.state}")
            now = self.clock.now()
            event = Event(
                kind=EventKind.NODE, subject=node_id, what="draining", at=now, words=words, actor=by
            )
            bundle = Bundle(
                id=f"node:{node_id}", changes=(Put(_draining(node, until, words, now)), Note(event))
            )
            if not self.store.commit([bundle], at=now).dropped:
                return
        raise NotNow("busy", f"node {node_id} changes all the time; try again")


def _draining(node: Node, until: float, words: str, now: float) -> Node:
    if node.state is NodeState.READY:
        node = node.to(NodeState.CORDONED, at=now, cause=words)
    return replace(node, drain_by=until, cordon_cause=words)
