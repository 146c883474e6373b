"""Chains of spot availability: states from what was seen, hazards from experience, beliefs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybrid.estimation.availability import (
    AGE_STARTS,
    AGES,
    EVIDENCE_WEIGHT,
    NO_COUNTS,
    STATES,
    AvailabilityChain,
    Belief,
    Seen,
    SpellCounts,
    believe,
    count,
    is_up,
    learn,
    memoryless,
    posterior,
    states,
    ticks_of,
)

TICK_S = 600.0
DOWN_LONG, UP_SHORT, UP_LONG = AGES, 2 * AGES, 3 * AGES


def ticks(text: str) -> np.ndarray:
    return np.array([[c == "1" for c in text]])


def steady(hazard: float) -> AvailabilityChain:
    return AvailabilityChain(TICK_S, (hazard,) * STATES)


def test_a_spell_grows_older_until_it_turns_and_then_tells_whether_it_was_short() -> None:
    found = states(ticks("110011100"))[0].tolist()
    # watched from the first tick, the spell before is taken for long; 11 and 00 are short, 111 long
    expected = [UP_LONG, UP_LONG + 1, 0, 1, UP_SHORT, UP_SHORT + 1, UP_SHORT + 2]
    assert found == [*expected, DOWN_LONG, DOWN_LONG + 1]


def test_one_observation_is_in_the_state_that_its_history_ends_in() -> None:
    history = ticks("0000111")
    at = steady(0.1).state(Seen(up=True, age_s=2 * TICK_S, previous_s=4 * TICK_S))
    assert at == states(history)[0, -1] == UP_LONG + 2


def test_a_spell_with_unknown_past_counts_as_after_a_long_one() -> None:
    assert steady(0.1).state(Seen(up=False, age_s=0.0)) == DOWN_LONG


def test_ages_beyond_the_last_group_stay_in_it() -> None:
    chain = steady(0.1)
    old = chain.state(Seen(up=True, age_s=AGE_STARTS[-1] * TICK_S * 50))
    assert old == STATES - 1
    assert chain.moves()[0][old].tolist() == [old, old, DOWN_LONG]


def test_a_short_spell_that_ends_leads_to_a_spell_after_a_short_one() -> None:
    to, _ = steady(0.1).moves()
    assert to[UP_LONG].tolist() == [UP_LONG, UP_LONG + 1, 0]
    assert to[UP_LONG + 2].tolist() == [UP_LONG + 2, UP_LONG + 3, DOWN_LONG]
    assert to[0].tolist() == [0, 1, UP_SHORT]


def test_the_ways_out_of_every_state_are_a_distribution() -> None:
    _, chance = learn(count(ticks("1101011100011111110000000001")), TICK_S).moves()
    assert chance.sum(axis=1) == pytest.approx(np.ones(STATES))
    assert (chance >= 0).all()


def test_half_of_the_states_are_up() -> None:
    assert is_up().sum() == STATES // 2
    assert is_up()[UP_LONG]
    assert not is_up()[DOWN_LONG]


def test_counts_hold_each_tick_that_was_followed_by_another() -> None:
    counted = count(ticks("11100"))
    assert sum(counted.ticks) == 4
    assert counted.ticks[UP_LONG : UP_LONG + 3] == (1, 1, 1)
    assert counted.ended[UP_LONG + 2] == 1
    assert sum(counted.ended) == 1


def test_counts_of_several_offers_add_up() -> None:
    one, other = count(ticks("1100")), count(ticks("0111"))
    together = count(np.vstack([ticks("1100"), ticks("0111")]))
    assert one + other == together
    assert one + NO_COUNTS == one


def test_much_experience_is_believed_and_little_leans_on_the_rest() -> None:
    ticks_in, ended = [0] * STATES, [0] * STATES
    ticks_in[UP_LONG], ended[UP_LONG] = 100_000, 50_000
    ticks_in[UP_LONG + 1], ended[UP_LONG + 1] = 100_000, 1_000
    learned = learn(SpellCounts(tuple(ticks_in), tuple(ended)), TICK_S).hazards
    assert learned[UP_LONG] == pytest.approx(0.5, abs=1e-3)
    assert learned[UP_LONG + 1] == pytest.approx(0.01, abs=1e-3)
    # never seen after a short spell: as after a long one
    assert learned[UP_SHORT] == pytest.approx(learned[UP_LONG], abs=1e-3)
    # an age never seen: as the whole side
    assert learned[UP_LONG + 5] == pytest.approx(51_001 / 200_002)


def test_without_experience_a_spell_ends_with_even_chance() -> None:
    assert learn(NO_COUNTS, TICK_S).hazards == (0.5,) * STATES


def test_rates_alone_make_a_chain_that_forgets() -> None:
    chain = memoryless(losses_per_hour=0.5, returns_per_hour=2.0, tick_s=TICK_S)
    assert chain.hazards[UP_LONG] == pytest.approx(1 - math.exp(-0.5 / 6))
    assert chain.hazards[DOWN_LONG] == pytest.approx(1 - math.exp(-2.0 / 6))
    assert len(set(chain.hazards)) == 2


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rates_that_are_none_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        memoryless(losses_per_hour=rate, returns_per_hour=1.0, tick_s=TICK_S)


def test_very_frequent_losses_stay_a_chance() -> None:
    chain = memoryless(losses_per_hour=1e9, returns_per_hour=1.0, tick_s=TICK_S)
    assert 0.0 < max(chain.hazards) < 1.0


def test_chains_of_impossible_ticks_or_chances_are_refused() -> None:
    with pytest.raises(ValueError, match="tick"):
        AvailabilityChain(0.0, (0.5,) * STATES)
    with pytest.raises(ValueError, match="hazards"):
        AvailabilityChain(TICK_S, (0.5,) * (STATES - 1))
    with pytest.raises(ValueError, match="hazards"):
        AvailabilityChain(TICK_S, (math.nan,) * STATES)


def test_the_chain_that_explains_the_past_gets_the_weight() -> None:
    flapping, calm = steady(0.6), steady(0.02)
    belief = believe([flapping, calm], [True] * 30)
    # 29 times nothing happened
    odds = (0.98 / 0.4) ** (29 * EVIDENCE_WEIGHT)
    assert belief.weights[1] / belief.weights[0] == pytest.approx(odds)
    assert believe([flapping, calm], [True, False] * 15).weights[0] > 0.99


def test_without_a_past_all_chains_weigh_the_same() -> None:
    assert believe([steady(0.1), steady(0.2)], []).weights == (0.5, 0.5)


def test_a_belief_at_a_tick_knows_nothing_of_later_ticks() -> None:
    chains = [steady(0.6), steady(0.02)]
    same = posterior(chains, np.vstack([ticks("1111110"), ticks("1111000")]))
    assert same[0, 3].tolist() == same[1, 3].tolist()
    assert same[0, 4].tolist() != same[1, 4].tolist()
    assert same[0, 0].tolist() == [0.5, 0.5]


def test_beliefs_that_are_no_distribution_are_refused() -> None:
    with pytest.raises(ValueError, match="chains with"):
        Belief((), ())
    with pytest.raises(ValueError, match="distribution"):
        Belief((steady(0.1),), (0.5,))
    with pytest.raises(ValueError, match="different ticks"):
        Belief((steady(0.1), AvailabilityChain(60.0, (0.1,) * STATES)), (0.5, 0.5))


def test_changes_become_ticks_that_end_now() -> None:
    changes = [(1000.0, True), (2300.0, False), (2900.0, True)]
    # ticks end at 1200, 1800, 2400 and 3000
    assert ticks_of(changes, until=3000.0, tick_s=600.0) == (True, True, False, True)
    assert ticks_of(changes, until=900.0, tick_s=600.0) == ()
    assert ticks_of(changes, until=1000.0, tick_s=600.0) == (True,)


def test_changes_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        ticks_of([(20.0, True), (10.0, False)], until=30.0, tick_s=10.0)
