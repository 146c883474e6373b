"""A budget that comes to a threshold is told of once in each of its periods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.event import EventKind
from hybrid.ledger.periods import period_start_at
from hybrid.ports.store import Bundle, Note, Remember
from hybrid.reconcile.thresholds import thresholds_reached
from hybrid.simulation.memory_store import MemoryStore

NOW = datetime(2026, 10, 31, 12, tzinfo=UTC).timestamp()
DAY_S = 86_400.0
THRESHOLDS = [
    {"at": 0.5, "action": "notify"},
    {"at": 0.9, "action": "no_new_claims"},
    {"at": 1.0, "action": "drain"},
]


def a_balance(used: float, now: float = NOW, **fields: Any) -> Balance:
    budget = Budget.model_validate(
        {"name": "all", "limit_usd": 10, "thresholds": THRESHOLDS, **fields}
    )
    return Balance(
        budget=budget,
        charged_micros=round(used * 1e6),
        period_start_at=period_start_at(budget, now),
    )


def told(bundles: tuple[Bundle, ...]) -> list[tuple[str, str]]:
    notes = [c.event for b in bundles for c in b.changes if isinstance(c, Note)]
    assert {note.kind for note in notes} <= {EventKind.BUDGET}
    return [(note.what, note.words) for note in notes]


def test_each_threshold_that_is_reached_is_told_with_the_sums() -> None:
    assert thresholds_reached((a_balance(4.99),), NOW, set()) == ()
    assert told(thresholds_reached((a_balance(9.25),), NOW, set())) == [
        ("threshold reached: notify", "50% of budget all: $9.25 of $10.00 charged and held"),
        ("threshold reached: no_new_claims", "90% of budget all: $9.25 of $10.00 charged and held"),
    ]


def test_an_overdrawn_budget_is_told_of_without_any_threshold() -> None:
    bundles = thresholds_reached((a_balance(12, thresholds=[]),), NOW, set())
    assert told(bundles) == [
        (
            "overdrawn",
            (
                "budget all is overdrawn by $2.00: $12.00 of $10.00 charged and held;"
                " nothing new is opened"
            ),
        )
    ]


def test_what_was_told_is_not_told_again_in_the_same_period() -> None:
    bundles = thresholds_reached((a_balance(6),), NOW, set())
    ids = {bundle.id for bundle in bundles}
    assert thresholds_reached((a_balance(7),), NOW + 3600, ids) == ()
    november = NOW + DAY_S
    again = thresholds_reached((a_balance(6, november),), november, ids)
    assert [told((bundle,))[0][0] for bundle in again] == ["threshold reached: notify"]


def test_a_restart_or_another_process_does_not_tell_again() -> None:
    store = MemoryStore()
    bundles = thresholds_reached((a_balance(6),), NOW, set())
    assert store.commit(bundles, at=NOW).dropped == ()
    done = store.commit(thresholds_reached((a_balance(6),), NOW + 60, set()), at=NOW + 60)
    assert [drop.cause for drop in done.dropped] == ["duplicate"]
    assert len(store.events()) == 1


def test_the_key_outlives_the_period() -> None:
    def until(balance: Balance) -> float:
        (bundle,) = thresholds_reached((balance,), NOW, set())
        (key,) = (c for c in bundle.changes if isinstance(c, Remember))
        return key.expires_at - NOW

    assert until(a_balance(6)) == 12 * 3600 + DAY_S
    assert until(a_balance(6, period="lifetime")) > 3650 * DAY_S
    assert until(a_balance(6, period="rolling", rolling_days=7)) > 14 * DAY_S


def test_a_rolling_window_is_another_one_when_none_of_the_old_is_left() -> None:
    week = {"period": "rolling", "rolling_days": 7}
    ids = {b.id for b in thresholds_reached((a_balance(6, **week),), NOW, set())}
    later = NOW + 7 * DAY_S
    assert thresholds_reached((a_balance(6, later, **week),), later, ids) != ()
