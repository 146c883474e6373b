"""The ledger itself says what balances are."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.budget import Period, Scope
from hybrid.domain.ledger_entry import EntryKind
from hybrid.ledger.replay import ClaimMoney, by_claim, mismatches, replay
from tests.doubles.build import NOW
from tests.doubles.committing import a_budget, an_entry

DAY_S = 86_400.0
ENTRIES = (
    an_entry("h1", 900, at=NOW - 3 * DAY_S),
    an_entry("c1", 300, EntryKind.CHARGE, at=NOW - 2 * DAY_S),
    an_entry("r1", 900, EntryKind.RELEASE, at=NOW - 2 * DAY_S),
    an_entry("h2", 500, claim_id="c2", team="blue"),
    an_entry("c2", 70, EntryKind.CHARGE, claim_id="c2", team="blue"),
    an_entry("s1", -20, EntryKind.SETTLEMENT),
)


def test_every_budget_counts_its_own_entries_in_its_own_period() -> None:
    budgets = (
        a_budget("ever"),
        a_budget("rolling", period=Period.ROLLING, rolling_days=1),
        a_budget("blues", scope=Scope.TEAM, subject="blue"),
    )
    balances = replay(budgets, ENTRIES, now=NOW)
    assert [(b.name, b.charged_micros, b.held_micros) for b in balances] == [
        ("ever", 350, 500),
        ("rolling", 50, 500),
        ("blues", 70, 500),
    ]
    assert balances[1].period_start_at == NOW - DAY_S


def test_balances_that_agree_have_no_mismatch() -> None:
    balances = replay((a_budget("a"), a_budget("b")), ENTRIES, now=NOW)
    assert mismatches(balances, balances) == ()


def test_a_balance_that_is_off_is_shown_with_both_values() -> None:
    true = replay((a_budget("a"), a_budget("b")), ENTRIES, now=NOW)
    kept = (true[0], replace(true[1], charged_micros=351, held_micros=0))
    (found,) = mismatches(kept, true)
    assert (found.budget, found.kept_charged_micros, found.true_charged_micros) == ("b", 351, 350)
    assert (found.kept_held_micros, found.true_held_micros) == (0, 500)
    assert str(found) == (
        "budget b: kept charged 351 and held 0 micro-dollars, the ledger says 350 and 500"
    )


def test_a_budget_that_only_one_side_knows_is_a_mismatch_unless_it_is_empty() -> None:
    a, b = replay((a_budget("a"), a_budget("b")), ENTRIES, now=NOW)
    assert [m.budget for m in mismatches((a,), (a, b))] == ["b"]
    assert [m.budget for m in mismatches((a, b), (a,))] == ["b"]
    empty = replay((a_budget("c"),), (), now=NOW)
    assert mismatches((a, *empty), (a,)) == ()


def test_the_ledger_says_what_each_claim_holds_and_has_cost() -> None:
    assert by_claim(ENTRIES) == {"c1": ClaimMoney(0, 280), "c2": ClaimMoney(500, 70)}
