"""Budgets that have come to a threshold, or are overdrawn: told once in each of their periods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass

from hybrid.domain.budget import Balance, Period
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.money import cents
from hybrid.ledger.caps import free_micros, limit_micros, overdrawn, reached, used_micros
from hybrid.ledger.periods import DAY_S, next_period_at
from hybrid.ports.store import Bundle, Note, Remember

TEAM = ""
"""No team is called so: these keys meet nobody's."""

_FOR_GOOD_S = 3660 * DAY_S


@dataclass(frozen=True, slots=True)
class _Told:
    key: str
    what: str
    words: str


def thresholds_reached(
    balances: tuple[Balance, ...], now: float, told: Set[str]
) -> tuple[Bundle, ...]:
    """One bundle for each threshold that is reached and not among ``told`` (by the bundles' ids).

    Each holds a key that is kept until the budget's period is over: whoever has told it already,
    before a restart or in another process, drops the bundle as a duplicate.
    """
    return tuple(
        _bundle(balance, each, now)
        for balance in balances
        for each in _reached(balance, now)
        if each.key not in told
    )


def _bundle(balance: Balance, told: _Told, now: float) -> Bundle:
    event = Event(
        kind=EventKind.BUDGET,
        subject=f"budget:{balance.name}",
        what=told.what,
        at=now,
        words=told.words,
    )
    expires_at = next_period_at(balance.budget, now)
    remember = Remember(
        team=TEAM,
        key=told.key,
        body_sha256="",
        job_id=JobId(""),
        at=now,
        expires_at=now + _FOR_GOOD_S if expires_at is None else expires_at + DAY_S,
    )
    return Bundle(id=told.key, changes=(remember, Note(event)))


def _reached(balance: Balance, now: float) -> Iterator[_Told]:
    period = _period(balance, now)
    sums = f"${cents(used_micros(balance))} of ${cents(limit_micros(balance.budget))}"
    for threshold in reached(balance):
        yield _Told(
            f"budget/{balance.name}/{period}/{threshold.at:g}/{threshold.action}",
            f"threshold reached: {threshold.action}",
            f"{threshold.at:.0%} of budget {balance.name}: {sums} charged and held",
        )
    if overdrawn(balance):
        yield _Told(
            f"budget/{balance.name}/{period}/overdrawn",
            "overdrawn",
            f"budget {balance.name} is overdrawn by ${cents(-free_micros(balance))}: {sums}"
            " charged and held; nothing new is opened",
        )


def _period(balance: Balance, now: float) -> str:
    """A name for the period; a rolling window has a new one when none of the old is left in it."""
    budget = balance.budget
    if budget.period is Period.ROLLING:
        return f"{budget.period}-{budget.rolling_days}-{int(now // (budget.rolling_days * DAY_S))}"
    return f"{budget.period}-{math.floor(balance.period_start_at)}"
