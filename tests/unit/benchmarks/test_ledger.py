"""The ledger benchmark on ledgers of a few entries."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ledger import BUDGETS, NOW, compare, entries, fill, measure
from hybrid.domain.ledger_entry import EntryKind


def test_the_history_holds_charges_and_releases_each_claim(tmp_path: Path) -> None:
    rows = list(entries(300))
    assert len(rows) == 300
    assert {row["kind"] for row in rows} == {EntryKind.HOLD, EntryKind.CHARGE, EntryKind.RELEASE}
    with fill(f"sqlite:///{tmp_path / 'a.db'}", 300) as store:
        assert len(store.entries()) == 300
        balances = {balance.name: balance for balance in store.balances(now=NOW)}
        assert set(balances) == {budget.name for budget in BUDGETS}
        assert balances["ever"].held_micros == 0
        assert balances["ever"].charged_micros > balances["all"].charged_micros > 0


def test_rounds_leave_nothing_held_and_balances_as_the_ledger_says(tmp_path: Path) -> None:
    with (
        fill(f"sqlite:///{tmp_path / 'a.db'}", 30) as short,
        fill(f"sqlite:///{tmp_path / 'b.db'}", 60) as long,
    ):
        short_s, long_s = measure(short, long, 3)
        assert min(short_s, long_s) > 0
        for store, before in ((short, 30), (long, 60)):
            assert len(store.entries()) == before + 13 * 4
            assert store.verify_balances(now=NOW + 100) == ()
            assert {b.held_micros for b in store.balances(now=NOW + 100)} == {0}


def test_the_ratio_that_is_asked_for_is_compared() -> None:
    line = {
        "commits_per_s": {"sqlite": 170.4, "postgresql": 220.0},
        "growth_ratio": 1.51,
        "entries": 1_000_000,
        "entries_short": 1000,
    }
    *rates, ratio = compare(line)
    assert [row.ours for row in rates] == ["170", "220"]
    assert (ratio.ours, ratio.wanted, ratio.reached) == ("1.51 ×", "≤ 1.5", False)
