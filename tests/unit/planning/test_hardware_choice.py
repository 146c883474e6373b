"""Which card a job takes when several would do, and what is said of its speed there."""

from __future__ import annotations

from typing import Any

import pytest

from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.plan import Decision, Place
from hybrid.planning.fit import speed_words
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from tests.doubles.apply_plan import apply_plan
from tests.doubles.build import a_spec
from tests.scenarios.world import build

CARDS = {"big": {"model": "h100-sxm5-80gb"}, "small": {"model": "l4"}}


def placed(job: dict[str, Any], nodes: dict[str, Any], **more: Any) -> tuple[str, Decision]:
    snapshot, policy = build({"nodes": nodes, "jobs": {"job": job}, **more})
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    (place,) = [a for a in made.actions if isinstance(a, Place)]
    return str(place.run.node_ids[0]), made.decisions[0]


LATENCY = {"profile": "latency", "run": "1h"}


def test_a_small_job_bound_by_latency_takes_the_card_that_draws_least() -> None:
    assert placed(LATENCY, CARDS)[0] == "small"


@pytest.mark.parametrize(
    ("job", "more"),
    [
        (LATENCY, {"policy": {"placement": {"prefer_efficient": False}}}),
        ({"profile": "compute", "run": "1h"}, {}),
        ({"profile": "balanced", "run": "1h"}, {}),
    ],
    ids=["the policy does not", "compute", "balanced"],
)
def test_others_take_the_fast_card(job: dict[str, Any], more: dict[str, Any]) -> None:
    nodes = {"big": CARDS["big"], "small": {"model": "t4"}}
    assert placed(job, nodes, **more)[0] == "big"


def test_a_card_that_is_too_slow_is_not_taken_whatever_it_draws() -> None:
    """A T4's clock is 1590 MHz, an H100's 1980: as many as 1.25 times; a K80's are 875."""
    nodes = {"big": CARDS["big"], "old": {"model": "k80"}}
    assert placed(LATENCY, nodes)[0] == "big"


def test_a_trial_takes_the_efficient_card_whatever_bounds_it() -> None:
    trial = {"profile": "balanced", "run": "5m", "walltime": "10m"}
    nodes = {"a": {"model": "a100-pcie-80gb"}, "b": {"model": "a100-sxm4-80gb"}}
    assert placed(trial, nodes)[0] == "a"


def test_no_job_waits_for_an_efficient_card() -> None:
    busy = {"jobs": {"job": LATENCY, "busy": {"run": "9h", "at": "small"}}}
    assert placed(LATENCY, CARDS, **busy)[0] == "big"


def test_a_job_bound_by_memory_takes_the_memory_rich_card_at_lower_clocks() -> None:
    """An L40S runs at 2520 MHz with 864 GB/s, an A100 80 GB at 1410 MHz with 2039 GB/s."""
    nodes = {"fast": {"model": "l40s"}, "rich": {"model": "a100-sxm4-80gb"}}
    assert placed({"profile": "memory", "run": "1h"}, nodes)[0] == "rich"
    assert placed({"profile": "latency", "run": "1h"}, nodes)[0] == "fast"


# --- learned speeds -------------------------------------------------------------------------------


def learned(runs: int) -> Learned:
    return Learned(speed={("bert", "h100-sxm5-80gb"): Estimate(3.5, runs)})


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (1, "speed {g} on h100-sxm5-80gb, a guess (3.5 after 1 finished run, of 5 needed)"),
        (4, "speed {g} on h100-sxm5-80gb, a guess (3.5 after 4 finished runs, of 5 needed)"),
        (5, "speed 3.5 on h100-sxm5-80gb, learned from 5 finished runs (guess {g})"),
    ],
)
def test_learned_speeds_replace_guesses_after_enough_runs_and_both_are_told(
    runs: int, words: str
) -> None:
    spec = a_spec(family="bert")
    guess = speed_words(spec, "h100-sxm5-80gb", {}).split()[1]
    told = speed_words(spec, "h100-sxm5-80gb", learned(runs).speed)
    assert told == words.format(g=guess)


def test_the_users_own_table_goes_before_both() -> None:
    spec = a_spec(family="bert", speeds={"h100": 2.0})
    told = speed_words(spec, "h100-sxm5-80gb", learned(9).speed)
    assert told.startswith("speed 2 on h100-sxm5-80gb, as the job says (guess ")
    assert told.endswith("; 3.5 after 9 finished runs)")


def test_of_a_card_nobody_knows_nothing_is_said_but_that() -> None:
    assert speed_words(a_spec(), "tpu-9", {}) == "speed 1 on tpu-9: nothing is known of it"
    assert speed_words(a_spec(), "", {}) == ""


def test_a_decision_says_how_fast_its_options_are_taken_to_be() -> None:
    _, decision = placed({"run": "1h"}, {"n1": {}})
    (home,) = decision.alternatives
    assert home.speed == "speed 1 on a100-sxm4-80gb, a guess"
