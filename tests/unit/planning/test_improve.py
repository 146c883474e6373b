"""What the search for better plans may change, and what it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.exactness import planned_micros
from benchmarks.small_worlds import POLICY, small_world
from hybrid.domain.plan import Plan
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from policies.document import PolicyDocument
from policies.loading import parse_policy
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build

RULES = parse_policy(POLICY)
AS_RANKED = parse_policy(
    POLICY.replace("shortest_predicted", "{strategy: shortest_predicted, improve: false}")
)


def one_gpu(jobs: dict[str, Any], **policy: Any) -> tuple[Snapshot, PolicyDocument]:
    """One GPU that is held for an hour, for which these wait."""
    return build(
        {
            "nodes": {"n0": {"gpus": 1}},
            "jobs": {"x": {"run": "1h", "at": "n0", "started": "0s"}, **jobs},
            "policy": policy,
        }
    )


def starts_h(made: Plan) -> dict[str, float]:
    """When each waiting job is expected to start, in hours from now."""
    return {
        str(d.job_id): round((d.alternatives[0].start_p50_at or 0) - made.at) / 3600
        for d in made.decisions
        if d.verdict.value == "wait"
    }


LONG_FIRST = {
    "long": {"run": "8h", "submitted": "-2h", "value": 2},
    "short": {"run": "1h", "submitted": "-1h", "value": 2},
}


def order_of(made: Plan) -> list[str]:
    found = starts_h(made)
    return sorted(found, key=lambda job_id: found[job_id])


def test_of_two_jobs_that_rank_alike_the_short_one_goes_first_where_that_costs_less() -> None:
    snapshot, policy = one_gpu(LONG_FIRST)
    made = plan(snapshot, policy, 1)
    assert order_of(made) == ["short", "long"]
    # the long one waits an hour more, the short one eight hours less, at two dollars
    assert "costs $14.00 less" in made.notes[-1]


def test_a_policy_may_keep_jobs_in_the_order_in_which_they_rank() -> None:
    snapshot, policy = one_gpu(LONG_FIRST, scheduling={"improve": False})
    assert order_of(plan(snapshot, policy, 1)) == ["long", "short"]


@pytest.mark.parametrize("strategy", ["fifo", "priority", "fair_share", "best_fit"])
def test_where_the_strategy_says_all_cost_changes_nothing(strategy: str) -> None:
    snapshot, policy = one_gpu(LONG_FIRST, scheduling=strategy)
    assert order_of(plan(snapshot, policy, 1)) == ["long", "short"]


def test_a_higher_class_never_waits_for_a_lower_one_to_save_money() -> None:
    jobs = {
        "long": {"run": "8h", "priority": "high", "value": 1},
        "short": {"run": "1h", "value": 50},
    }
    snapshot, policy = one_gpu(jobs)
    assert order_of(plan(snapshot, policy, 1)) == ["long", "short"]


def test_a_team_whose_turn_it_is_never_waits_for_another_to_save_money() -> None:
    jobs = {
        "long": {"run": "8h", "submitted": "-2h", "value": 1, "team": "red"},
        "short": {"run": "1h", "submitted": "-1h", "value": 50, "team": "blue"},
    }
    snapshot, policy = one_gpu(jobs)
    assert order_of(plan(snapshot, policy, 1)) == ["long", "short"]


def test_an_overdue_job_is_served_first_whatever_it_costs() -> None:
    jobs = {
        "old": {"run": "8h", "submitted": "-25h", "value": 1},
        "short": {"run": "1h", "value": 50},
    }
    snapshot, policy = one_gpu(jobs)
    assert order_of(plan(snapshot, policy, 1)) == ["old", "short"]


def test_a_job_without_slack_is_served_first_whatever_it_costs() -> None:
    jobs = {
        "due": {"run": "8h", "deadline": "9h", "value": 1},
        "short": {"run": "1h", "submitted": "-3h", "value": 50},
    }
    snapshot, policy = one_gpu(jobs)
    assert order_of(plan(snapshot, policy, 1)) == ["due", "short"]


@pytest.mark.parametrize("position", range(8))
def test_searching_never_makes_a_plan_dearer_and_planning_again_adds_nothing(position: int) -> None:
    snapshot = small_world(5, position)
    made, ranked = plan(snapshot, RULES, 1), plan(snapshot, AS_RANKED, 1)
    assert lint(snapshot, made) == ()
    assert planned_micros(made, snapshot, RULES) <= planned_micros(ranked, snapshot, RULES)
    if made.complete:
        assert plan(apply_plan(snapshot, made), RULES, 1).actions == ()


def test_placing_an_urgent_job_does_not_open_the_search_to_the_plan_after() -> None:
    snapshot, policy = build(
        {
            "nodes": {"n0": {"gpus": 2}},
            "jobs": {
                "r0": {"run": "1h", "at": "n0", "started": "0s"},
                "placed": {"run": "2h", "priority": "urgent"},
                "long": {"run": "8h", "submitted": "-2h"},
                "short": {"run": "1h", "submitted": "-1h"},
            },
        }
    )
    first = plan(snapshot, policy, 1)
    second = plan(apply_plan(snapshot, first), policy, 1)
    assert order_of(first) == order_of(second) == ["long", "short"]


def test_the_search_stops_at_the_evaluation_budget_and_says_so() -> None:
    snapshot = replace(small_world(1, 70), evaluation_budget=1_000)
    made = plan(snapshot, RULES, 1)
    assert lint(snapshot, made) == ()
    assert not made.complete
    assert made.evaluations <= 1_000
    assert made.notes[-1].endswith("the evaluation budget is used up")
