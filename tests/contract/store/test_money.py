"""Caps hold: under the transaction, across periods, and whoever commits at the same time."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier

from hybrid.domain.budget import Balance, Period, Scope
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind
from hybrid.ledger.replay import replay
from hybrid.ports.store import Bundle, DropCause, Put, SetBudgets, Spender, TeamMoney
from tests.contract.store.conftest import Place, WholeStore
from tests.doubles.build import NOW, a_claim, a_job, a_run
from tests.doubles.committing import (
    a_budget,
    an_entry,
    change,
    drops,
    holding,
    post,
    put,
    set_budgets,
)

DAY_S = 86_400.0


def amounts(store: WholeStore, name: str = "org", now: float = NOW) -> tuple[int, int]:
    """Charged and held micro-dollars of a budget."""
    (balance,) = (b for b in store.balances(now=now) if b.name == name)
    return balance.charged_micros, balance.held_micros


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


# --- caps --------------------------------------------------------------------------------------


def test_a_hold_over_the_budget_is_dropped_and_the_rest_kept(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    done = store.commit(
        [holding("h1", 600_000), holding("h2", 600_000), holding("h3", 400_000)],
        at=NOW,
        accept=lambda dropped: dropped == {"h2"},
    )
    assert done.applied == ("h1", "h3")
    assert drops(done) == {"h2": DropCause.OVER_BUDGET}
    assert done.dropped[0].words == "budget org has $0.40 free; the worst case needs $0.60"
    assert amounts(store) == (0, 1_000_000)
    assert [entry.id for entry in store.entries()] == ["h1", "h3"]


def test_a_hold_must_fit_every_budget_it_falls_under(store: WholeStore) -> None:
    set_budgets(
        store,
        a_budget("org", 10),
        a_budget("reds", 2, scope=Scope.TEAM, subject="red"),
        a_budget("ann", 1, scope=Scope.USER, subject="ann"),
        a_budget("job", 0.5, scope=Scope.JOB, subject="j1"),
    )
    done = store.commit(
        [
            holding("job", 500_001),
            holding("ann", 1_000_001, job_id="j2"),
            holding("red", 2_000_001, job_id="j2", user="bob"),
            holding("org", 10_000_001, team="blue", user="bob", job_id="j2"),
            holding("fits", 500_000),
        ],
        at=NOW,
    )
    assert done.applied == ("fits",)
    assert all(cause is DropCause.OVER_BUDGET for cause in drops(done).values())
    assert [amounts(store, name) for name in ("org", "reds", "ann", "job")] == [(0, 500_000)] * 4


def test_without_a_budget_nothing_is_held(store: WholeStore) -> None:
    set_budgets(store, a_budget("reds", 2, scope=Scope.TEAM, subject="red"))
    done = store.commit([holding("h1", 1, team="blue")], at=NOW)
    assert drops(done) == {"h1": DropCause.OVER_BUDGET}
    assert "no budget covers team blue" in done.dropped[0].words


def test_a_claim_is_not_opened_when_its_hold_does_not_fit(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    bundle = Bundle(id="burst", changes=(Put(a_claim("c1", version=0)), post("h1", 1_000_001)))
    assert drops(store.commit([bundle], at=NOW)) == {"burst": DropCause.OVER_BUDGET}
    assert store.claim(ClaimId("c1")) is None


def test_money_of_a_bundle_dropped_for_another_reason_is_free_for_the_next(
    store: WholeStore,
) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    stale = Bundle(id="stale", changes=(post("h1", 1_000_000), Put(a_job("j1", version=7))))
    done = store.commit([stale, holding("h2", 1_000_000)], at=NOW)
    assert (done.applied, drops(done)) == (("h2",), {"stale": DropCause.MOVED})
    assert amounts(store) == (0, 1_000_000)


def test_money_of_a_bundle_that_an_index_refuses_is_free_for_the_next(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))

    orphan = Bundle(id="orphan", changes=(post("h1", 1_000_000), Put(a_run("nobody", version=0))))
    done = store.commit([orphan, holding("h2", 900_000), holding("h3", 200_000)], at=NOW)
    assert done.applied == ("h2",)
    assert drops(done) == {"orphan": DropCause.CONFLICT, "h3": DropCause.OVER_BUDGET}
    assert amounts(store) == (0, 900_000)


def test_a_lowered_limit_overdraws_and_nothing_new_is_opened(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    store.commit([holding("h1", 800_000)], at=NOW)
    set_budgets(store, a_budget(limit_usd=0.5))
    assert amounts(store) == (0, 800_000)
    assert drops(store.commit([holding("h2", 1)], at=NOW)) == {"h2": DropCause.OVER_BUDGET}


def test_what_is_spent_is_written_down_whatever_the_limit(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    change(store, post("c1", 5_000_000, EntryKind.CHARGE))
    assert amounts(store) == (5_000_000, 0)


# --- entries -----------------------------------------------------------------------------------


def test_a_release_gives_back_and_a_charge_spends(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1))
    change(store, post("hold:c1:0", 900_000))
    change(
        store,
        post("charge:c1", 300_000, EntryKind.CHARGE),
        post("release:c1", 900_000, EntryKind.RELEASE),
    )
    assert amounts(store) == (300_000, 0)
    change(store, post("bill:c1", -20_000, EntryKind.SETTLEMENT))
    assert amounts(store) == (280_000, 0)
    assert [entry.kind for entry in store.entries(claim_id=ClaimId("c1"))] == [
        EntryKind.HOLD,
        EntryKind.CHARGE,
        EntryKind.RELEASE,
        EntryKind.SETTLEMENT,
    ]
    assert store.entries(claim_id=ClaimId("c2")) == ()


def test_an_entry_is_read_back_as_it_was_written(store: WholeStore) -> None:
    set_budgets(store, a_budget())
    entry = an_entry("h1", 5, memo="first lease")
    change(store, post("h1", 5, memo="first lease"))
    assert store.entries() == (entry,)


def test_an_entry_is_written_once(store: WholeStore) -> None:
    set_budgets(store, a_budget())
    change(store, post("h1", 100))
    done = store.commit([holding("h1", 100), holding("h2", 100), holding("h2", 100)], at=NOW)
    assert done.applied == ("h2",)
    assert [drop.cause for drop in done.dropped] == [DropCause.DUPLICATE, DropCause.DUPLICATE]
    assert amounts(store) == (0, 200)


def test_no_more_is_released_than_is_held_for_the_claim(store: WholeStore) -> None:
    set_budgets(store, a_budget())
    change(store, post("h1", 100), post("h2", 100, claim_id="c2"))
    release = Bundle(id="r", changes=(post("r1", 101, EntryKind.RELEASE),))
    assert drops(store.commit([release], at=NOW)) == {"r": DropCause.CONFLICT}
    change(store, post("h3", 1), post("r2", 101, EntryKind.RELEASE))
    assert amounts(store) == (0, 100)


def test_only_settlements_may_be_negative(store: WholeStore) -> None:
    set_budgets(store, a_budget())
    for kind in (EntryKind.HOLD, EntryKind.CHARGE, EntryKind.RELEASE):
        bundle = Bundle(id="b", changes=(post("e", -1, kind),))
        assert drops(store.commit([bundle], at=NOW)) == {"b": DropCause.CONFLICT}


# --- budgets -----------------------------------------------------------------------------------


def test_a_new_budget_counts_what_was_spent_before_it(store: WholeStore) -> None:
    set_budgets(store, a_budget("org", 10))
    change(store, post("h1", 700), post("c1", 300, EntryKind.CHARGE, at=NOW - DAY_S))
    set_budgets(store, a_budget("reds", 5, scope=Scope.TEAM, subject="red"), a_budget("org", 9))
    assert [b.name for b in store.balances(now=NOW)] == ["reds", "org"]
    assert amounts(store, "reds") == amounts(store, "org") == (300, 700)
    set_budgets(store)
    assert store.balances(now=NOW) == ()


def test_budgets_and_holds_of_one_commit_see_each_other(store: WholeStore) -> None:
    set_budgets(store, a_budget("org", 10))
    budgets = Bundle(id="budgets", changes=(SetBudgets((a_budget("org", 1),)),))
    done = store.commit([holding("h1", 900_000), budgets, holding("h2", 200_000)], at=NOW)
    assert done.applied == ("h1", "budgets")
    assert drops(done) == {"h2": DropCause.OVER_BUDGET}
    assert amounts(store) == (0, 900_000)


def test_budgets_that_make_no_sense_are_refused(store: WholeStore) -> None:
    twins = Bundle(id="twins", changes=(SetBudgets((a_budget(), a_budget())),))
    nowhere = a_budget(period=Period.DAY, timezone="Mars/Olympus_Mons")
    lost = Bundle(id="lost", changes=(SetBudgets((nowhere,)),))
    assert drops(store.commit([twins, lost], at=NOW)) == {
        "twins": DropCause.CONFLICT,
        "lost": DropCause.CONFLICT,
    }


# --- periods -----------------------------------------------------------------------------------


def test_a_new_month_begins_with_nothing_charged_and_what_is_held(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1, period=Period.MONTH, timezone="Europe/Berlin"))
    end = at("2026-03-31T21:59:59")  # one second before April in Berlin
    change(
        store,
        post("h1", 100_000, at=end),
        post("c1", 800_000, EntryKind.CHARGE, at=end),
        at=end,
    )
    assert amounts(store, now=end) == (800_000, 100_000)
    assert amounts(store, now=end + 1) == (0, 100_000)
    late = holding("h2", 200_000, at=end)
    assert drops(store.commit([late], at=end)) == {"h2": DropCause.OVER_BUDGET}
    assert store.commit([replace(late)], at=end + 1).applied == ("h2",)
    assert amounts(store, now=end + 1) == (0, 300_000)


def test_a_late_charge_counts_in_the_period_of_its_date(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1, period=Period.DAY))
    midnight = at("2026-05-02T00:00:00")
    change(store, post("c1", 40, EntryKind.CHARGE, at=midnight - 1), at=midnight + 60)
    change(store, post("c2", 2, EntryKind.CHARGE, at=midnight), at=midnight + 60)
    assert amounts(store, now=midnight + 60) == (2, 0)
    assert amounts(store, now=midnight - 60) == (42, 0)


def test_a_rolling_window_leaves_old_charges_behind(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1, period=Period.ROLLING, rolling_days=7))
    for day in range(10):
        moment = NOW + day * DAY_S
        change(store, post(f"c{day}", 10**day, EntryKind.CHARGE, at=moment), at=moment)
    assert amounts(store, now=NOW + 9 * DAY_S) == (1_111_111_100, 0)
    assert amounts(store, now=NOW + 9 * DAY_S + 1) == (1_111_111_000, 0)
    assert amounts(store, now=NOW + 30 * DAY_S) == (0, 0)


def test_a_clock_put_back_finds_the_earlier_period_as_it_was(store: WholeStore) -> None:
    set_budgets(store, a_budget(limit_usd=1, period=Period.DAY))
    first = at("2026-05-01T12:00:00")
    change(store, post("c1", 5, EntryKind.CHARGE, at=first), at=first)
    change(store, post("c2", 7, EntryKind.CHARGE, at=first + DAY_S), at=first + DAY_S)
    change(store, post("c3", 1, EntryKind.CHARGE, at=first), at=first)
    assert amounts(store, now=first) == (13, 0)  # what is dated later counts as well
    assert amounts(store, now=first + DAY_S) == (7, 0)


def test_kept_balances_are_what_replaying_the_ledger_gives(place: Place) -> None:
    store = place.open()
    dice = random.Random(4)
    budgets = (
        a_budget("org", 30),
        a_budget("day", 5, period=Period.DAY, timezone="America/Sao_Paulo"),
        a_budget("week", 10, scope=Scope.TEAM, subject="red", period=Period.WEEK),
        a_budget("roll", 9, scope=Scope.USER, subject="u1", period=Period.ROLLING, rolling_days=2),
    )
    set_budgets(store, *budgets)
    now = NOW
    for step in range(60):
        now += dice.choice((5.0, 600.0, 30_000.0))
        claim = f"c{dice.randrange(4)}"
        who = {"team": dice.choice(("red", "blue")), "user": f"u{dice.randrange(2)}"}
        bundles = [
            Bundle(
                id=str(i),
                changes=(
                    post(
                        f"{step}.{i}",
                        dice.randrange(0, 2_000_000),
                        dice.choice(tuple(EntryKind)),
                        claim_id=claim,
                        at=now - dice.choice((0.0, 0.0, 50_000.0)),
                        **who,
                    ),
                ),
            )
            for i in range(3)
        ]
        store.commit(bundles, at=now)
        assert store.balances(now=now) == replay(budgets, store.entries(), now=now)
    assert len(store.entries()) > 60
    assert store.verify_balances(now=now + DAY_S) == ()  # type: ignore[attr-defined]


# --- at the same time --------------------------------------------------------------------------


def test_of_twenty_who_hold_at_once_exactly_as_many_go_through_as_fit(place: Place) -> None:
    set_budgets(place.open(), a_budget(limit_usd=1))
    stores = [place.open() for _ in range(4)]
    together = Barrier(20)

    def hold(i: int) -> tuple[str, ...]:
        together.wait(timeout=30)
        return stores[i % 4].commit([holding(f"h{i}", 100_000)], at=NOW).applied

    with ThreadPoolExecutor(20) as threads:
        applied = [id_ for ids in threads.map(hold, range(20)) for id_ in ids]
    store = stores[0]
    assert len(applied) == 10
    assert sorted(entry.id for entry in store.entries()) == sorted(applied)
    assert amounts(store) == (0, 1_000_000)
    assert store.load(now=NOW).revision == 11


def test_of_many_who_change_one_row_at_once_one_goes_through(place: Place) -> None:
    put(place.open(), a_job("j1", version=0))
    stores = [place.open() for _ in range(2)]
    together = Barrier(8)

    def write(i: int) -> tuple[str, ...]:
        together.wait(timeout=30)
        job = a_job("j1", version=1, reason=f"writer {i}")
        return stores[i % 2].commit([Bundle(id=str(i), changes=(Put(job),))], at=NOW).applied

    with ThreadPoolExecutor(8) as threads:
        applied = [id_ for ids in threads.map(write, range(8)) for id_ in ids]
    assert len(applied) == 1


def test_a_balance_shows_its_budget_and_the_start_of_its_period(store: WholeStore) -> None:
    budget = a_budget(period=Period.DAY)
    set_budgets(store, budget)
    midnight = at("2026-05-02T00:00:00")
    assert store.balances(now=midnight + 5) == (Balance(budget=budget, period_start_at=midnight),)


# --- under other budgets -------------------------------------------------------------------------


def test_what_balances_would_be_under_other_budgets_is_asked_and_nothing_kept(
    store: WholeStore,
) -> None:
    set_budgets(store, a_budget("org", 10))
    change(
        store,
        post("h1", 600_000),
        post("c1", 200_000, EntryKind.CHARGE, team="blue"),
        post("c2", 300_000, EntryKind.CHARGE, at=NOW - 40 * DAY_S),
    )
    others = (
        a_budget("reds", 1, scope=Scope.TEAM, subject="red"),
        a_budget("monthly", 5, period=Period.ROLLING, rolling_days=30),
    )
    assert [
        (b.name, b.charged_micros, b.held_micros) for b in store.balances(now=NOW, under=others)
    ] == [("reds", 300_000, 600_000), ("monthly", 200_000, 600_000)]
    assert store.balances(now=NOW, under=()) == ()
    assert [b.name for b in store.balances(now=NOW)] == ["org"]


def test_who_was_charged_most_under_a_budget_since_an_instant(store: WholeStore) -> None:
    set_budgets(store, a_budget("org", 10))
    change(
        store,
        post("hold:c1:0", 900_000),
        post("charge:c1", 300_000, EntryKind.CHARGE),
        post("charge:c2", 500_000, EntryKind.CHARGE, team="blue", user="bob"),
        post("bill:c2", -250_000, EntryKind.SETTLEMENT, team="blue", user="bob"),
        post("charge:c3", 200_000, EntryKind.CHARGE, user="eve"),
        post("charge:c4", 900_000, EntryKind.CHARGE, at=NOW - DAY_S),
    )
    org = a_budget("org", 10)
    assert store.spenders(org, since=NOW, limit=2) == (
        Spender("red", "ann", 300_000),
        Spender("blue", "bob", 250_000),
    )
    assert store.spenders(org, since=0, limit=1) == (Spender("red", "ann", 1_200_000),)
    assert store.spenders(org, since=NOW, limit=9, teams=("blue",)) == (
        Spender("blue", "bob", 250_000),
    )
    reds = a_budget("reds", 1, scope=Scope.TEAM, subject="red")
    assert [s.user for s in store.spenders(reds, since=NOW, limit=9)] == ["ann", "eve"]


def test_what_each_team_was_charged_since_an_instant_and_what_is_held_for_it(
    store: WholeStore,
) -> None:
    set_budgets(store, a_budget("org", 10))
    change(
        store,
        post("hold:c1:0", 900_000),
        post("release:c1", 200_000, EntryKind.RELEASE),
        post("charge:c1", 300_000, EntryKind.CHARGE),
        post("charge:c0", 500_000, EntryKind.CHARGE, at=NOW - DAY_S),
        post("charge:c2", 400_000, EntryKind.CHARGE, team="blue"),
        post("bill:c2", -50_000, EntryKind.SETTLEMENT, team="blue"),
    )
    assert store.team_sums(since=NOW) == (
        TeamMoney("blue", 350_000, 0),
        TeamMoney("red", 300_000, 700_000),
    )
    assert store.team_sums(since=0)[1] == TeamMoney("red", 800_000, 700_000)
