"""The one way rows that decisions rest on are written: bundles in one transaction.

Every bundle is first checked against the rows as they are, with the bundles before it; what
passes is staged, and all that is staged is written together. What only the database's own indexes
can tell shows in the writing: then everything is done again bundle by bundle, each in a savepoint,
so that only the one at fault is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError

from hybrid.domain.ids import JobId
from hybrid.ports.store import Bundle, Committed, DropCause, Dropped, EpochPassed, LoopLease
from hybrid.store.checks import Checks, Drop, advance, policy_version, read_standing
from hybrid.store.ground import Ground, Purse, RowsRefuse, Standing
from hybrid.store.money import Money
from hybrid.store.questions import recall
from hybrid.store.staged import GpuOverheld, Key, Staged, write
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
    check_epoch(row.epoch, epoch)
    return int(row.revision)


def check_epoch(leading: int, epoch: int | None) -> None:
    """Raise EpochPassed for who commits as a leader and leads no more."""
    if epoch is not None and leading != epoch:
        raise EpochPassed(f"the loop's epoch is {leading}, not {epoch}: another process leads")


def lease_after(was: LoopLease, holder: str, *, now: float, ttl_s: float) -> LoopLease | None:
    """The loop's lease once ``holder`` has asked for it; None while another's lasts."""
    mine = was.holder == holder
    if not mine and was.holder and now < was.until:
        return None
    return LoopLease(holder, was.epoch if mine else was.epoch + 1, now + ttl_s)


class SqlGround:
    """The rows of a database, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def standing(self, bundles: Sequence[Bundle]) -> Standing:
        """The rows that bundles name."""
        return read_standing(self._connection, bundles)

    def purse(self, at: float) -> Purse:
        """The money, in the periods of ``at``."""
        return Money(self._connection, at)

    def policy_version(self) -> int:
        """The current policy's version."""
        return policy_version(self._connection)

    def stands_for(self, team: str, key: str, *, at: float) -> JobId | None:
        """What an idempotency key that has not expired stands for."""
        found = recall(self._connection, team, key, at)
        return None if found is None else found.job_id

    def nested(self) -> AbstractContextManager[object]:
        """A savepoint."""
        return self._connection.begin_nested()

    def write(self, staged: Staged, *, revision: int, there: Mapping[Key, int]) -> None:
        """Write what is staged."""
        try:
            write(self._connection, staged, revision=revision, there=there)
        except GpuOverheld as problem:
            raise RowsRefuse(str(problem)) from problem
        except IntegrityError as problem:
            first = (str(problem.orig).strip().splitlines() or [""])[0]
            rows = ", ".join(" ".join(key) for key in sorted(staged.rows)) or "a decision"
            raise RowsRefuse(f"{rows}: {first}") from problem


class Commit:
    """One commit in its transaction. It is made anew for every attempt at that transaction."""

    def __init__(self, ground: Ground, at: float, revision: int) -> None:
        self._ground = ground
        self._at = at
        self._revision = revision

    def run(self, bundles: Sequence[Bundle], accept: Accept | None) -> Committed:
        """Write the bundles that hold; raises Refused when nothing is to be written."""
        standing = self._ground.standing(bundles)
        try:
            with self._ground.nested():
                applied, dropped = self._together(bundles, standing)
        except RowsRefuse:
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
        money = self._ground.purse(self._at)
        checks = Checks(self._ground, money, standing)
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
        money = self._ground.purse(self._at)
        applied: list[str] = []
        dropped: list[Dropped] = []
        for bundle in bundles:
            checks = Checks(self._ground, money, standing)
            try:
                with self._ground.nested():
                    checks.take(bundle)
                    self._write(checks, money, standing)
            except Drop as drop:
                dropped.append(Dropped(bundle.id, drop.cause, drop.words))
            except RowsRefuse as refusal:
                dropped.append(Dropped(bundle.id, DropCause.CONFLICT, str(refusal)))
            else:
                advance(standing, checks.staged)
                applied.append(bundle.id)
        return applied, dropped

    def _write(self, checks: Checks, money: Purse, standing: Standing) -> None:
        self._ground.write(checks.staged, revision=self._revision, there=standing.versions)
        if checks.account is not None:
            money.save(checks.account)
