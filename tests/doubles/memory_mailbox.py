"""A NodeMailbox in memory, with the rules that its port states."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from hybrid.domain.ids import NodeId, RunId
from hybrid.ports.engine import NodeReport, RankReport
from hybrid.ports.errors import Gone
from hybrid.ports.mailbox import NodeOrder, NodeToken, NodeWork
from hybrid.ports.store import EpochPassed


@dataclass
class _Row:
    report: NodeReport
    token_sha256: str
    revision: int = 1
    epoch: int = 0
    cordoned: bool = False
    lease_until: float | None = None
    acknowledged: list[RunId] = field(default_factory=list)


class MemoryMailbox:
    """Thread-safe; nothing is kept on disk."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rows: dict[NodeId, _Row] = {}
        self._joins: dict[str, str] = {}
        self._orders: dict[tuple[RunId, int], NodeOrder] = {}
        self._ranks: dict[tuple[RunId, int], RankReport] = {}
        self._acknowledged: set[RunId] = set()
        self.reports_of_ranks = 0

    def join(self, report: NodeReport, token_sha256: str, *, join_sha256: str, at: float) -> bool:
        with self._lock:
            used_by = self._joins.get(join_sha256)
            if used_by is not None and used_by != token_sha256:
                return False
            row = self._rows.get(report.id)
            if row is not None and row.token_sha256 != token_sha256:
                return False
            self._joins[join_sha256] = token_sha256
            if row is None:
                self._rows[report.id] = _Row(replace(report, heard_at=at), token_sha256)
            else:
                row.report = replace(report, heard_at=at)
            return True

    def heard(
        self, report: NodeReport, ranks: tuple[RankReport, ...], *, at: float
    ) -> tuple[RunId, ...]:
        with self._lock:
            self._known(report.id).report = replace(report, heard_at=at)
            for rank in ranks:
                if rank.run_id not in self._acknowledged:
                    self.reports_of_ranks += 1
                    self._ranks[rank.run_id, rank.rank] = rank
            return tuple(
                sorted({rank.run_id for rank in ranks if rank.run_id in self._acknowledged})
            )

    def node_of(self, token_sha256: str) -> NodeToken | None:
        with self._lock:
            for row in self._rows.values():
                if row.token_sha256 == token_sha256:
                    report = row.report
                    return NodeToken(node_id=report.id, pool=report.pool, claim_id=report.claim_id)
            return None

    def work(self, node_id: NodeId) -> NodeWork:
        with self._lock:
            row = self._rows.get(node_id)
            if row is None:
                return NodeWork(revision=0, epoch=0, orders=())
            return NodeWork(
                revision=row.revision,
                epoch=row.epoch,
                orders=tuple(order for order in self._orders.values() if order.node_id == node_id),
                acknowledged=tuple(row.acknowledged),
                cordoned=row.cordoned,
                lease_until=row.lease_until,
            )

    def nodes(self) -> tuple[NodeReport, ...]:
        with self._lock:
            return tuple(row.report for row in self._rows.values())

    def ranks(self) -> tuple[RankReport, ...]:
        with self._lock:
            return tuple(self._ranks.values())

    def put_orders(self, orders: tuple[NodeOrder, ...]) -> None:
        with self._lock:
            for order in orders:
                self._check_epoch(order.node_id, order.epoch)
            for order in orders:
                if (order.run_id, order.rank) not in self._orders:
                    self._orders[order.run_id, order.rank] = order
                    self._moved(order.node_id, order.epoch)

    def put_stop(self, run_id: RunId, stop: str, epoch: int) -> None:
        with self._lock:
            mine = [key for key in self._orders if key[0] == run_id]
            for key in mine:
                self._check_epoch(self._orders[key].node_id, epoch)
            for key in mine:
                if self._orders[key].stop != stop:
                    self._orders[key] = replace(self._orders[key], stop=stop)
                    self._moved(self._orders[key].node_id, epoch)

    def acknowledge(self, run_id: RunId) -> None:
        with self._lock:
            self._acknowledged.add(run_id)
            for key in [key for key in self._ranks if key[0] == run_id]:
                del self._ranks[key]
            for key in [key for key in self._orders if key[0] == run_id]:
                order = self._orders.pop(key)
                row = self._rows.get(order.node_id)
                if row is not None:
                    row.acknowledged.append(run_id)
                    row.revision += 1

    def set_cordon(self, node_id: NodeId, cordoned: bool, epoch: int) -> None:
        with self._lock:
            self._check_epoch(node_id, epoch)
            self._rows[node_id].cordoned = cordoned
            self._moved(node_id, epoch)

    def set_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        with self._lock:
            self._check_epoch(node_id, epoch)
            self._rows[node_id].lease_until = until
            self._moved(node_id, epoch)

    def forget(self, node_id: NodeId) -> None:
        with self._lock:
            self._rows.pop(node_id, None)
            for key in [k for k, order in self._orders.items() if order.node_id == node_id]:
                del self._orders[key]

    # --- for tests ----------------------------------------------------------------------------

    def row_of(self, node_id: NodeId) -> _Row:
        """The node's row, to meddle with."""
        return self._rows[node_id]

    def drop_order(self, run_id: RunId) -> None:
        """Take a run's orders away without a word."""
        with self._lock:
            for key in [key for key in self._orders if key[0] == run_id]:
                del self._orders[key]

    def lose_track_of(self, run_id: RunId) -> None:
        """Know nothing any more of a run's having been acknowledged."""
        with self._lock:
            self._acknowledged.discard(run_id)
            for row in self._rows.values():
                row.acknowledged = [each for each in row.acknowledged if each != run_id]

    def _check_epoch(self, node_id: NodeId, epoch: int) -> None:
        known = self._known(node_id).epoch
        if epoch < known:
            raise EpochPassed(f"{epoch} is below {known}")

    def _known(self, node_id: NodeId) -> _Row:
        row = self._rows.get(node_id)
        if row is None:
            raise Gone(f"node {node_id} has not joined, or was forgotten")
        return row

    def _moved(self, node_id: NodeId, epoch: int) -> None:
        self._rows[node_id].epoch = epoch
        self._rows[node_id].revision += 1
