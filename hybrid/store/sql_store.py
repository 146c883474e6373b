"""The store: everything remembered, in one SQL database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, Table, select, update

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event
from hybrid.domain.ids import ClaimId, JobId, NodeId
from hybrid.domain.job import Job
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.node import Node
from hybrid.domain.plan import Decision
from hybrid.domain.run import Run
from hybrid.ledger.replay import Mismatch, mismatches, replay
from hybrid.ports.store import (
    Bundle,
    Committed,
    JobFilter,
    LoopLease,
    Page,
    PolicyVersion,
    Remembered,
    Spender,
    TeamMoney,
    World,
)
from hybrid.store import tables
from hybrid.store.access import AccessRows
from hybrid.store.backup import back_up
from hybrid.store.commit import Accept, Commit, Refused, SqlGround, begin, lease_after
from hybrid.store.cursors import CursorRows
from hybrid.store.database import Database
from hybrid.store.documents import load, load_decision
from hybrid.store.ground import Account
from hybrid.store.mailbox import MailboxRows
from hybrid.store.money import (
    Money,
    count_entries,
    entries_of,
    load_balances,
    load_entries,
    load_spenders,
    load_team_sums,
)
from hybrid.store.questions import (
    current_policy,
    document,
    list_claims,
    list_events,
    list_jobs,
    list_policies,
    list_runs,
    nameable,
    one_policy,
    recall,
)
from hybrid.store.reading import load_world
from hybrid.store.schema import prepare
from hybrid.store.tables import system


def _nobody(node_id: NodeId) -> None:
    """Who hears of changed work when nobody asked to."""


class SqlStore(MailboxRows, AccessRows, CursorRows):
    """Implements the ports of the store, the mailbox, tokens, the artifact index and cursors.

    Every method may be called from any thread, and may raise
    :class:`~hybrid.store.errors.StoreUnavailable`.
    """

    def __init__(
        self, database: Database, work_changed: Callable[[NodeId], None] = _nobody
    ) -> None:
        self._database = database
        self._work_changed = work_changed

    @classmethod
    def open(cls, url: str, *, work_changed: Callable[[NodeId], None] = _nobody) -> Self:
        """The store in the database of a SQLAlchemy URL, brought to this program's schema.

        ``work_changed`` is called with every node whose work changed, in the thread that wrote
        it, after the commit: it wakes the long polls of this process and must not block or raise.
        Raises DatabaseTooNew, WrongDatabase, StoreUnavailable: each one line for people.
        """
        database = Database(url)
        try:
            prepare(database)
        except BaseException:
            database.close()
            raise
        return cls(database, work_changed)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the loop -----------------------------------------------------------------------------

    def load(self, *, now: float, since: int | None = None) -> World:
        """The live rows, or those changed since a revision. Breakers, balances and what was
        learned come whole either way: :func:`hybrid.reconcile.views.merged` puts both together."""
        return self._database.read(lambda connection: load_world(connection, now=now, since=since))

    def commit(
        self,
        bundles: Sequence[Bundle],
        *,
        at: float,
        epoch: int | None = None,
        accept: Accept | None = None,
    ) -> Committed:
        """Write what still holds, in one transaction.

        A row that a bundle writes must be at the entity's version; version 0 means there is none,
        or, for pools and nodes, only a removed or gone one. A row in ``rests_on`` must be as it
        was before this commit: what another of its bundles does to it does not count. ``accept``
        is called inside the transaction and must not touch the store.
        """

        def work(connection: Connection) -> Committed:
            revision = begin(connection, epoch)
            return Commit(SqlGround(connection), at, revision).run(bundles, accept)

        try:
            return self._database.write(work)
        except Refused as refused:
            return refused.outcome

    def acquire_loop(self, holder: str, *, now: float, ttl_s: float) -> LoopLease | None:
        """Take or renew the loop's lease; None while another holder's lasts."""

        def work(connection: Connection) -> LoopLease | None:
            row = connection.execute(
                select(system.c.holder, system.c.epoch, system.c.lease_until).with_for_update()
            ).one()
            was = LoopLease(row.holder, row.epoch, row.lease_until)
            lease = lease_after(was, holder, now=now, ttl_s=ttl_s)
            if lease is not None:
                connection.execute(
                    update(system).values(
                        holder=lease.holder, epoch=lease.epoch, lease_until=lease.until
                    )
                )
            return lease

        return self._database.write(work)

    def loop_epoch(self) -> int:
        """The epoch of whoever leads now, or led last."""
        return self._database.read(
            lambda connection: int(connection.execute(select(system.c.epoch)).scalar_one())
        )

    def release_loop(self, holder: str) -> None:
        """Give the lease back early."""
        mine = system.c.holder == holder
        self._database.write(
            lambda connection: connection.execute(
                update(system).where(mine).values(holder="", lease_until=0.0)
            )
        )

    # --- questions ----------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """A job, ended or not."""
        doc = self._document(tables.jobs, job_id)
        return None if doc is None else load(Job, doc)

    def jobs(self, which: JobFilter, *, limit: int, cursor: str | None = None) -> Page:
        """Jobs, newest first. A bad cursor raises ValueError."""
        return self._database.read(
            lambda connection: list_jobs(connection, which, limit=limit, cursor=cursor)
        )

    def runs_of(self, job_id: JobId) -> tuple[Run, ...]:
        """All runs of a job, first to last."""
        if not nameable(job_id):
            return ()
        return self._database.read(lambda connection: list_runs(connection, job_id))

    def claims(self, *, states: Sequence[ClaimState] = (), limit: int = 1000) -> tuple[Claim, ...]:
        """Claims, newest first; all states when none are named."""
        return self._database.read(lambda connection: list_claims(connection, states, limit))

    def claim(self, claim_id: ClaimId) -> Claim | None:
        """A claim, over or not."""
        doc = self._document(tables.claims, claim_id)
        return None if doc is None else load(Claim, doc)

    def node(self, node_id: NodeId) -> Node | None:
        """A node, gone or not."""
        doc = self._document(tables.nodes, node_id)
        return None if doc is None else load(Node, doc)

    def decision(self, job_id: JobId) -> Decision | None:
        """A job's last decision; its reasons say what they said."""
        doc = self._document(tables.decisions, job_id)
        return None if doc is None else load_decision(doc)

    def events(
        self, *, job_id: JobId | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[tuple[int, Event], ...]:
        """Events with their sequence numbers, in order."""
        if not nameable(job_id):
            return ()
        return self._database.read(
            lambda connection: list_events(connection, job_id=job_id, after=after, limit=limit)
        )

    def entries(self, *, claim_id: ClaimId | None = None) -> tuple[LedgerEntry, ...]:
        """Ledger entries in order."""
        if not nameable(claim_id):
            return ()
        return self._database.read(lambda connection: load_entries(connection, claim_id))

    def balances(self, *, now: float, under: Sequence[Budget] | None = None) -> tuple[Balance, ...]:
        """Every budget with what is charged and held in its current period, or what it would be
        ``under`` other budgets."""
        if under is None:
            return self._database.read(lambda connection: load_balances(connection, now))
        return self._database.read(
            lambda connection: Money(connection, now).with_budgets(Account(()), under).balances
        )

    def spenders(
        self, budget: Budget, *, since: float, limit: int, teams: Sequence[str] | None = None
    ) -> tuple[Spender, ...]:
        """Who has been charged most under a budget since an instant."""
        return self._database.read(
            lambda connection: load_spenders(connection, budget, since, limit, teams)
        )

    def team_sums(self, *, since: float) -> tuple[TeamMoney, ...]:
        """What each team has been charged since an instant and what is held for it."""
        return self._database.read(lambda connection: load_team_sums(connection, since))

    def entry_count(self) -> int:
        """How many entries the ledger has."""
        return self._database.read(count_entries)

    def remembered(self, team: str, key: str, *, now: float) -> Remembered | None:
        """What an unexpired idempotency key stands for."""
        if not nameable(team, key):
            return None
        return self._database.read(lambda connection: recall(connection, team, key, now))

    def policy(self) -> PolicyVersion:
        """The current policy (version 0, an empty document, before any was set)."""
        return self._database.read(current_policy)

    def policy_of(self, version: int) -> PolicyVersion | None:
        """A version of the policy; 0 is the empty document."""
        return self._database.read(lambda connection: one_policy(connection, version))

    def policies(self, *, limit: int, before: int | None = None) -> tuple[PolicyVersion, ...]:
        """Versions of the policy, newest first."""
        return self._database.read(
            lambda connection: list_policies(connection, limit=limit, before=before)
        )

    # --- care ---------------------------------------------------------------------------------

    def verify_balances(self, *, now: float) -> tuple[Mismatch, ...]:
        """Balances that are not what replaying the whole ledger gives: a bug, never repaired in
        silence."""

        def work(connection: Connection) -> tuple[Mismatch, ...]:
            kept = load_balances(connection, now)
            budgets = [balance.budget for balance in kept]
            return mismatches(kept, replay(budgets, entries_of(connection, None), now=now))

        return self._database.read(work)

    def backup(self, path: Path) -> None:
        """Copy the database to a new file while it is in use.

        Raises BackupElsewhere for PostgreSQL, FileExistsError, StoreUnavailable.
        """
        back_up(self._database, path)

    def _document(self, table: Table, id_: str) -> str | None:
        if not nameable(id_):
            return None
        return self._database.read(lambda connection: document(connection, table, id_))
