"""A bill against the ledger, period by period."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.bill import BillLine, LineKind, summed
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.ledger.bills import BillState, against_ledger, by_claim_and_period, part_in
from tests.doubles.build import a_claim
from tests.doubles.committing import an_entry


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOVEMBER, DECEMBER, JANUARY = at("2026-11-01"), at("2026-12-01"), at("2027-01-01")
HOUR = 3600.0


def a_line(micros: int, period: str = "2026-11", **fields: Any) -> BillLine:
    start, end = (NOVEMBER, DECEMBER) if period == "2026-11" else (DECEMBER, JANUARY)
    defaults: dict[str, Any] = {
        "claim_id": ClaimId("c1"),
        "began_at": start,
        "ended_at": start + HOUR,
        "period": period,
        "period_start_at": start,
        "period_end_at": end,
    }
    return BillLine(micros=micros, **{**defaults, **fields})


def ended(launched_at: float, ended_at: float) -> Claim:
    return a_claim("c1", ClaimState.GONE, launched_at=launched_at, ended_at=ended_at)


def charged(micros: int, when: float = NOVEMBER + HOUR) -> LedgerEntry:
    return an_entry("charge:c1", micros, EntryKind.CHARGE, at=when)


def test_a_bill_that_says_what_was_charged_changes_nothing() -> None:
    claim = ended(NOVEMBER, NOVEMBER + HOUR)
    found = against_ledger(claim, [charged(900)], [a_line(900)], horizon_at=DECEMBER)
    assert (found.state, found.entry, found.difference_micros) == (BillState.AGREES, None, 0)


def test_a_difference_is_settled_in_the_period_of_the_charge() -> None:
    claim = ended(NOVEMBER, NOVEMBER + HOUR)
    lines = [a_line(1000), a_line(50, kind=LineKind.EGRESS)]
    found = against_ledger(claim, [charged(900)], lines, horizon_at=DECEMBER)
    assert found.state is BillState.DIFFERS
    assert found.billed_by_kind == ((LineKind.MACHINE, 1000), (LineKind.EGRESS, 50))
    entry = found.entry
    assert entry is not None
    assert (entry.id, entry.kind, entry.amount_micros, entry.at, entry.memo) == (
        "settlement:c1:2026-11:0",
        EntryKind.SETTLEMENT,
        150,
        NOVEMBER + HOUR,
        "bill of 2026-11",
    )
    again = against_ledger(claim, [charged(900), entry], lines, horizon_at=DECEMBER)
    assert (again.state, again.settled_micros) == (BillState.AGREES, 150)
    later = against_ledger(claim, [charged(900), entry], [a_line(1010)], horizon_at=DECEMBER)
    assert later.entry is not None
    assert (later.entry.id, later.entry.amount_micros) == ("settlement:c1:2026-11:1", -40)


def test_a_machine_that_has_not_ended_or_ends_beyond_the_bill_is_not_settled() -> None:
    live = a_claim("c1", launched_at=NOVEMBER)
    assert against_ledger(live, [], [a_line(9)], horizon_at=DECEMBER).state is BillState.OPEN
    claim = ended(NOVEMBER, NOVEMBER + HOUR)
    found = against_ledger(claim, [charged(900)], [a_line(10)], horizon_at=NOVEMBER + HOUR - 1)
    assert (found.state, found.entry) == (BillState.OPEN, None)


@pytest.mark.parametrize("order", [("2026-11", "2026-12"), ("2026-12", "2026-11")])
def test_a_machine_of_two_months_is_settled_by_two_bills_in_any_order(
    order: tuple[str, str],
) -> None:
    claim = ended(DECEMBER - HOUR, DECEMBER + 3 * HOUR)
    billed = {"2026-11": 1200, "2026-12": 2900}
    entries = [charged(4000, DECEMBER + 3 * HOUR)]
    for period in order:
        lines = [a_line(billed[period], period)]
        found = against_ledger(claim, entries, lines, horizon_at=JANUARY)
        assert found.charged_micros == {"2026-11": 1000, "2026-12": 3000}[period]
        assert found.entry is not None
        entries.append(found.entry)
    assert sum(e.amount_micros for e in entries) == 4100


def test_a_machine_that_was_billed_and_never_seen_is_charged_as_billed() -> None:
    claim = a_claim("c1", ClaimState.GONE, launched_at=None, machine_id=None, ended_at=None)
    found = against_ledger(claim, [], [a_line(700)], horizon_at=DECEMBER)
    assert found.entry is not None
    assert (found.entry.amount_micros, found.entry.at) == (700, NOVEMBER + HOUR)


@given(
    micros=st.integers(0, 10**12),
    began=st.floats(NOVEMBER, JANUARY - 1),
    length=st.floats(0, 90 * 86_400),
)
def test_the_parts_of_all_periods_add_up(micros: int, began: float, length: float) -> None:
    claim = ended(began, began + length)
    edges = [NOVEMBER, DECEMBER, JANUARY, at("2027-02-01"), at("2027-03-01"), at("2027-06-01")]
    parts = [part_in(micros, claim, a, b) for a, b in pairwise(edges)]
    assert sum(parts) == micros
    assert min(parts) >= 0


def test_lines_of_one_kind_claim_and_period_are_one() -> None:
    lines = [a_line(5, what="x"), a_line(7, what="y", ended_at=NOVEMBER + 9), a_line(1, "2026-12")]
    first, second = summed(lines)
    assert (first.micros, first.count, first.what, first.ended_at) == (
        12,
        2,
        "several",
        NOVEMBER + HOUR,
    )
    assert second.period == "2026-12"
    assert list(by_claim_and_period([*lines, a_line(3, claim_id=None)])) == [
        ("c1", "2026-11"),
        ("c1", "2026-12"),
    ]
