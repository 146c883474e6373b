"""Balances in rows, kept in step with the ledger inside one transaction.

A row says what the ledger comes to since its window began. Another instant has another window (a
new month, or a rolling one that went on): only the entries between the two beginnings are summed
up to get from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    true,
    update,
)

from hybrid.domain.budget import Balance, Budget, Scope
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.reasons import Reason
from hybrid.ledger.caps import after, fits
from hybrid.ledger.periods import period_start_at
from hybrid.store.documents import dump, load
from hybrid.store.tables import balances, ledger

_HELD = case(
    (ledger.c.kind == EntryKind.HOLD.value, ledger.c.amount_micros),
    (ledger.c.kind == EntryKind.RELEASE.value, -ledger.c.amount_micros),
    else_=0,
)
_IS_CHARGE = ledger.c.kind.in_([EntryKind.CHARGE.value, EntryKind.SETTLEMENT.value])


class Money:
    """The balances of one transaction, in the periods of ``at``."""

    def __init__(self, connection: Connection, at: float) -> None:
        self._connection = connection
        self._at = at
        self._loaded: tuple[Balance, ...] | None = None
        self._now: tuple[Balance, ...] = ()

    @property
    def balances(self) -> tuple[Balance, ...]:
        """Every budget, with what was posted in this transaction so far."""
        if self._loaded is None:
            self._loaded = self._now = load_balances(self._connection, self._at)
        return self._now

    def mark(self) -> tuple[Balance, ...] | None:
        """The balances as they are, to go back to (None: nobody has asked for them yet)."""
        return None if self._loaded is None else self._now

    def restore(self, mark: tuple[Balance, ...] | None) -> None:
        """Go back to a mark, when the rows written since are undone."""
        self._now = (self._loaded or ()) if mark is None else mark

    def refusal(self, entry: LedgerEntry) -> Reason | None:
        """Why an entry may not be posted."""
        return fits(self.balances, entry)

    def post(self, entry: LedgerEntry) -> None:
        """Write an entry."""
        was = self.balances
        self._connection.execute(
            insert(ledger).values(
                id=entry.id,
                kind=entry.kind.value,
                claim_id=entry.claim_id,
                amount_micros=entry.amount_micros,
                at=entry.at,
                team=entry.team,
                user_name=entry.user,
                job_id=entry.job_id,
                memo=entry.memo,
            )
        )
        self._now = tuple(after(balance, entry) for balance in was)

    def replace_budgets(self, budgets: Sequence[Budget]) -> None:
        """Set the budgets; what each comes to is read from the ledger."""
        self.balances  # noqa: B018 - loads what is there, to be compared with at the end
        self._now = tuple(self._from_ledger(budget) for budget in budgets)

    def save(self) -> None:
        """Write the balances that have changed."""
        if self._loaded is None or self._now == self._loaded:
            return
        if [b.budget for b in self._now] != [b.budget for b in self._loaded]:
            self._connection.execute(delete(balances))
            if self._now:
                self._connection.execute(
                    insert(balances),
                    [
                        {"name": b.name, "position": place, "doc": dump(b.budget), **_sums(b)}
                        for place, b in enumerate(self._now)
                    ],
                )
            return
        changed = [b for b, was in zip(self._now, self._loaded, strict=True) if b != was]
        self._connection.execute(
            update(balances).where(balances.c.name == bindparam("key")),
            [{"key": b.name, **_sums(b)} for b in changed],
        )

    def _from_ledger(self, budget: Budget) -> Balance:
        start = period_start_at(budget, self._at)
        charged = _charged(self._connection, budget, start, None)
        held = self._connection.execute(
            select(func.coalesce(func.sum(_HELD), 0)).where(_under(budget))
        ).scalar_one()
        return Balance(
            budget=budget, charged_micros=charged, held_micros=int(held), period_start_at=start
        )


def _sums(balance: Balance) -> dict[str, int | float]:
    return {
        "charged_micros": balance.charged_micros,
        "held_micros": balance.held_micros,
        "window_start_at": balance.period_start_at,
    }


def load_balances(connection: Connection, now: float) -> tuple[Balance, ...]:
    """Every budget in the period of ``now``, in the order they were set."""
    rows = connection.execute(select(balances).order_by(balances.c.position)).all()
    return tuple(
        _moved(
            connection,
            Balance(
                budget=load(Budget, row.doc),
                charged_micros=row.charged_micros,
                held_micros=row.held_micros,
                period_start_at=row.window_start_at,
            ),
            now,
        )
        for row in rows
    )


def _moved(connection: Connection, balance: Balance, now: float) -> Balance:
    was, start = balance.period_start_at, period_start_at(balance.budget, now)
    if start > was:
        change = -_charged(connection, balance.budget, was, start)
    elif start < was:  # the clock was put back
        change = _charged(connection, balance.budget, start, was)
    else:
        return balance
    return replace(balance, charged_micros=balance.charged_micros + change, period_start_at=start)


def _charged(connection: Connection, budget: Budget, since: float, until: float | None) -> int:
    question = select(func.coalesce(func.sum(ledger.c.amount_micros), 0)).where(
        _under(budget), _IS_CHARGE, ledger.c.at >= since
    )
    if until is not None:
        question = question.where(ledger.c.at < until)
    return int(connection.execute(question).scalar_one())


def _under(budget: Budget) -> ColumnElement[bool]:
    """As :func:`hybrid.ledger.caps.falls_under`, for rows."""
    match budget.scope:
        case Scope.ORG:
            return true()
        case Scope.TEAM:
            return ledger.c.team == budget.subject
        case Scope.USER:
            return ledger.c.user_name == budget.subject
        case Scope.JOB:
            return ledger.c.job_id == budget.subject


def held_for(connection: Connection, claim_id: ClaimId) -> int:
    """What the ledger still holds for a claim."""
    return int(
        connection.execute(
            select(func.coalesce(func.sum(_HELD), 0)).where(ledger.c.claim_id == claim_id)
        ).scalar_one()
    )


def load_entries(connection: Connection, claim_id: ClaimId | None) -> tuple[LedgerEntry, ...]:
    """Ledger entries in the order they were written."""
    question = select(ledger).order_by(ledger.c.seq)
    if claim_id is not None:
        question = question.where(ledger.c.claim_id == claim_id)
    return tuple(
        LedgerEntry(
            id=row.id,
            kind=EntryKind(row.kind),
            claim_id=ClaimId(row.claim_id),
            amount_micros=row.amount_micros,
            at=row.at,
            team=row.team,
            user=row.user_name,
            job_id=JobId(row.job_id),
            memo=row.memo,
        )
        for row in connection.execute(question)
    )
