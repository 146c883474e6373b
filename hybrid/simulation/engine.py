"""Nodes that are objects: they take orders, hold leases and fall silent.

A job's true work is asked of ``work_of`` in seconds on the reference GPU; nothing that plans ever
sees it. Every run that a node has begun is kept in :attr:`SimEngine.lives`, so that a test can see
in the world itself whether a job ever ran twice at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hybrid.domain.ids import JobId, NodeId, RunId
from hybrid.domain.job import Job, StopCause
from hybrid.ports.clock import Clock
from hybrid.ports.engine import ORDER_KEPT_PART, NodeReport, RankReport, RunOrder
from hybrid.ports.errors import Gone, OutcomeUnknown
from hybrid.ports.store import EpochPassed
from hybrid.simulation.running import KILLED, CheckpointPlace, SimRank, SimRun


@dataclass(slots=True)
class SimOrder:
    """An order that lies ready for a node until the node can hear."""

    order: RunOrder
    rank: int
    stop: StopCause | None = None


@dataclass(slots=True)
class SimNode:
    """A node: what it reports, and whether it can be heard."""

    report: NodeReport
    silent: bool = False
    dead: bool = False
    epoch: int = 0
    heard_at: float = 0.0
    lease_until: float | None = None
    orders: dict[RunId, SimOrder] = field(default_factory=dict)
    runs: dict[RunId, SimRank] = field(default_factory=dict)
    seen: set[RunId] = field(default_factory=set)

    @property
    def hears(self) -> bool:
        """Whether anything reaches it now."""
        return not (self.silent or self.dead)


class SimEngine:
    """A WorkloadRuntime in memory."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        work_of: Callable[[Job], float],
        *,
        stop_s: float = 1.0,
    ) -> None:
        self._name, self._clock, self._work_of = name, clock, work_of
        self._stop_s = stop_s
        self.nodes: dict[NodeId, SimNode] = {}
        self.lives: list[SimRun] = []
        self.deaf = False
        self.store = CheckpointPlace()
        self._runs: dict[RunId, SimRun] = {}
        self._going: dict[RunId, SimRun] = {}

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    # --- the port -------------------------------------------------------------------------------

    def inventory(self) -> tuple[NodeReport, ...]:
        """Every node that was ever heard, as it was heard last."""
        self._hear()
        return tuple(replace(node.report, heard_at=node.heard_at) for node in self.nodes.values())

    def list_runs(self) -> tuple[RankReport, ...]:
        """Every rank whose end has not been acknowledged, as its node told of it last."""
        self._hear()
        now = self._clock.now()
        return tuple(
            self._runs[run_id].reports(rank, now if node.hears else node.heard_at)
            for node in self.nodes.values()
            for run_id, rank in node.runs.items()
        )

    def start(self, order: RunOrder) -> None:
        """Lay a run's orders ready for its nodes; each begins its rank once, when it hears."""
        self._hear()
        nodes = [self._node(node_id, order.epoch) for node_id in order.run.node_ids]
        for rank, node in enumerate(nodes):
            if order.run.id not in node.seen and order.run.id not in node.orders:
                node.orders[order.run.id] = SimOrder(order, rank)
            self._take_orders(node)

    def stop(self, run_id: RunId, cause: StopCause, grace_s: float, epoch: int) -> None:
        """Ask a run to stop: it saves its work if it can and ends within its grace."""
        self._hear()
        now = self._clock.now()
        for node in self.nodes.values():
            if (order := node.orders.get(run_id)) is not None:
                self._check(node, epoch)
                order.stop = cause
            rank = node.runs.get(run_id)
            if rank is not None and rank.ended_at is None and node.hears:
                self._check(node, epoch)
                rank.ask_to_stop(cause, now, now + min(grace_s, self._stop_s))
                self._runs[run_id].quiet_until = 0.0

    def acknowledge(self, run_id: RunId) -> None:
        """Forget an ended run, and what was ordered of it."""
        self._hear()
        for node in self.nodes.values():
            node.orders.pop(run_id, None)
            if node.runs.pop(run_id, None) is not None:
                self._runs.pop(run_id, None)

    def forget(self, node_id: NodeId) -> None:
        """List a node no more; what it ran stays in :attr:`lives`."""
        self._hear()
        self.nodes.pop(node_id, None)

    def cordon(self, node_id: NodeId, words: str, epoch: int) -> None:  # noqa: ARG002
        """Only we place runs here: nothing to tell anybody."""
        self._node(node_id, epoch)

    def uncordon(self, node_id: NodeId, epoch: int) -> None:
        """Likewise."""
        self._node(node_id, epoch)

    def extend_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """The machine is paid for until then."""
        self._hear()
        self._node(node_id, epoch).lease_until = until

    def logs(self, job_id: JobId, run_id: RunId, rank: int, *, offset: int = 0) -> Iterator[bytes]:
        """Simulated jobs print nothing."""
        del job_id, run_id, rank, offset
        return iter(())

    # --- what the world does --------------------------------------------------------------------

    def join(self, report: NodeReport) -> None:
        """A node is there."""
        now = self._clock.now()
        self.nodes[report.id] = SimNode(report=replace(report, heard_at=now), heard_at=now)

    def lose(self, node_id: NodeId) -> None:
        """A node's machine is gone: what ran there is over, and nobody will say so."""
        node = self.nodes.get(node_id)
        if node is None or node.dead:
            return
        now = self._clock.now()
        self.work(now)
        node.dead = True
        for run_id, rank in node.runs.items():
            if rank.ended_at is None:
                rank.silenced = True
                rank.end(now, KILLED, None)
                self._runs[run_id].quiet_until = 0.0

    def work(self, now: float) -> None:
        """Let every node go on until ``now``: runs finish, stop, save, or lose their lease."""
        for node in self.nodes.values():
            if node.hears:
                node.heard_at = now
                if node.orders:
                    self._take_orders(node)
        for run in list(self._going.values()):
            if now < run.quiet_until:
                continue  # hot: a lease that has been heard of since only ends later
            lease_ends = {id_: self._lease_end(id_) for id_ in run.order.run.node_ids}
            if not run.go_on(now, lease_ends):
                del self._going[run.order.run.id]

    # --- inside ---------------------------------------------------------------------------------

    def _take_orders(self, node: SimNode) -> None:
        if not node.hears:
            return
        for run_id, ordered in list(node.orders.items()):
            del node.orders[run_id]
            node.seen.add(run_id)
            age_s = self._clock.now() - ordered.order.run.assigned_at
            if age_s <= ORDER_KEPT_PART * node.report.run_lease_s:
                self._begin(node, ordered)

    def _begin(self, node: SimNode, ordered: SimOrder) -> None:
        order, now = ordered.order, self._clock.now()
        run = self._runs.get(order.run.id)
        if run is None:
            saved, resumes = order.job.checkpoint, order.run.resume_seq is not None
            run = SimRun(
                order=order,
                work_s=self._work_of(order.job),
                base_s=saved.work_s if saved is not None and resumes else 0.0,
                commit_s=self._stop_s,
                store=self.store,
            )
            self._runs[order.run.id] = run
            self.lives.append(run)
        rank = SimRank(rank=ordered.rank, node_id=node.report.id, started_at=now)
        run.ranks[ordered.rank] = node.runs[order.run.id] = rank
        run.quiet_until = 0.0
        if ordered.stop is not None:
            rank.ask_to_stop(ordered.stop, now, now)
        self._going[order.run.id] = run

    def _lease_end(self, node_id: NodeId) -> float:
        node = self.nodes.get(node_id)
        if node is None:
            return -math.inf  # forgotten, and its machine ended before that
        return node.heard_at + node.report.run_lease_s

    def _node(self, node_id: NodeId, epoch: int) -> SimNode:
        node = self.nodes.get(node_id)
        if node is None:
            raise Gone(f"there is no node {node_id}")
        self._check(node, epoch)
        return node

    def _check(self, node: SimNode, epoch: int) -> None:
        if epoch < node.epoch:
            raise EpochPassed(f"{node.report.id} obeys epoch {node.epoch}, not {epoch}")
        node.epoch = epoch

    def _hear(self) -> None:
        if self.deaf:
            raise OutcomeUnknown(f"{self._name} does not answer")
