"""Which budgets an entry falls under, and whether a hold still fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from hybrid.domain.budget import Balance, Budget, Scope, Threshold
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.money import to_micros
from hybrid.domain.reasons import NoBudget, OverBudget


def falls_under(budget: Budget, *, team: str, user: str, job_id: str) -> bool:
    """Whether spending of a team, user and job counts against a budget.

    A budget of a team, user or job that names none covers nobody.
    """
    match budget.scope:
        case Scope.ORG:
            return True
        case Scope.TEAM:
            return budget.subject == team
        case Scope.USER:
            return budget.subject == user
        case _:
            return budget.subject == job_id


def covers(budget: Budget, entry: LedgerEntry) -> bool:
    """Whether an entry counts against a budget."""
    return falls_under(budget, team=entry.team, user=entry.user, job_id=entry.job_id)


def limit_micros(budget: Budget) -> int:
    """A budget's limit."""
    return to_micros(budget.limit_usd)


def used_micros(balance: Balance) -> int:
    """Charges and holds together."""
    return balance.charged_micros + balance.held_micros


def free_micros(balance: Balance) -> int:
    """What may still be held; negative when overdrawn (a larger bill, or a lowered limit)."""
    return limit_micros(balance.budget) - used_micros(balance)


def overdrawn(balance: Balance) -> bool:
    """Whether more is charged and held than the limit: nothing new is opened then."""
    return free_micros(balance) < 0


def reached(balance: Balance) -> tuple[Threshold, ...]:
    """The thresholds that charges and holds have come to, lowest first. A limit of nothing has
    reached them all."""
    limit, used = limit_micros(balance.budget), used_micros(balance)
    passed = (t for t in balance.budget.thresholds if used >= Decimal(repr(t.at)) * limit)
    return tuple(sorted(passed, key=lambda t: (t.at, t.action)))


def fits(balances: Iterable[Balance], entry: LedgerEntry) -> OverBudget | NoBudget | None:
    """Why a hold may not be opened: the first budget, in the given order, that it would pass, or
    that no budget covers it (without one nothing is spent). None when it fits.

    ``balances`` are of the period the hold is opened in. What is no hold always fits: money that
    has been spent is written down whatever the limit.
    """
    if entry.kind is not EntryKind.HOLD:
        return None
    covering = [balance for balance in balances if covers(balance.budget, entry)]
    if not covering:
        return NoBudget(entry.team)
    for balance in covering:
        free = free_micros(balance)
        if entry.amount_micros > free:
            return OverBudget(balance.name, entry.amount_micros, free)
    return None


def held_change_micros(entry: LedgerEntry) -> int:
    """By how much an entry changes what is held."""
    match entry.kind:
        case EntryKind.HOLD:
            return entry.amount_micros
        case EntryKind.RELEASE:
            return -entry.amount_micros
        case _:
            return 0


def charged_change_micros(entry: LedgerEntry) -> int:
    """By how much an entry changes what is charged."""
    return entry.amount_micros if entry.kind in (EntryKind.CHARGE, EntryKind.SETTLEMENT) else 0


def after(balance: Balance, entry: LedgerEntry) -> Balance:
    """A balance once an entry is written.

    What is held counts whenever it was opened; what was charged counts in the period its entry is
    dated in, so one dated before this period leaves it as it is.
    """
    if not covers(balance.budget, entry):
        return balance
    charged = charged_change_micros(entry) if entry.at >= balance.period_start_at else 0
    return replace(
        balance,
        charged_micros=balance.charged_micros + charged,
        held_micros=balance.held_micros + held_change_micros(entry),
    )
