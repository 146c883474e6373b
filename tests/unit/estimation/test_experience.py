"""Availability that was seen: what is kept of it, and what is believed because of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.ids import OfferId
from hybrid.domain.sightings import MOST_CHANGES, WATCHED_S, Sightings, Spell
from hybrid.estimation.availability import NO_COUNTS, Seen, memoryless
from hybrid.estimation.experience import (
    ENOUGH_TICKS,
    RETURNS_PER_HOUR,
    belief,
    experience,
    seen_now,
)

TICK_S = 600.0
NOTHING = Sightings(offer_id=OfferId("o"))


def test_a_machine_that_is_had_again_changes_nothing() -> None:
    up = NOTHING.saw(True, 100.0)
    assert up.changes == ((100.0, True),)
    assert up.saw(True, 500.0) is up


def test_refusals_close_to_each_other_are_one_spell() -> None:
    down = NOTHING.saw(False, 100.0).saw(False, 100.0 + WATCHED_S)
    assert down.changes == ((100.0, False),)
    assert down.seen_at == 100.0 + WATCHED_S


def test_between_refusals_far_apart_nobody_looked() -> None:
    down = NOTHING.saw(False, 100.0).saw(False, 101.0 + WATCHED_S)
    assert down.changes == ((100.0, False), (100.0, None), (101.0 + WATCHED_S, False))


def test_a_late_word_of_an_earlier_time_counts_from_the_last_look() -> None:
    assert NOTHING.saw(True, 100.0).saw(False, 40.0).changes == ((100.0, True), (100.0, False))


def test_what_we_end_ourselves_says_nothing_of_the_time_after() -> None:
    seen = NOTHING.saw(True, 0.0).out_of_sight(700.0).saw(True, 9_000.0)
    assert list(seen.spells(10_000.0)) == [
        Spell(changes=((0.0, True),), until=700.0),
        Spell(changes=((9_000.0, True),), until=10_000.0),
    ]


def test_being_refused_is_known_until_the_last_refusal() -> None:
    seen = NOTHING.saw(True, 0.0).saw(False, 1_000.0).saw(False, 1_500.0)
    (spell,) = seen.spells(99_999.0)
    assert spell == Spell(changes=((0.0, True), (1_000.0, False)), until=1_500.0)


def test_no_more_than_so_many_changes_are_kept() -> None:
    seen = NOTHING
    for step in range(2 * MOST_CHANGES):
        seen = seen.saw(step % 2 == 0, 60.0 * step)
    assert len(seen.changes) == MOST_CHANGES
    assert seen.changes[-1] == (60.0 * (2 * MOST_CHANGES - 1), False)


@given(
    st.lists(st.tuples(st.sampled_from(["up", "down", "end"]), st.floats(0, 1e5)), max_size=40),
)
def test_changes_stay_in_order_and_alternate(looks: list[tuple[str, float]]) -> None:
    seen = NOTHING
    for what, at in looks:
        seen = seen.out_of_sight(at) if what == "end" else seen.saw(what == "up", at)
    times = [at for at, _ in seen.changes]
    assert times == sorted(times)
    assert all(a[1] is not b[1] for a, b in zip(seen.changes, seen.changes[1:], strict=False))
    for spell in seen.spells(2e5):
        assert spell.changes[0][0] <= spell.until


def test_until_enough_was_watched_the_stated_rate_is_all_there_is() -> None:
    short = NOTHING.saw(True, 0.0).saw(False, (ENOUGH_TICKS - 2) * TICK_S)
    counts = experience([short], now=0.0, tick_s=TICK_S)
    assert sum(counts.ticks) < ENOUGH_TICKS
    found = belief(short, counts, losses_per_hour=0.2, now=0.0, tick_s=TICK_S)
    rate = memoryless(losses_per_hour=0.2, returns_per_hour=RETURNS_PER_HOUR, tick_s=TICK_S)
    assert found.chains == (rate,)


def test_an_offer_that_flaps_is_explained_by_what_was_learned() -> None:
    flapping = NOTHING
    for step in range(100):
        flapping = flapping.saw(step % 2 == 0, 1_800.0 * step)
    now = 1_800.0 * 99
    counts = experience([flapping], now=now, tick_s=TICK_S)
    found = belief(flapping, counts, losses_per_hour=0.01, now=now, tick_s=TICK_S)
    assert len(found.chains) == 2
    assert found.weights[1] > 0.99


def test_nothing_seen_is_no_experience() -> None:
    assert experience([], now=0.0, tick_s=TICK_S) == NO_COUNTS
    assert experience([NOTHING], now=0.0, tick_s=TICK_S) == NO_COUNTS


def test_a_rate_of_nothing_is_still_a_chance() -> None:
    found = belief(None, NO_COUNTS, losses_per_hour=0.0, now=0.0, tick_s=TICK_S)
    assert all(0 < hazard < 1 and math.isfinite(hazard) for hazard in found.chains[0].hazards)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (False, Seen(up=True, age_s=500.0, previous_s=1_000.0)),
        (True, Seen(up=False, age_s=0.0)),
    ],
)
def test_how_it_stands_now_is_what_the_provider_says(refused: bool, expected: Seen) -> None:
    seen = NOTHING.saw(False, 0.0).saw(True, 1_000.0)
    assert seen_now(seen, refused=refused, now=1_500.0) == expected
