"""The one way rows that decisions rest on are written: bundles in one transaction.

Every bundle is first checked against the rows as they are, with the bundles before it; what
passes is staged, and all that is staged is written together. What only the database's own indexes
can tell shows in the writing: then everything is done again bundle by bundle, each in a savepoint,
so that only the one at fault is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError

from hybrid.ports.store import Bundle, Committed, DropCause, Dropped, EpochPassed
from hybrid.store.checks import Checks, Drop, Standing
from hybrid.store.money import Money
from hybrid.store.staged import GpuOverheld, Staged, write
from hybrid.store.tables import system

Accept = Callable[[frozenset[str]], bool]
_Outcome = tuple[list[str], list[Dropped]]


class Refused(Exception):
    """Nothing of a commit was written: what to tell who asked."""

    def __init__(self, outcome: Committed) -> None:
        super().__init__()
        self.outcome = outcome


def begin(connection: Connection, epoch: int | None) -> int:
    """Queue up behind other writers; returns this transaction's revision.

    The update comes first in every transaction that writes loop rows: its row lock lets one at a
    time through, so a revision that is visible has every smaller one below it.
    """
    connection.execute(update(system).values(revision=system.c.revision + 1))
    row = connection.execute(select(system.c.revision, system.c.epoch)).one()
    if epoch is not None and row.epoch != epoch:
        raise EpochPassed(f"the loop's epoch is {row.epoch}, not {epoch}: another process leads")
    return int(row.revision)


class Commit:
    """One commit in its transaction. It is made anew for every attempt at that transaction."""

    def __init__(self, connection: Connection, at: float, revision: int) -> None:
        self._connection = connection
        self._at = at
        self._revision = revision

    def run(self, bundles: Sequence[Bundle], accept: Accept | None) -> Committed:
        """Write the bundles that hold; raises Refused when nothing is to be written."""
        standing = Standing.read(self._connection, bundles)
        try:
            with self._connection.begin_nested():
                applied, dropped = self._together(bundles, standing)
        except (IntegrityError, GpuOverheld):
            applied, dropped = self._one_by_one(bundles, standing)
        ids = frozenset(drop.bundle_id for drop in dropped)
        if dropped and applied and accept and not accept(ids):
            words = "what remained without the dropped bundles was not clean"
            dropped += [Dropped(id_, DropCause.LINT, words) for id_ in applied]
            applied = []
        if not applied:
            raise Refused(Committed((), tuple(dropped), self._revision - 1))
        return Committed(tuple(applied), tuple(dropped), self._revision)

    def _together(self, bundles: Sequence[Bundle], standing: Standing) -> _Outcome:
        money = Money(self._connection, self._at)
        checks = Checks(self._connection, money, standing)
        applied: list[str] = []
        dropped: list[Dropped] = []
        for bundle in bundles:
            try:
                checks.take(bundle)
            except Drop as drop:
                dropped.append(Dropped(bundle.id, drop.cause, drop.words))
            else:
                applied.append(bundle.id)
        self._write(checks, money, standing)
        return applied, dropped

    def _one_by_one(self, bundles: Sequence[Bundle], standing: Standing) -> _Outcome:
        money = Money(self._connection, self._at)
        applied: list[str] = []
        dropped: list[Dropped] = []
        for bundle in bundles:
            checks = Checks(self._connection, money, standing)
            try:
                with self._connection.begin_nested():
                    checks.take(bundle)
                    self._write(checks, money, standing)
            except Drop as drop:
                dropped.append(Dropped(bundle.id, drop.cause, drop.words))
            except (IntegrityError, GpuOverheld) as problem:
                words = _why(problem, checks.staged)
                dropped.append(Dropped(bundle.id, DropCause.CONFLICT, words))
            else:
                standing.advance(checks.staged)
                applied.append(bundle.id)
        return applied, dropped

    def _write(self, checks: Checks, money: Money, standing: Standing) -> None:
        write(self._connection, checks.staged, revision=self._revision, there=standing.versions)
        if checks.account is not None:
            money.save(checks.account)


def _why(problem: IntegrityError | GpuOverheld, staged: Staged) -> str:
    if isinstance(problem, GpuOverheld):
        return str(problem)
    first = (str(problem.orig).strip().splitlines() or [""])[0]
    rows = ", ".join(" ".join(key) for key in sorted(staged.rows)) or "a decision"
    return f"{rows}: {first}"
