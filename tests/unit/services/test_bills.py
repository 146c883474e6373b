"""Bills imported: differences settled once, whoever imports them and how often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.bill import Bill, BillLine
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind
from hybrid.ledger.bills import BillState
from hybrid.ports.store import Bundle, Committed
from hybrid.services.bills import Bills, open_claims
from hybrid.services.policy import Policies
from tests.doubles.build import NOW, a_claim
from tests.doubles.committing import change, post
from tests.unit.services.conftest import Place

HOUR = 3600.0


@pytest.fixture
def bills(place: Place) -> Bills:
    Policies(place.store, place.clock, place.poke).replace(
        "budgets: [{name: all, limit_usd: 1}]", over=0, by="root"
    )
    gone = {"launched_at": NOW - HOUR, "ended_at": NOW, "charged_micros": 600_000}
    place.put(
        a_claim("c1", ClaimState.GONE, **gone),
        a_claim("c2", ClaimState.GONE, **gone),
        a_claim("c3", ClaimState.READY),
    )
    change(
        place.store,
        post("charge:c1", 600_000, EntryKind.CHARGE, claim_id=ClaimId("c1")),
        post("charge:c2", 300_000, EntryKind.CHARGE, claim_id=ClaimId("c2")),
    )
    return Bills(place.store, place.clock, "inst")


def a_bill(*lines: BillLine) -> Bill:
    return Bill(lines=lines, horizon_at=NOW + HOUR)


def a_line(claim: str | None, micros: int, **fields: Any) -> BillLine:
    return BillLine(
        claim_id=None if claim is None else ClaimId(claim),
        micros=micros,
        began_at=NOW - HOUR,
        ended_at=NOW,
        period="2027-01",
        period_start_at=NOW - 30 * 86_400,
        period_end_at=NOW + 86_400,
        **fields,
    )


def test_differences_are_settled_and_what_matches_nothing_is_shown(
    bills: Bills, place: Place
) -> None:
    bill = a_bill(
        a_line("c1", 750_000),
        a_line("c3", 5),
        a_line("c-nobody", 7),
        a_line(None, 11),
        a_line("c1", 13, installation="another"),
    )
    looked = bills.compare(bill, provider="aws")
    assert [(c.claim_id, c.state, c.difference_micros) for c in looked.claims] == [
        ("c1", BillState.DIFFERS, 150_000),
        ("c3", BillState.OPEN, 5),
    ]
    assert [line.micros for line in looked.unmatched] == [7]
    assert [line.micros for line in looked.untagged] == [11]
    assert [line.micros for line in looked.elsewhere] == [13]
    assert ([c.id for c in looked.missing], open_claims(looked)) == (["c2"], 1)
    assert place.store.balances(now=NOW)[0].charged_micros == 900_000
    assert bills.settle(bill, provider="aws", by="ann").settled == 1
    (balance,) = place.store.balances(now=NOW)
    assert balance.charged_micros == 1_050_000  # a larger bill: overdrawn, and written down
    told = [event for _, event in place.store.events() if event.what == "settled by a bill"]
    assert [(e.actor, e.subject, e.words) for e in told] == [
        ("ann", "c1", "bill of 2027-01: $0.15 more")
    ]


def test_the_same_bill_again_adds_nothing(bills: Bills, place: Place) -> None:
    bill = a_bill(a_line("c1", 750_000), a_line("c2", 100_000))
    assert bills.settle(bill, provider="aws", by="ann").settled == 2
    entries = place.store.entries()
    again = bills.settle(bill, provider="aws", by="bob")
    assert (again.settled, {c.state for c in again.claims}) == (0, {BillState.AGREES})
    assert place.store.entries() == entries


def test_two_importers_at_once_settle_once(bills: Bills, place: Place) -> None:
    bill = a_bill(a_line("c1", 750_000), a_line("c2", 100_000))
    other = Bills(place.store, place.clock, "inst")

    class Raced:
        """The store as the slower importer meets it: the other one is in between."""

        def __getattr__(self, name: str) -> Any:
            return getattr(place.store, name)

        def commit(self, bundles: list[Bundle], **terms: Any) -> Committed:
            other.settle(bill, provider="aws", by="bob")
            return place.store.commit(bundles, **terms)

    report = replace(bills, store=Raced()).settle(bill, provider="aws", by="ann")  # type: ignore[arg-type]
    assert report.settled == 0
    assert sum(e.kind is EntryKind.SETTLEMENT for e in place.store.entries()) == 2
    assert place.store.balances(now=NOW)[0].charged_micros == 850_000
