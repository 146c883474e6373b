"""Rows between the server and the nodes.

They have no revision and take no part in the queue of commits: hundreds of nodes may speak every
few seconds without waking the loop or waiting for it. What orders a node's writes is its own row,
locked first by whoever changes what the node should be doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.ports.engine import NodeReport, RankReport
from hybrid.ports.errors import Gone
from hybrid.ports.mailbox import NodeOrder, NodeToken, NodeWork
from hybrid.ports.store import EpochPassed
from hybrid.store.access import use_join_token
from hybrid.store.database import Database
from hybrid.store.documents import load
from hybrid.store.mail_rows import (
    bump,
    has_order,
    is_over,
    keep_ranks,
    keep_report,
    locked,
    order_of,
    report_document,
)
from hybrid.store.questions import nameable
from hybrid.store.tables import mail_acks, mail_nodes, mail_orders, mail_ranks, system

ACK_KEPT_S = 600.0
"""How long a node is told that a run is over after it has stopped naming it: as long as an answer
that was on its way then could still start it."""


class MailboxRows:
    """Implements :class:`~hybrid.ports.mailbox.NodeMailbox`."""

    _database: Database
    _work_changed: Callable[[NodeId], None]

    # --- what nodes say -----------------------------------------------------------------------

    def join(self, report: NodeReport, token_sha256: str, *, join_sha256: str, at: float) -> bool:
        """Register a node under its own token; False when the join token is used already, or the
        node id is another's (other token, pool or claim), unless it is the same join again."""
        if not nameable(report.id, report.pool, report.claim_id):
            return False

        def work(connection: Connection) -> bool:
            row = locked(connection, [report.id]).get(report.id)
            if row is not None and (row.token_sha256, row.pool, row.claim_id) != (
                token_sha256,
                report.pool,
                report.claim_id,
            ):
                return False
            if not use_join_token(
                connection,
                join_sha256,
                pool=report.pool,
                node_id=report.id,
                token_sha256=token_sha256,
                at=at,
            ):
                return False
            if row is not None:
                keep_report(connection, row, report, at)
                return True
            connection.execute(
                insert(mail_nodes).values(
                    node_id=report.id,
                    pool=report.pool,
                    claim_id=report.claim_id,
                    token_sha256=token_sha256,
                    heard_at=at,
                    doc=report_document(report),
                    # a node that was forgotten and joins again must not meet old numbers
                    work_revision=int(at * 1000) + 1,
                    epoch=0,
                    cordoned=0,
                    lease_until=None,
                )
            )
            return True

        return self._database.write_twice(work)

    def heard(
        self, report: NodeReport, ranks: tuple[RankReport, ...], *, at: float
    ) -> tuple[RunId, ...]:
        """Keep a heartbeat: the node, and all ranks it knows of. Returns the runs that are over,
        for the node to forget; raises Gone for a node that was forgotten itself.

        A phase never goes back: of two heartbeats that overtook each other the later phase counts.
        A rank that the node no longer names is dropped, unless it had ended.
        """
        changed = False

        def work(connection: Connection) -> tuple[RunId, ...]:
            nonlocal changed
            row = locked(connection, [report.id]).get(report.id)
            if row is None:
                raise Gone(f"node {report.id} has not joined, or was forgotten")
            keep_report(connection, row, report, at)
            over = {
                ack.run_id: ack.heard_at
                for ack in connection.execute(
                    select(mail_acks).where(mail_acks.c.node_id == report.id)
                )
            }
            named = {rank.run_id for rank in ranks}
            stale = [
                run_id
                for run_id, since in over.items()
                if run_id not in named and at - since >= ACK_KEPT_S
            ]
            changed = bool(stale)
            if stale:
                mine = mail_acks.c.node_id == report.id
                connection.execute(delete(mail_acks).where(mine, mail_acks.c.run_id.in_(stale)))
                bump(connection, [report.id])
            keep_ranks(connection, report.id, [rank for rank in ranks if rank.run_id not in over])
            return tuple(sorted(RunId(run_id) for run_id in over))

        over = self._database.write(work, durable=False)
        if changed:
            self._work_changed(report.id)
        return over

    def node_of(self, token_sha256: str) -> NodeToken | None:
        """Whose token it is."""

        def work(connection: Connection) -> NodeToken | None:
            row = connection.execute(
                select(mail_nodes.c.node_id, mail_nodes.c.pool, mail_nodes.c.claim_id).where(
                    mail_nodes.c.token_sha256 == token_sha256
                )
            ).first()
            if row is None:
                return None
            claim_id = None if row.claim_id is None else ClaimId(row.claim_id)
            return NodeToken(
                node_id=NodeId(row.node_id), pool=PoolName(row.pool), claim_id=claim_id
            )

        return self._database.read(work) if nameable(token_sha256) else None

    # --- what nodes should do -----------------------------------------------------------------

    def work(self, node_id: NodeId) -> NodeWork:
        """What the node should be doing; nothing at revision 0 for one that has not joined."""

        def work(connection: Connection) -> NodeWork:
            row = connection.execute(
                select(mail_nodes).where(mail_nodes.c.node_id == node_id)
            ).first()
            if row is None:
                return NodeWork(revision=0, epoch=0, orders=())
            orders = connection.execute(
                select(mail_orders)
                .where(mail_orders.c.node_id == node_id)
                .order_by(mail_orders.c.run_id, mail_orders.c.rank)
            )
            over = connection.execute(
                select(mail_acks.c.run_id)
                .where(mail_acks.c.node_id == node_id)
                .order_by(mail_acks.c.run_id)
            )
            return NodeWork(
                revision=row.work_revision,
                epoch=row.epoch,
                orders=tuple(order_of(order) for order in orders),
                acknowledged=tuple(RunId(run_id) for run_id in over.scalars()),
                cordoned=bool(row.cordoned),
                lease_until=row.lease_until,
            )

        if not nameable(node_id):
            return NodeWork(revision=0, epoch=0, orders=())
        return self._database.read(work)

    def put_orders(self, orders: tuple[NodeOrder, ...]) -> None:
        """Write a run's orders; those that are there, or whose run is over, stay as they are.
        Raises Gone for a node that has not joined, EpochPassed."""

        def work(connection: Connection) -> list[NodeId]:
            changed = self._command(
                connection,
                {order.node_id for order in orders},
                max((order.epoch for order in orders), default=0),
                lowest=min((order.epoch for order in orders), default=0),
            )
            for order in orders:
                if has_order(connection, order) or is_over(connection, order):
                    continue
                connection.execute(
                    insert(mail_orders).values(
                        run_id=order.run_id,
                        rank=order.rank,
                        node_id=order.node_id,
                        epoch=order.epoch,
                        document=order.document,
                        stop=order.stop,
                    )
                )
                changed.add(order.node_id)
            bump(connection, changed)
            return sorted(changed)

        self._tell(self._database.write(work))

    def put_stop(self, run_id: RunId, stop: str, epoch: int) -> None:
        """Write the stop of a run's orders; nothing when it has none (any more)."""

        def work(connection: Connection) -> list[NodeId]:
            mine = mail_orders.c.run_id == run_id
            rows = connection.execute(
                select(mail_orders.c.node_id, mail_orders.c.stop).where(mine)
            ).all()
            changed = self._command(connection, {NodeId(row.node_id) for row in rows}, epoch)
            stopping = {NodeId(row.node_id) for row in rows if row.stop != stop}
            if stopping:
                connection.execute(update(mail_orders).where(mine).values(stop=stop))
            changed |= stopping
            bump(connection, changed)
            return sorted(changed)

        self._tell(self._database.write(work))

    def acknowledge(self, run_id: RunId) -> None:
        """Drop the orders and reports of a run whose end has been applied; its nodes are told to
        forget it."""

        def work(connection: Connection) -> list[NodeId]:
            nodes: set[NodeId] = set()
            for table in (mail_orders, mail_ranks):
                found = select(table.c.node_id).where(table.c.run_id == run_id).distinct()
                nodes |= {NodeId(id_) for id_ in connection.execute(found).scalars()}
            rows = locked(connection, nodes)
            for table in (mail_orders, mail_ranks):
                connection.execute(delete(table).where(table.c.run_id == run_id))
            same = mail_acks.c.run_id == run_id
            told = set(connection.execute(select(mail_acks.c.node_id).where(same)).scalars())
            for node_id in sorted(rows.keys() - told):
                connection.execute(
                    insert(mail_acks).values(
                        node_id=node_id, run_id=run_id, heard_at=rows[node_id].heard_at
                    )
                )
            bump(connection, rows)
            return sorted(rows)

        self._tell(self._database.write(work))

    def set_cordon(self, node_id: NodeId, cordoned: bool, epoch: int) -> None:
        """Write whether the node may start anything. Raises Gone, EpochPassed."""
        self._set(node_id, epoch, cordoned=int(cordoned))

    def set_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """Write until when the node's machine is paid for. Raises Gone, EpochPassed."""
        self._set(node_id, epoch, lease_until=until)

    def _set(self, node_id: NodeId, epoch: int, **values: Any) -> None:
        def work(connection: Connection) -> list[NodeId]:
            changed = self._command(connection, {node_id}, epoch)
            row = connection.execute(
                select(mail_nodes).where(mail_nodes.c.node_id == node_id)
            ).one()
            if any(getattr(row, name) != value for name, value in values.items()):
                connection.execute(
                    update(mail_nodes).where(mail_nodes.c.node_id == node_id).values(values)
                )
                changed.add(node_id)
            bump(connection, changed)
            return sorted(changed)

        self._tell(self._database.write(work))

    def _command(
        self,
        connection: Connection,
        node_ids: set[NodeId],
        epoch: int,
        *,
        lowest: int | None = None,
    ) -> set[NodeId]:
        """Lock the nodes for a command of an epoch; returns those to whom that epoch is new."""
        leading = connection.execute(select(system.c.epoch)).scalar_one()
        rows = locked(connection, node_ids)
        missing = sorted(node_ids - rows.keys())
        if missing:
            raise Gone(f"node {missing[0]} has not joined, or was forgotten")
        known = max([leading, *(row.epoch for row in rows.values())])
        oldest = epoch if lowest is None else lowest
        if oldest < known:
            raise EpochPassed(f"a command of epoch {oldest} comes after one of epoch {known}")
        behind = {node_id for node_id, row in rows.items() if row.epoch < epoch}
        if behind:
            connection.execute(
                update(mail_nodes).where(mail_nodes.c.node_id.in_(behind)).values(epoch=epoch)
            )
        return behind

    def _tell(self, node_ids: Iterable[NodeId]) -> None:
        for node_id in node_ids:
            self._work_changed(node_id)

    # --- what the loop reads ------------------------------------------------------------------

    def nodes(self) -> tuple[NodeReport, ...]:
        """The last report of every node that has not been forgotten, by id."""

        def work(connection: Connection) -> tuple[NodeReport, ...]:
            question = select(mail_nodes.c.doc, mail_nodes.c.heard_at)
            rows = connection.execute(question.order_by(mail_nodes.c.node_id))
            return tuple(replace(load(NodeReport, row.doc), heard_at=row.heard_at) for row in rows)

        return self._database.read(work)

    def ranks(self) -> tuple[RankReport, ...]:
        """The last report of every rank that has not been acknowledged."""

        def work(connection: Connection) -> tuple[RankReport, ...]:
            order = mail_ranks.c.run_id, mail_ranks.c.rank, mail_ranks.c.node_id
            docs = connection.execute(select(mail_ranks.c.doc).order_by(*order)).scalars()
            return tuple(load(RankReport, doc) for doc in docs)

        return self._database.read(work)

    def forget(self, node_id: NodeId) -> None:
        """The node is gone for good: drop its rows and its token."""

        def work(connection: Connection) -> None:
            locked(connection, [node_id])
            for table in (mail_orders, mail_ranks, mail_acks, mail_nodes):
                connection.execute(delete(table).where(table.c.node_id == node_id))

        self._database.write(work)
        self._work_changed(node_id)
