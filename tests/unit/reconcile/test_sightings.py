"""What launches, refusals and interruptions tell of an offer is remembered once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import OfferId
from hybrid.domain.job_spec import Market
from hybrid.domain.sightings import Sightings
from hybrid.ports.capacity import MachineState, Notice, NoticeKind
from hybrid.ports.errors import CapacityUnavailable, QuotaExceeded
from hybrid.ports.store import World
from hybrid.reconcile.effects import LaunchMachine
from hybrid.reconcile.receipts import Receipt, apply_receipts
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_machine,
    a_world,
    an_observation,
    an_offer,
)
from tests.doubles.changes import puts

SPOT = an_offer().id
REQUESTED = a_claim(state=ClaimState.REQUESTED)


def seen(bundles: object) -> dict[str, Sightings]:
    return puts(bundles, Sightings)  # type: ignore[arg-type]


def launched(claim: Claim = REQUESTED, world: World | None = None, **answer: object) -> Sightings:
    receipt = Receipt(effect=LaunchMachine(claim=claim), at=NOW, **answer)  # type: ignore[arg-type]
    found = seen(apply_receipts(world or a_world(claim, a_burst_pool()), (receipt,)))
    return found.get(str(SPOT), Sightings(offer_id=SPOT))


def test_a_launch_that_is_granted_is_seen_as_up() -> None:
    assert launched(machine=a_machine()).changes == ((NOW, True),)


def test_a_launch_for_which_there_is_no_capacity_is_seen_as_down() -> None:
    refused = CapacityUnavailable("zone:aws/us-east-1a", "none there")
    assert launched(error=refused).changes == ((NOW, False),)


def test_a_quota_says_nothing_of_capacity() -> None:
    assert launched(error=QuotaExceeded("account:aws", "none left")).changes == ()


def test_on_demand_is_not_watched() -> None:
    claim = replace(REQUESTED, offer=an_offer(market=Market.ON_DEMAND))
    assert launched(claim, machine=a_machine()).changes == ()


def test_two_machines_of_one_offer_tell_of_it_in_one_row() -> None:
    claims = [a_claim(f"c{i}", state=ClaimState.REQUESTED) for i in (1, 2)]
    receipts = tuple(
        Receipt(effect=LaunchMachine(claim=c), at=NOW, machine=a_machine(c.id, f"i-{c.id}"))
        for c in claims
    )
    bundles = apply_receipts(a_world(*claims, a_burst_pool()), receipts)
    assert [b.id for b in bundles if "sightings" in b.id] == ["sightings"]
    assert seen(bundles)[str(SPOT)].changes == ((NOW, True),)


def test_a_notice_and_the_end_it_tells_of_are_one_change() -> None:
    up = Sightings(offer_id=SPOT, changes=((NOW - 60, True),), seen_at=NOW - 60, version=1)
    notice = Notice(machine_id=a_machine().id, kind=NoticeKind.INTERRUPTION, at=NOW + 120)
    claim = a_claim(state=ClaimState.READY)
    world = a_world(claim, a_burst_pool(), sightings={OfferId(SPOT): up})
    told = sync(world, an_observation(machines=(a_machine(),), notices=(notice,)), SyncRules())
    after = seen(told)[str(SPOT)]
    assert after.changes == ((NOW - 60, True), (NOW, False))
    gone = a_machine(state=MachineState.ENDED, ended_at=NOW + 5, interrupted=True)
    world = replace(world, sightings={OfferId(SPOT): replace(after, version=2)})
    later = sync(world, an_observation(at=NOW + 10, machines=(gone,)), SyncRules())
    assert seen(later)[str(SPOT)].changes == after.changes


@pytest.mark.parametrize(("others", "last"), [(1, True), (0, None)])
def test_what_we_end_is_out_of_sight_unless_there_is_another(others: int, last: object) -> None:
    up = Sightings(offer_id=SPOT, changes=((NOW - 60, True),), seen_at=NOW - 60, version=1)
    claims = [a_claim(state=ClaimState.TERMINATING)]
    claims += [a_claim(f"more{i}", machine_id=f"i-more{i}") for i in range(others)]
    world = a_world(*claims, a_burst_pool(), sightings={OfferId(SPOT): up})
    ended = a_machine(state=MachineState.ENDED, ended_at=NOW)
    found = seen(sync(world, an_observation(machines=(ended,)), SyncRules()))
    assert found.get(str(SPOT), up).last[1] is last
