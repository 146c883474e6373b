"""Deadline jobs on spot: the deadline holds whatever spot does, and the choice is the cheapest."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.estimation.availability import (
    STATES,
    AvailabilityChain,
    Belief,
    Seen,
    believe,
    memoryless,
)
from hybrid.estimation.spot_value import (
    MAX_TICKS,
    Machine,
    SpotTerms,
    SpotValues,
    _Solved,
    solve,
)
from hybrid.planning.deadline_spot import (
    Choice,
    JobNow,
    JobsNow,
    SpotReason,
    choose,
    choose_many,
    expected_costs,
)

TICK_S = 600.0
CALM = memoryless(losses_per_hour=0.1, returns_per_hour=3.0, tick_s=TICK_S)
SCARCE = memoryless(losses_per_hour=5.0, returns_per_hour=0.05, tick_s=TICK_S)
NONE, SPOT, ON_DEMAND = Machine


def terms(work_ticks: float = 12, horizon_ticks: float = 18, restart_s: float = 180.0) -> SpotTerms:
    return SpotTerms(
        work_s=work_ticks * TICK_S,
        horizon_s=horizon_ticks * TICK_S,
        tick_s=TICK_S,
        restart_s=restart_s,
        spot_micros_per_hour=900_000,
        on_demand_micros_per_hour=3_000_000,
    )


def ask(
    of: SpotTerms,
    chain: AvailabilityChain = CALM,
    *,
    left_s: float,
    work_left_s: float,
    up: bool,
    held: Machine = NONE,
    starting_s: float = 0.0,
) -> Choice:
    now = JobNow(
        left_s=left_s,
        work_left_s=work_left_s,
        held=held,
        starting_s=starting_s,
        spot=Seen(up=up, age_s=0.0),
    )
    return choose(now, of, believe([chain], []))


def test_spot_that_is_there_is_taken() -> None:
    choice = ask(terms(), left_s=18 * TICK_S, work_left_s=12 * TICK_S, up=True)
    assert choice.machine is SPOT
    assert choice.reason is SpotReason.SPOT_IS_CHEAPEST
    assert choice.spot_micros is not None
    assert choice.on_demand_micros is not None
    # 12 ticks and the part of one to start: 13 ticks of spot are $1.95
    assert 1_950_000 <= choice.spot_micros < choice.on_demand_micros


def test_a_job_waits_for_spot_that_will_be_back_soon() -> None:
    choice = ask(terms(), left_s=18 * TICK_S, work_left_s=12 * TICK_S, up=False)
    assert choice.machine is NONE
    assert choice.reason is SpotReason.WAITING_IS_CHEAPEST
    assert choice.spot_micros is None


def test_on_demand_that_runs_is_kept_while_waiting_would_only_delay() -> None:
    choice = ask(
        terms(), SCARCE, left_s=18 * TICK_S, work_left_s=12 * TICK_S, up=False, held=ON_DEMAND
    )
    assert choice.machine is ON_DEMAND
    assert choice.reason is SpotReason.ON_DEMAND_IS_CHEAPEST
    # twelve ticks at $0.50: hardly anything is hoped from spot
    assert choice.on_demand_micros == pytest.approx(6_000_000, rel=0.02)


def test_only_on_demand_is_certain_when_one_start_is_all_the_slack() -> None:
    left_s = 12 * TICK_S + 180.0
    choice = ask(terms(), left_s=left_s, work_left_s=12 * TICK_S, up=True)
    assert choice.machine is ON_DEMAND
    assert choice.reason is SpotReason.ONLY_ON_DEMAND_IS_CERTAIN
    assert choice.wait_micros is None
    assert choice.spot_micros is None


def test_spot_that_works_is_kept_when_one_start_is_all_the_slack() -> None:
    left_s = 12 * TICK_S + 180.0
    choice = ask(terms(), left_s=left_s, work_left_s=12 * TICK_S, up=True, held=SPOT)
    assert choice.machine is SPOT


def test_spot_that_is_gone_is_no_longer_held() -> None:
    left_s = 12 * TICK_S + 180.0
    choice = ask(terms(), left_s=left_s, work_left_s=12 * TICK_S, up=False, held=SPOT)
    assert choice.machine is ON_DEMAND
    assert choice.reason is SpotReason.ONLY_ON_DEMAND_IS_CERTAIN


@pytest.mark.parametrize(
    ("held", "up", "machine"),
    [(NONE, True, ON_DEMAND), (SPOT, True, SPOT), (SPOT, False, ON_DEMAND)],
)
def test_a_lost_deadline_is_said_and_the_fastest_way_taken(
    held: Machine, up: bool, machine: Machine
) -> None:
    choice = ask(terms(), left_s=3 * TICK_S, work_left_s=12 * TICK_S, up=up, held=held)
    assert choice.machine is machine
    assert choice.reason is SpotReason.DEADLINE_IS_LOST
    assert choice.sentence() == str(SpotReason.DEADLINE_IS_LOST)


def test_a_deadline_that_has_passed_is_lost() -> None:
    choice = ask(terms(), left_s=-60.0, work_left_s=60.0, up=True)
    assert choice.reason is SpotReason.DEADLINE_IS_LOST


def test_a_job_without_work_left_needs_no_machine() -> None:
    choice = ask(terms(), left_s=6 * TICK_S, work_left_s=0.0, up=True, held=ON_DEMAND)
    assert choice.machine is NONE
    assert choice.reason is SpotReason.DONE


def test_the_sentence_names_the_cost_of_every_open_way() -> None:
    choice = Choice(
        machine=NONE,
        reason=SpotReason.WAITING_IS_CHEAPEST,
        wait_micros=1_234_567,
        spot_micros=None,
        on_demand_micros=2_000_000,
    )
    assert choice.sentence() == (
        "there is time to wait for spot, and waiting is cheapest "
        "(expected: wait $1.23, on-demand $2.00)"
    )


def test_the_less_likely_chain_counts_less() -> None:
    of = terms()
    now = JobNow(
        left_s=18 * TICK_S,
        work_left_s=12 * TICK_S,
        held=NONE,
        starting_s=0.0,
        spot=Seen(up=False, age_s=0.0),
    )
    calm, scarce, mixed = (
        choose(now, of, Belief((CALM, SCARCE), weights)).wait_micros
        for weights in ((1.0, 0.0), (0.0, 1.0), (0.75, 0.25))
    )
    assert calm is not None
    assert scarce is not None
    assert mixed == pytest.approx(0.75 * calm + 0.25 * scarce, abs=2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_figures_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        ask(terms(), left_s=bad, work_left_s=1.0, up=True)
    with pytest.raises(ValueError, match="finite"):
        ask(terms(), left_s=1.0, work_left_s=bad, up=True)


def test_more_time_than_the_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon"):
        ask(terms(), left_s=19 * TICK_S, work_left_s=TICK_S, up=True)


def test_a_chain_of_other_ticks_is_refused() -> None:
    with pytest.raises(ValueError, match="ticks"):
        solve(terms(), memoryless(losses_per_hour=1, returns_per_hour=1, tick_s=60.0))


@pytest.mark.parametrize(
    "changed", [{"work_s": -1.0}, {"restart_s": math.nan}, {"tick_s": 0.0}, {"horizon_s": math.inf}]
)
def test_terms_without_meaning_are_refused(changed: dict[str, float]) -> None:
    figures = {"work_s": 60.0, "horizon_s": 600.0, "tick_s": 60.0, "restart_s": 1.0, **changed}
    with pytest.raises(ValueError, match="not negative"):
        SpotTerms(spot_micros_per_hour=1, on_demand_micros_per_hour=2, **figures)


def test_a_horizon_of_too_many_ticks_is_refused() -> None:
    with pytest.raises(ValueError, match="ticks of more seconds"):
        terms(horizon_ticks=MAX_TICKS + 1)


def exact(
    of: SpotTerms, chain: AvailabilityChain, left: int, work_s: float, up: bool
) -> list[float]:
    """The programme by plain recursion over every course of events, for a memoryless chain: what
    waiting, spot and on-demand are expected to cost for a job that holds nothing."""
    hazard = {True: chain.hazards[-1], False: chain.hazards[0]}
    price = [of.tick_micros(machine) for machine in Machine]

    @cache
    def ways(left: int, work_s: float, held: Machine, start_s: float, up: bool) -> list[float]:
        costs = []
        for machine in Machine:
            start = start_s if machine is held else of.restart_s
            worked = 0.0 if machine is NONE else max(of.tick_s - start, 0.0)
            still = 0.0 if machine is NONE else max(start - of.tick_s, 0.0)
            slack_s = left * of.tick_s - work_s - (of.tick_s - worked)
            open_way = slack_s >= (still if machine is ON_DEMAND else of.restart_s)
            if not open_way or (machine is SPOT and not up):
                costs.append(math.inf)
            elif work_s <= worked:
                costs.append(price[machine])
            else:
                later = 0.0
                for then, chance in ((up, 1 - hazard[up]), (not up, hazard[up])):
                    kept = NONE if machine is SPOT and not then else machine
                    rest = still if kept is machine else 0.0
                    later += chance * min(ways(left - 1, work_s - worked, kept, rest, then))
                costs.append(price[machine] + later)
        return costs

    return ways(left, work_s, NONE, 0.0, up)


@pytest.mark.parametrize("restart_s", [0.0, 120.0, 720.0])
@pytest.mark.parametrize("chain", [CALM, SCARCE], ids=["calm", "scarce"])
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_expected_costs_are_those_of_every_course_of_events(
    restart_s: float, chain: AvailabilityChain, up: bool
) -> None:
    # slack of up to four ticks: every loss falls on the grid, so nothing is interpolated
    of = terms(work_ticks=5, horizon_ticks=9, restart_s=restart_s)
    choice = ask(of, chain, left_s=9 * TICK_S, work_left_s=5 * TICK_S, up=up)
    found = [choice.wait_micros, choice.spot_micros, choice.on_demand_micros]
    for ours, theirs in zip(found, exact(of, chain, 9, 5 * TICK_S, up), strict=True):
        if math.isinf(theirs):
            assert ours is None
        else:
            assert ours == pytest.approx(theirs, rel=1e-5)


def test_many_jobs_are_answered_as_one() -> None:
    of, chains = terms(), (CALM, SCARCE)
    rng = np.random.default_rng(0)
    number = 40
    jobs = JobsNow(
        left_s=rng.uniform(6, 18, number) * TICK_S,
        work_left_s=rng.uniform(0, 10, number) * TICK_S,
        held=rng.integers(0, 3, number),
        starting_s=rng.choice([0.0, 60.0, 180.0], number),
        state=rng.integers(0, STATES, number),
        weights=np.tile([0.6, 0.4], (number, 1)),
    )
    together = choose_many(jobs, of, chains)
    for i in range(number):
        one = JobsNow(**{name: getattr(jobs, name)[i : i + 1] for name in JobsNow.__slots__})
        assert choose_many(one, of, chains)[0] == together[i]
    assert set(together.tolist()) == {0, 1, 2}
    assert expected_costs(jobs, of, chains).shape == (number, 3)


def test_solving_again_is_remembered() -> None:
    assert solve(terms(), CALM) is solve(terms(), CALM)
    assert isinstance(solve(terms(), CALM), SpotValues)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    turns=st.sampled_from([0.02, 0.2, 0.9]),
    shortest_s=st.sampled_from([60.0, TICK_S]),
    restart_s=st.sampled_from([0.0, 45.0, 180.0, 600.0, 720.0, 1500.0]),
    slack_s=st.floats(0.0, 4 * TICK_S),
    chain=st.sampled_from([CALM, SCARCE]),
)
def test_the_deadline_is_met_whatever_spot_does_and_however_soon_the_next_choice_is(
    seed: int,
    turns: float,
    shortest_s: float,
    restart_s: float,
    slack_s: float,
    chain: AvailabilityChain,
) -> None:
    rng = np.random.default_rng(seed)
    up = bool(rng.random() < 0.5)
    of = terms(work_ticks=8, horizon_ticks=16, restart_s=restart_s)
    left_s, work_s = 8 * TICK_S + restart_s + slack_s, 8 * TICK_S
    held, starting_s = NONE, 0.0
    for _ in range(400):
        up = up != bool(rng.random() < turns)
        wait_s = float(rng.uniform(shortest_s, TICK_S))
        if held is SPOT and not up:
            held, starting_s = NONE, 0.0
        now = JobNow(
            left_s=left_s,
            work_left_s=work_s,
            held=held,
            starting_s=starting_s,
            spot=Seen(up=up, age_s=0.0),
        )
        choice = choose(now, of, believe([chain], []))
        assert choice.reason is not SpotReason.DEADLINE_IS_LOST
        if choice.machine is not held:
            held, starting_s = choice.machine, restart_s if choice.machine else 0.0
        if held:
            work_s -= max(wait_s - starting_s, 0.0)
            starting_s = max(starting_s - wait_s, 0.0)
        left_s -= wait_s
        if work_s <= 0:
            break
    # what a wait works beyond the end of the work was time left over
    assert work_s <= 0
    assert left_s - work_s >= -1e-3


def test_tables_used_last_are_kept_up_to_a_number_of_bytes() -> None:
    few = terms(work_ticks=2, horizon_ticks=4)
    size = SpotValues(few, CALM).nbytes
    solved = _Solved(2 * size)
    first, second = solved.of(few, CALM), solved.of(few, SCARCE)
    assert solved.of(few, CALM) is first
    third = memoryless(losses_per_hour=2.0, returns_per_hour=2.0, tick_s=TICK_S)
    solved.of(few, third)
    assert solved.of(few, CALM) is first
    assert solved.of(few, SCARCE) is not second
    alone = _Solved(1)
    assert alone.of(few, CALM) is alone.of(few, CALM)
