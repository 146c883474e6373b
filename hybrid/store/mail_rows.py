"""Single rows of the mailbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Update, delete, insert, select, update

from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.ports.engine import NodeReport, RankPhase, RankReport
from hybrid.ports.mailbox import NodeOrder
from hybrid.store.documents import dump
from hybrid.store.tables import mail_acks, mail_nodes, mail_orders, mail_ranks

_PHASES = tuple(RankPhase)


def locked(connection: Connection, node_ids: Iterable[NodeId]) -> dict[NodeId, Row[Any]]:
    """The nodes' rows, locked in one order, so that two who lock several cannot wait for each
    other."""
    wanted = sorted(node_ids)
    if not wanted:
        return {}
    question = (
        select(mail_nodes)
        .where(mail_nodes.c.node_id.in_(wanted))
        .order_by(mail_nodes.c.node_id)
        .with_for_update()
    )
    return {NodeId(row.node_id): row for row in connection.execute(question)}


def bump(connection: Connection, node_ids: Iterable[NodeId]) -> None:
    """The work of these nodes has changed."""
    changed = sorted(node_ids)
    if changed:
        connection.execute(
            update(mail_nodes)
            .where(mail_nodes.c.node_id.in_(changed))
            .values(work_revision=mail_nodes.c.work_revision + 1)
        )


def report_document(report: NodeReport) -> str:
    """A report without what changes at every heartbeat: the row is written only when it says
    something else."""
    return dump(replace(report, heard_at=0.0))


def keep_report(connection: Connection, row: Row[Any], report: NodeReport, at: float) -> None:
    """Keep what a node says of itself; an older report only shows that it was heard."""
    # who it is was settled when it joined, whatever it says now
    claim_id = None if row.claim_id is None else ClaimId(row.claim_id)
    doc = report_document(replace(report, pool=PoolName(row.pool), claim_id=claim_id))
    values: dict[str, Any] = {"heard_at": max(row.heard_at, at)}
    if doc != row.doc and at >= row.heard_at:
        values["doc"] = doc
    connection.execute(update(mail_nodes).where(mail_nodes.c.node_id == row.node_id).values(values))


def keep_ranks(connection: Connection, node_id: NodeId, ranks: Sequence[RankReport]) -> None:
    """Keep what a node says of its runs. A phase never goes back; a rank it no longer names is
    dropped, unless it had ended."""
    mine = mail_ranks.c.node_id == node_id
    stored = {
        (row.run_id, row.rank): row for row in connection.execute(select(mail_ranks).where(mine))
    }
    for rank in ranks:
        said = replace(rank, node_id=node_id)
        row = stored.pop((rank.run_id, rank.rank), None)
        values = {"phase": said.phase.value, "doc": dump(said)}
        if row is None:
            key = {"node_id": node_id, "run_id": rank.run_id, "rank": rank.rank}
            connection.execute(insert(mail_ranks).values({**key, **values}))
        elif row.doc != values["doc"] and _further(row.phase, said.phase):
            connection.execute(_the_rank(row).values(values))
    for row in stored.values():
        if row.phase != RankPhase.ENDED.value:
            connection.execute(
                delete(mail_ranks).where(
                    mine, mail_ranks.c.run_id == row.run_id, mail_ranks.c.rank == row.rank
                )
            )


def _the_rank(row: Row[Any]) -> Update:
    return update(mail_ranks).where(
        mail_ranks.c.node_id == row.node_id,
        mail_ranks.c.run_id == row.run_id,
        mail_ranks.c.rank == row.rank,
    )


def _further(stored: str, said: RankPhase) -> bool:
    return _PHASES.index(said) >= _PHASES.index(RankPhase(stored))


def has_order(connection: Connection, order: NodeOrder) -> bool:
    """Whether the rank has its order already."""
    return (
        connection.execute(
            select(mail_orders.c.rank).where(
                mail_orders.c.run_id == order.run_id, mail_orders.c.rank == order.rank
            )
        ).first()
        is not None
    )


def is_over(connection: Connection, order: NodeOrder) -> bool:
    """Whether the node was told that the run is over."""
    return (
        connection.execute(
            select(mail_acks.c.run_id).where(
                mail_acks.c.node_id == order.node_id, mail_acks.c.run_id == order.run_id
            )
        ).first()
        is not None
    )


def order_of(row: Row[Any]) -> NodeOrder:
    """An order from its row."""
    return NodeOrder(
        run_id=RunId(row.run_id),
        rank=row.rank,
        node_id=NodeId(row.node_id),
        epoch=row.epoch,
        document=row.document,
        stop=row.stop,
    )
