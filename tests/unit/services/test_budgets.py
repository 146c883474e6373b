"""What is left of a budget, how fast it goes, and who and what uses it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind
from hybrid.ports.store import Spender
from hybrid.services.access import Principal
from hybrid.services.budgets import BUCKET_S, Budgets, spent_by_bucket
from hybrid.services.errors import NotFound
from hybrid.services.policy import Policies
from tests.doubles.build import NOW, a_claim
from tests.doubles.committing import change, post
from tests.unit.services.conftest import Place

HOUR = 3600.0
POLICY = """
budgets:
  - {name: all, limit_usd: 100}
  - {name: red, scope: team, subject: red, limit_usd: 20, period: day, timezone: Europe/Berlin}
"""


@pytest.fixture
def budgets(place: Place) -> Budgets:
    Policies(place.store, place.clock, place.poke).replace(POLICY, over=0, by="root")
    return Budgets(place.store, place.live, place.clock)


def a_machine_of(name: str, hours: float, *, ended: float | None = None, **fields: Any) -> Claim:
    state = ClaimState.READY if ended is None else ClaimState.GONE
    return a_claim(
        name,
        state,
        launched_at=NOW - hours * HOUR,
        ended_at=None if ended is None else NOW - ended * HOUR,
        held_micros=900_000 if ended is None else 0,
        **fields,
    )


def test_machines_run_up_their_cost_hour_by_hour() -> None:
    """A dollar an hour: one for the last 9 h, one for three hours a day ago."""
    claims = [
        a_machine_of("c1", 9),
        a_machine_of("c2", 24, ended=21),
        a_machine_of("c3", 400, ended=399),
    ]
    buckets = spent_by_bucket(claims, NOW)
    assert BUCKET_S == 6 * HOUR
    assert [round(each) for each in buckets] == [3_000_000, 0, 3_000_000, 6_000_000]
    assert spent_by_bucket([], NOW) == []


def test_a_budget_says_how_fast_it_goes_and_who_and_what_uses_it(
    budgets: Budgets, place: Place, admin: Principal, ann: Principal
) -> None:
    place.put(
        a_machine_of("c1", 12),
        a_machine_of("c2", 2, team="blue", user="bob"),
        a_machine_of("c3", 30, ended=24),
    )
    change(
        place.store,
        post("h1", 900_000, claim_id=ClaimId("c1")),
        post("h2", 900_000, claim_id=ClaimId("c2"), team="blue", user="bob"),
        post("charge:c3", 6_000_000, EntryKind.CHARGE, claim_id=ClaimId("c3")),
        post("charge:c9", 2_000_000, EntryKind.CHARGE, team="blue", user="bob"),
    )
    everything, red = budgets.listing(admin)
    assert (everything.burn_micros_per_hour, red.burn_micros_per_hour) == (2_000_000, 1_000_000)
    assert everything.spenders == (
        Spender("red", "ann", 6_000_000),
        Spender("blue", "bob", 2_000_000),
    )
    assert [claim.id for claim in everything.holds] == ["c1", "c2"]
    assert 0 < everything.mean.mean < 2_000_000
    assert red.spenders == (Spender("red", "ann", 6_000_000),)
    # Berlin's next midnight: 13.1 of 20 dollars are left at about a dollar an hour
    assert red.period_end_at == datetime(2027, 1, 15, 23, tzinfo=UTC).timestamp()
    assert red.runs_out_p90_at is None
    assert everything.runs_out_p50_at is not None
    assert everything.runs_out_p90_at is None or (
        everything.runs_out_p50_at < everything.runs_out_p90_at
    )
    # of a budget that covers others too, people see what is theirs
    seen = budgets.one(ann, "all")
    assert [s.user for s in seen.spenders] == ["ann"]
    assert ([c.id for c in seen.holds], seen.held_claims) == (["c1"], 2)
    with pytest.raises(NotFound, match="no budget blue"):
        budgets.one(ann, "blue")


def test_a_budget_that_nobody_uses_never_runs_out(budgets: Budgets, admin: Principal) -> None:
    everything, _ = budgets.listing(admin)
    assert (everything.mean.mean, everything.runs_out_p50_at, everything.holds) == (0, None, ())


def test_a_budget_that_is_used_up_has_run_out(
    budgets: Budgets, place: Place, admin: Principal
) -> None:
    change(place.store, post("charge:c1", 100_000_000, EntryKind.CHARGE, team="blue"))
    (everything, _) = budgets.listing(admin)
    assert everything.runs_out_p50_at == everything.runs_out_p90_at == NOW
