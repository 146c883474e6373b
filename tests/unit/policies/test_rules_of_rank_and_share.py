"""Who goes first, whose turn it is, who may be stopped."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.reasons import (
    AlreadyStopping,
    ClassNotAllowed,
    DoesNotPreempt,
    Guaranteed,
    NotAMember,
    SwitchedOff,
    TooMuchPreempted,
    TooYoung,
    WaitedTooLong,
)
from hybrid.domain.run import RunState
from policies import fairshare, preemption, priority, teams
from policies.document import PolicyDocument
from policies.loading import parse_policy
from tests.doubles.build import NOW, a_job, a_run, a_spec

HOUR = 3600.0


def of_class(name: str, id_: str = "j1", **fields: Any):
    resources = fields.pop("resources", {"gpus": 1})
    return a_job(id_, spec=a_spec(priority=name, resources=resources), **fields)


def test_rank_grows_with_age_up_to_the_most_that_age_gives():
    policy = parse_policy("aging: {per_hour: 4, max: 10}")
    job = of_class("normal")
    ranks = [priority.effective_rank(job, policy, NOW + h * HOUR) for h in (0, 1, 2, 3, 20)]
    assert ranks == [100, 104, 108, 110, 110]


def test_past_its_longest_wait_a_job_outranks_every_class():
    policy = PolicyDocument()
    low = of_class("low", submitted_at=NOW - 72 * HOUR)
    assert priority.overdue_at(low, policy) == NOW
    assert priority.effective_rank(low, policy, NOW) == policy.top_rank
    assert priority.effective_rank(low, policy, NOW + 2 * HOUR) == policy.top_rank + 2
    urgent = of_class("urgent", submitted_at=NOW - 0.9 * HOUR)
    assert priority.effective_rank(urgent, policy, NOW) < policy.top_rank


def test_a_clock_that_stepped_back_takes_no_rank_away():
    assert priority.effective_rank(of_class("normal"), PolicyDocument(), NOW - HOUR) == 100


@given(
    name=st.sampled_from(["low", "normal", "high", "urgent", "gone"]),
    per_hour=st.floats(0, 1e6),
    most=st.floats(0, 1e6),
    age=st.floats(0, 1e8),
    more=st.floats(0, 1e8),
)
def test_rank_never_falls_as_a_job_ages(
    name: str, per_hour: float, most: float, age: float, more: float
):
    policy = PolicyDocument.model_validate({"aging": {"per_hour": per_hour, "max": most}})
    job = of_class(name)
    earlier = priority.effective_rank(job, policy, NOW + age)
    assert earlier <= priority.effective_rank(job, policy, NOW + age + more)


@given(others=st.lists(st.floats(0, 1e6), min_size=1, max_size=5), most=st.floats(0, 1e6))
def test_an_overdue_job_of_any_class_is_above_all_that_are_not(others: list[float], most: float):
    policy = PolicyDocument.model_validate(
        {
            "aging": {"max": most, "per_hour": 1e6},
            "priority_classes": {
                f"c{i}": {"rank": rank, "max_wait": "1000d"} for i, rank in enumerate(others)
            },
        }
    )
    low = priority.effective_rank(of_class("low", submitted_at=NOW - 72 * HOUR), policy, NOW)
    for i in range(len(others)):
        waiting = of_class(f"c{i}", submitted_at=NOW - 999 * 24 * HOUR)
        assert priority.effective_rank(waiting, policy, NOW) < low


def test_an_hours_delay_is_worth_what_the_job_says_else_what_its_class_says():
    policy = PolicyDocument()
    assert priority.value_micros_per_hour(of_class("high"), policy) == 8_000_000
    free = a_job(spec=a_spec(priority="high", value_per_hour=Decimal(0)))
    assert priority.value_micros_per_hour(free, policy) == 0


def test_a_job_whose_class_was_taken_away_goes_on_with_rank_and_value_nought():
    gone = of_class("gone")
    assert priority.effective_rank(gone, PolicyDocument(), NOW) == 0
    assert priority.value_micros_per_hour(gone, PolicyDocument()) == 0


def test_a_team_may_use_all_classes_or_those_listed():
    policy = parse_policy("teams: {red: {classes: [low, normal]}}")
    assert priority.refusal("urgent", "blue", policy) is None
    assert priority.refusal("low", "red", policy) is None
    assert priority.refusal("urgent", "red", policy) == ClassNotAllowed("urgent", ("low", "normal"))
    assert priority.refusal("uregnt", "blue", policy) == ClassNotAllowed(
        "uregnt", ("low", "normal", "high", "urgent")
    )


def test_a_team_that_lists_members_is_closed_to_others():
    policy = parse_policy("teams: {red: {members: [ann]}}")
    assert teams.refusal("ann", "red", policy) is None
    assert teams.refusal("bob", "red", policy) == NotAMember("bob", "red")
    assert teams.refusal("bob", "blue", policy) is None


@pytest.mark.parametrize(
    ("resources", "demand"),
    [
        ({"gpus": 4}, 4),
        ({"gpus": 4, "nodes": 2}, 8),
        ({"gpus": 1, "gpu": {"share": 0.25}}, 0.25),
        ({"gpus": 1, "gpu": {"mig_profile": "3g.40gb"}}, 3 / 7),
        ({"gpus": 1, "gpu": {"mig_profile": "whole"}}, 1),
        ({"gpus": 0, "cpus": 32}, 2),
        ({"gpus": 1, "memory": 512}, 4),
    ],
)
def test_a_jobs_demand_is_its_dominant_resource_in_gpus(resources: dict[str, Any], demand: float):
    spec = a_spec(resources=resources)
    assert fairshare.demand_gpus(spec.resources, PolicyDocument()) == pytest.approx(demand)


def test_usage_halves_with_each_half_life_and_weight_divides_it():
    policy = parse_policy("fair_share: {half_life: 1d}\nteams: {red: {weight: 4}}")
    assert fairshare.decayed(100, 2 * 24 * HOUR, policy) == 25
    assert fairshare.decayed(100, -5, policy) == 100
    assert fairshare.share("red", 100, policy) == 25
    assert fairshare.share("blue", 100, policy) == 100


OLD = {"assigned_at": NOW - HOUR, "started_at": NOW - HOUR}


def may_preempt(
    policy: PolicyDocument | None = None, urgent: Any = None, victim: Any = None, **fields: Any
):
    defaults: dict[str, Any] = {
        "team_gpus": {"red": 4, "blue": 4},
        "lost_gpu_hours": 1.0,
        "preempted_gpu_hours": 0.0,
    }
    run = fields.pop("run", None) or a_run("v", **OLD)
    return preemption.refusal(
        run,
        victim or of_class("normal", "v", team="blue", submitted_at=NOW - 2 * HOUR),
        urgent or of_class("urgent", "u", team="red"),
        policy or PolicyDocument(),
        NOW,
        **{**defaults, **fields},
    )


def test_an_urgent_job_may_stop_a_normal_one_of_any_team():
    assert may_preempt() is None
    same = of_class("normal", "v", team="red", submitted_at=NOW - 2 * HOUR)
    assert may_preempt(victim=same) is None


@pytest.mark.parametrize(
    ("written", "team", "section"),
    [
        ("enabled: false", "blue", "preemption"),
        ("between_teams: false", "blue", "preemption between teams"),
        ("within_team: false", "red", "preemption within a team"),
    ],
)
def test_what_is_switched_off_does_not_happen(written: str, team: str, section: str):
    policy = parse_policy(f"preemption: {{{written}}}")
    victim = of_class("low", "v", team=team, submitted_at=NOW - 2 * HOUR)
    assert may_preempt(policy, victim=victim) == SwitchedOff(section)


@pytest.mark.parametrize(("mine", "other"), [("high", "low"), ("urgent", "urgent")])
def test_only_a_preempting_class_of_higher_rank_stops_others(mine: str, other: str):
    urgent = of_class(mine, "u", team="red")
    victim = of_class(other, "v", team="blue", submitted_at=NOW - HOUR)
    assert may_preempt(urgent=urgent, victim=victim, run=a_run("v", **OLD)) == DoesNotPreempt(
        mine, other
    )


@pytest.mark.parametrize("state", [RunState.STOPPING, RunState.ENDED])
def test_a_run_on_its_way_out_is_not_stopped_again(state: RunState):
    assert may_preempt(run=a_run("v", state=state, **OLD)) == AlreadyStopping("v.1")


def test_a_run_younger_than_the_minimum_is_left_alone():
    young = a_run("v", assigned_at=NOW - HOUR, started_at=NOW - 599)
    assert may_preempt(run=young) == TooYoung(599, 600)
    assigned = a_run("v", state=RunState.ASSIGNED, assigned_at=NOW + 3)
    assert may_preempt(run=assigned) == TooYoung(0, 600)


def test_a_job_that_waited_past_its_longest_wait_is_not_sent_back():
    victim = of_class("normal", "v", team="blue", submitted_at=NOW - 25 * HOUR)
    assert may_preempt(victim=victim) == WaitedTooLong(24 * HOUR, 24 * HOUR)


def test_no_team_is_brought_below_its_guarantee_by_another():
    policy = parse_policy("teams: {blue: {guaranteed_gpus: 4}}")
    assert may_preempt(policy) == Guaranteed("blue", 4, 3)
    assert may_preempt(policy, team_gpus={"blue": 5}) is None
    assert may_preempt(policy, team_gpus={}) == Guaranteed("blue", 4, 0)
    own = of_class("urgent", "u", team="blue")
    assert may_preempt(policy, urgent=own) is None


def test_work_thrown_away_in_an_hour_is_bounded():
    policy = parse_policy("preemption: {max_gpu_hours_per_hour: 3}")
    assert may_preempt(policy, lost_gpu_hours=1, preempted_gpu_hours=2) is None
    assert may_preempt(policy, lost_gpu_hours=1.5, preempted_gpu_hours=2) == TooMuchPreempted(
        1.5, 1
    )


def test_a_team_takes_back_its_guarantee_whatever_the_class_and_however_young_the_run():
    policy = parse_policy("teams: {red: {guaranteed_gpus: 8}, green: {guaranteed_gpus: 2}}")
    mine = of_class("low", "u", team="red", resources={"gpus": 4})
    young = a_run("v", started_at=NOW - 1)
    held = {"red": 4, "blue": 4, "green": 2}
    assert preemption.reclaims(mine, policy, held)
    assert may_preempt(policy, urgent=mine, run=young, team_gpus=held) is None
    theirs = of_class("low", "v", team="green", submitted_at=NOW - HOUR)
    assert may_preempt(policy, urgent=mine, victim=theirs, team_gpus=held) == Guaranteed(
        "green", 2, 1
    )
    own = of_class("low", "v", team="red", submitted_at=NOW - HOUR)
    assert may_preempt(policy, urgent=mine, victim=own, team_gpus=held) == DoesNotPreempt(
        "low", "low"
    )


def test_what_goes_beyond_the_guarantee_takes_nothing_back():
    policy = parse_policy("teams: {red: {guaranteed_gpus: 8}}")
    mine = of_class("low", "u", team="red", resources={"gpus": 4})
    assert not preemption.reclaims(mine, policy, {"red": 5})
    cpu = of_class("low", "u", team="red", resources={"gpus": 0})
    assert not preemption.reclaims(cpu, policy, {})
