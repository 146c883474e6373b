"""Balances in rows, kept in step with the ledger inside one transaction.

A row says what the ledger comes to since its window began. Another instant has another window (a
new month, or a rolling one that went on): only the entries between the two beginnings are summed
up to get from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from hybrid.ledger.caps import held_change_micros
from hybrid.ledger.periods import period_start_at
from hybrid.ledger.replay import replay
from hybrid.ports.store import Spender, TeamMoney
from hybrid.store.documents import dump, load
from hybrid.store.ground import Account
from hybrid.store.tables import balances, ledger

_HELD = case(
    (ledger.c.kind == EntryKind.HOLD.value, ledger.c.amount_micros),
    (ledger.c.kind == EntryKind.RELEASE.value, -ledger.c.amount_micros),
    else_=0,
)
_AT_ONCE = 5_000
"""Entries that are fetched together."""

_IS_CHARGE = ledger.c.kind.in_([EntryKind.CHARGE.value, EntryKind.SETTLEMENT.value])


class Money:
    """The money side of one transaction, in the budget periods of ``at``."""

    def __init__(self, connection: Connection, at: float) -> None:
        self._connection = connection
        self.at = at
        self._rows: tuple[Balance, ...] | None = None

    def open(self) -> Account:
        """The account as the rows have it."""
        if self._rows is None:
            self._rows = _rows(self._connection)
        return Account(tuple(_moved(self._connection, row, self.at) for row in self._rows))

    def knows(self, account: Account, entry_id: str) -> bool:
        """Whether there is an entry of that id."""
        if any(entry.id == entry_id for entry in account.entries):
            return True
        known = select(ledger.c.seq).where(ledger.c.id == entry_id)
        return self._connection.execute(known).first() is not None

    def held_for(self, account: Account, claim_id: ClaimId) -> int:
        """What is still held for a claim."""
        stored = self._connection.execute(
            select(func.coalesce(func.sum(_HELD), 0)).where(ledger.c.claim_id == claim_id)
        ).scalar_one()
        pending = (e for e in account.entries if e.claim_id == claim_id)
        return int(stored) + sum(held_change_micros(entry) for entry in pending)

    def with_budgets(self, account: Account, budgets: Sequence[Budget]) -> Account:
        """The account under other budgets; what each comes to is read from the ledger."""
        read = [self._from_ledger(budget) for budget in budgets]
        pending = replay(budgets, account.entries, now=self.at)
        return replace(
            account,
            balances=tuple(
                replace(
                    balance,
                    charged_micros=balance.charged_micros + more.charged_micros,
                    held_micros=balance.held_micros + more.held_micros,
                )
                for balance, more in zip(read, pending, strict=True)
            ),
        )

    def save(self, account: Account) -> None:
        """Write the balances that are not as their rows have them. That a window has moved counts
        too: an entry dated before it is in no sum that the old row could be brought up to."""
        was, now = self._rows or (), account.balances
        if now == was:
            return
        if [b.budget for b in now] == [b.budget for b in was]:
            changed = [b for b, old in zip(now, was, strict=True) if b != old]
            self._connection.execute(
                update(balances).where(balances.c.name == bindparam("key")),
                [{"key": b.name, **_sums(b)} for b in changed],
            )
        else:
            self._connection.execute(delete(balances))
            if now:
                rows = [
                    {"name": b.name, "position": place, "doc": dump(b.budget), **_sums(b)}
                    for place, b in enumerate(now)
                ]
                self._connection.execute(insert(balances), rows)
        self._rows = now

    def _from_ledger(self, budget: Budget) -> Balance:
        start = period_start_at(budget, self.at)
        held = self._connection.execute(
            select(func.coalesce(func.sum(_HELD), 0)).where(_under(budget))
        ).scalar_one()
        return Balance(
            budget=budget,
            charged_micros=_charged(self._connection, budget, start, None),
            held_micros=int(held),
            period_start_at=start,
        )


def _sums(balance: Balance) -> dict[str, int | float]:
    return {
        "charged_micros": balance.charged_micros,
        "held_micros": balance.held_micros,
        "window_start_at": balance.period_start_at,
    }


def load_balances(connection: Connection, now: float) -> tuple[Balance, ...]:
    """Every budget in the period of ``now``, in the order they were set."""
    return tuple(_moved(connection, balance, now) for balance in _rows(connection))


def _rows(connection: Connection) -> tuple[Balance, ...]:
    """The balances as they were written, in the periods of that time."""
    rows = connection.execute(select(balances).order_by(balances.c.position))
    return tuple(
        Balance(
            budget=load(Budget, row.doc),
            charged_micros=row.charged_micros,
            held_micros=row.held_micros,
            period_start_at=row.window_start_at,
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


def load_entries(connection: Connection, claim_id: ClaimId | None) -> tuple[LedgerEntry, ...]:
    """Ledger entries in the order they were written."""
    return tuple(entries_of(connection, claim_id))


def entries_of(connection: Connection, claim_id: ClaimId | None) -> Iterator[LedgerEntry]:
    """The same one by one: a whole ledger may be more than memory should hold."""
    question = select(ledger).order_by(ledger.c.seq)
    if claim_id is not None:
        question = question.where(ledger.c.claim_id == claim_id)
    for row in connection.execute(question.execution_options(yield_per=_AT_ONCE)):
        yield LedgerEntry(
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


def count_entries(connection: Connection) -> int:
    """How many entries there are."""
    return int(connection.execute(select(func.count()).select_from(ledger)).scalar_one())


def load_team_sums(connection: Connection, since: float) -> tuple[TeamMoney, ...]:
    """What each team has been charged since an instant, and what is held for it now, by team."""
    charged = case((ledger.c.at >= since, ledger.c.amount_micros), else_=0)
    question = (
        select(
            ledger.c.team,
            func.sum(case((_IS_CHARGE, charged), else_=0)).label("charged"),
            func.sum(_HELD).label("held"),
        )
        .group_by(ledger.c.team)
        .order_by(ledger.c.team)
    )
    return tuple(
        TeamMoney(row.team, int(row.charged), int(row.held)) for row in connection.execute(question)
    )


def load_spenders(
    connection: Connection,
    budget: Budget,
    since: float,
    limit: int,
    teams: Sequence[str] | None,
) -> tuple[Spender, ...]:
    """Who has been charged most under a budget since an instant, most first."""
    total = func.sum(ledger.c.amount_micros).label("total")
    question = (
        select(ledger.c.team, ledger.c.user_name, total)
        .where(_under(budget), _IS_CHARGE, ledger.c.at >= since)
        .group_by(ledger.c.team, ledger.c.user_name)
        .order_by(total.desc(), ledger.c.team, ledger.c.user_name)
        .limit(limit)
    )
    if teams is not None:
        question = question.where(ledger.c.team.in_(teams))
    return tuple(
        Spender(row.team, row.user_name, int(row.total)) for row in connection.execute(question)
    )
