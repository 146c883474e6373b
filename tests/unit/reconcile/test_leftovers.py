"""What machines left behind: removed when no live claim stands for it, and told."""

from __future__ import annotations

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.ports.capacity import Leftover
from hybrid.ports.errors import InUse
from hybrid.ports.observation import Known, Observation, Unknown
from hybrid.ports.store import Note
from hybrid.reconcile.effects import due
from hybrid.reconcile.leftovers import RemoveLeftover
from hybrid.reconcile.receipts import Receipt, apply_receipts
from hybrid.reconcile.rules import SyncRules
from tests.doubles.build import NOW, a_claim, a_world

DISK = Leftover(kind="disk", id="vol-1", place="us-east-1a", claim_id=ClaimId("c-old"))
GROUP = Leftover(kind="placement group", id="hybrid-g", gang="g-old")


def removals(*left: Leftover, live: tuple[object, ...] = ()) -> list[str]:
    observation = Observation(at=NOW, heard_since=0, leftovers={"aws": Known(left, NOW)})
    effects = due(a_world(*live), observation, now=NOW, epoch=1, rules=SyncRules())  # type: ignore[arg-type]
    return [each.leftover.id for each in effects if isinstance(each, RemoveLeftover)]


def test_what_no_live_claim_stands_for_is_removed() -> None:
    assert removals(DISK, GROUP) == ["vol-1", "hybrid-g"]
    live = a_claim("c-old", gang="g-old", held_micros=0)
    assert removals(DISK, GROUP, live=(live,)) == []
    ending = a_claim("c-old", ClaimState.TERMINATING, gang="g-old", terminate_attempts=1)
    assert removals(DISK, GROUP, live=(ending,)) == []


def test_what_names_neither_claim_nor_gang_is_left_alone() -> None:
    assert removals(Leftover(kind="disk", id="vol-2", place="us-east-1a")) == []


def test_a_listing_that_failed_removes_nothing() -> None:
    observation = Observation(at=NOW, heard_since=0, leftovers={"aws": Unknown("throttled", NOW)})
    assert due(a_world(), observation, now=NOW, epoch=1, rules=SyncRules()) == ()


def test_a_removal_is_told_and_one_that_failed_is_not() -> None:
    effect = RemoveLeftover(provider="aws", leftover=DISK)
    (bundle,) = apply_receipts(a_world(), (Receipt(effect=effect, at=NOW),))
    (note,) = bundle.changes
    assert isinstance(note, Note)
    assert (note.event.subject, note.event.what) == ("vol-1", "disk removed")
    assert note.event.words == "a disk at aws that c-old left behind"
    refused = Receipt(effect=effect, at=NOW, error=InUse("VolumeInUse"))
    assert apply_receipts(a_world(), (refused,)) == ()
