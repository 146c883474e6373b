"""Nodes: what is on them, and whether they take new runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import NodeId
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, Put, Store
from hybrid.services.errors import Conflict, NotFound, NotNow
from hybrid.services.live import Live
from policies.quarantine import BY_A_PERSON

TRIES = 8


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node and the live runs that hold something on it."""

    node: Node
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Reads nodes and cordons them. ``poke`` wakes the loop."""

    store: Store
    live: Live
    clock: Clock
    poke: Callable[[], None]

    def listing(self) -> tuple[NodeUse, ...]:
        """All nodes that are not gone, by pool and id."""
        world = self.live.world()
        runs: dict[NodeId, list[Run]] = {}
        for run in sorted(world.runs.values(), key=lambda run: run.id):
            for node_id in dict.fromkeys(run.node_ids):
                runs.setdefault(node_id, []).append(run)
        nodes = sorted(world.nodes.values(), key=lambda node: (node.pool, node.id))
        return tuple(NodeUse(node, tuple(runs.get(node.id, ()))) for node in nodes)

    def get(self, node_id: NodeId) -> NodeUse:
        """One node, gone or not; NotFound."""
        node = self.store.node(node_id)
        if node is None:
            raise NotFound("no_such_node", f"there is no node {node_id}")
        runs = (run for run in self.live.world().runs.values() if node_id in run.node_ids)
        return NodeUse(node, tuple(sorted(runs, key=lambda run: run.id)))

    def cordon(self, node_id: NodeId, *, by: str, why: str = "") -> NodeUse:
        """Let nothing else start there; what runs goes on. Twice is as once."""
        words = f"cordoned by {by}" + (f": {why}" if why else "")
        return self._to(NodeState.CORDONED, node_id, words, by)

    def uncordon(self, node_id: NodeId, *, by: str) -> NodeUse:
        """Take new runs again. Twice is as once."""
        return self._to(NodeState.READY, node_id, f"{BY_A_PERSON}{by}", by)

    def _to(self, state: NodeState, node_id: NodeId, words: str, by: str) -> NodeUse:
        for _ in range(TRIES):
            use = self.get(node_id)
            node = use.node
            if node.state is state:
                return use
            if node.state in (NodeState.LOST, NodeState.GONE):
                raise Conflict(f"node_{node.state}", f"node {node_id} is {node.state}")
            now = self.clock.now()
            event = Event(
                kind=EventKind.NODE,
                subject=node_id,
                what="cordoned" if state is NodeState.CORDONED else "uncordoned",
                at=now,
                words=words,
                actor=by,
            )
            bundle = Bundle(
                id=f"node:{node_id}",
                changes=(Put(node.to(state, at=now, cause=words)), Note(event)),
            )
            if not self.store.commit([bundle], at=now).dropped:
                self.poke()
                return self.get(node_id)
        raise NotNow("busy", f"node {node_id} changes all the time; try again")
