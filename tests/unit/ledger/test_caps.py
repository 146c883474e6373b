"""Which budgets an entry falls under, and whether a hold still fits."""

from __future__ import annotations

import pytest

from hybrid.domain.budget import Balance, Budget, Scope, Threshold, ThresholdAction
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.reasons import NoBudget, OverBudget
from hybrid.ledger.caps import (
    after,
    covers,
    fits,
    free_micros,
    limit_micros,
    overdrawn,
    reached,
    used_micros,
)
from tests.doubles.build import NOW
from tests.doubles.committing import a_budget, an_entry


def a_balance(budget: Budget | None = None, charged: int = 0, held: int = 0) -> Balance:
    return Balance(
        budget=budget or a_budget(limit_usd=1),
        charged_micros=charged,
        held_micros=held,
        period_start_at=NOW - 60,
    )


@pytest.mark.parametrize(
    ("scope", "subject", "falls"),
    [
        (Scope.ORG, None, True),
        (Scope.TEAM, "red", True),
        (Scope.TEAM, "blue", False),
        (Scope.TEAM, None, False),
        (Scope.USER, "ann", True),
        (Scope.USER, "red", False),
        (Scope.JOB, "j1", True),
        (Scope.JOB, "j2", False),
    ],
)
def test_an_entry_falls_under_its_own_scopes(
    scope: Scope, subject: str | None, falls: bool
) -> None:
    budget = a_budget(scope=scope, subject=subject)
    assert covers(budget, an_entry("h", 1)) is falls


def test_a_hold_fits_up_to_the_last_micro_dollar() -> None:
    balance = a_balance(charged=300_000, held=200_000)
    assert (used_micros(balance), free_micros(balance)) == (500_000, 500_000)
    assert fits([balance], an_entry("h", 500_000)) is None
    assert fits([balance], an_entry("h", 500_001)) == OverBudget("org", 500_001, 500_000)


def test_the_first_budget_that_refuses_is_named() -> None:
    wide = a_balance(a_budget("wide", 10))
    tight = a_balance(a_budget("tight", 1))
    tighter = a_balance(a_budget("tighter", 0.5))
    assert fits([wide, tight, tighter], an_entry("h", 2_000_000)) == OverBudget(
        "tight", 2_000_000, 1_000_000
    )


def test_budgets_of_others_do_not_matter() -> None:
    mine = a_balance()
    blues = a_balance(a_budget("blues", 0, scope=Scope.TEAM, subject="blue"))
    assert fits([blues, mine], an_entry("h", 1)) is None


def test_without_a_budget_nothing_is_spent() -> None:
    blues = a_balance(a_budget("blues", 9, scope=Scope.TEAM, subject="blue"))
    assert fits([blues], an_entry("h", 1)) == NoBudget("red")
    assert fits([], an_entry("h", 0)) == NoBudget("red")


@pytest.mark.parametrize("kind", [EntryKind.RELEASE, EntryKind.CHARGE, EntryKind.SETTLEMENT])
def test_only_holds_can_be_too_much(kind: EntryKind) -> None:
    assert fits([], an_entry("e", 10**12, kind)) is None


def test_nothing_more_is_held_under_an_overdrawn_budget() -> None:
    balance = a_balance(charged=1_000_001)
    assert overdrawn(balance)
    assert not overdrawn(a_balance(charged=1_000_000))
    assert fits([balance], an_entry("h", 0)) == OverBudget("org", 0, -1)


def test_limits_are_exact_to_the_micro_dollar() -> None:
    assert limit_micros(a_budget(limit_usd="0.000001")) == 1
    assert limit_micros(a_budget(limit_usd="1000000000")) == 10**15


@pytest.mark.parametrize(
    ("kind", "micros", "charged", "held"),
    [
        (EntryKind.HOLD, 7, 100, 207),
        (EntryKind.RELEASE, 7, 100, 193),
        (EntryKind.CHARGE, 7, 107, 200),
        (EntryKind.SETTLEMENT, -7, 93, 200),
    ],
)
def test_entries_change_what_they_are_about(
    kind: EntryKind, micros: int, charged: int, held: int
) -> None:
    changed = after(a_balance(charged=100, held=200), an_entry("e", micros, kind))
    assert (changed.charged_micros, changed.held_micros) == (charged, held)


def test_a_charge_dated_before_the_period_leaves_it_and_a_hold_does_not() -> None:
    balance = a_balance(charged=100, held=200)
    old = NOW - 61
    assert after(balance, an_entry("c", 7, EntryKind.CHARGE, at=old)) == balance
    assert after(balance, an_entry("h", 7, at=old)).held_micros == 207


def test_an_entry_of_others_changes_nothing() -> None:
    blues = a_balance(a_budget("blues", 9, scope=Scope.TEAM, subject="blue"))
    assert after(blues, an_entry("h", 7)) == blues


def test_thresholds_are_reached_by_charges_and_holds_together() -> None:
    notify = Threshold(at=0.5, action=ThresholdAction.NOTIFY)
    freeze = Threshold(at=0.9, action=ThresholdAction.NO_NEW_CLAIMS)
    drain = Threshold(at=1.0, action=ThresholdAction.DRAIN)
    budget = a_budget(limit_usd=1, thresholds=(drain, notify, freeze))
    assert reached(a_balance(budget, 400_000, 99_999)) == ()
    assert reached(a_balance(budget, 400_000, 100_000)) == (notify,)
    assert reached(a_balance(budget, 400_000, 500_000)) == (notify, freeze)
    assert reached(a_balance(budget, 2_000_000)) == (notify, freeze, drain)
    assert reached(a_balance(a_budget(limit_usd=0, thresholds=(drain, notify, freeze)))) == (
        notify,
        freeze,
        drain,
    )


def test_a_threshold_is_reached_exactly_where_it_says() -> None:
    notify = Threshold(at=0.07, action=ThresholdAction.NOTIFY)  # as floats, 0.07 * 1e8 > 7000000
    budget = a_budget(limit_usd=100, thresholds=(notify,))
    assert reached(a_balance(budget, 7_000_000)) == (notify,)
    assert reached(a_balance(budget, 6_999_999)) == ()
