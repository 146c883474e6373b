"""What is valid and can hardly be meant, each with its place."""

from __future__ import annotations

import pytest

from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from policies.doubts import Surroundings, doubts
from policies.loading import dotted, parse_policy
from tests.doubles.build import a_burst_pool, an_offer

SPENDS = "budgets: [{name: all, limit_usd: 100}]\n"

DOUBTFUL = [
    # text, path, part of the message
    ("", "budgets", "no job can ever burst: without a budget nothing is spent"),
    (
        "budgets: [{name: all, limit_usd: 0}]",
        "priority_classes.low",
        "class low can never burst under any budget: budget all allows $0.00",
    ),
    (
        (
            "budgets: [{name: reds, scope: team, subject: red, limit_usd: 5}]\n"
            "teams: {red: {classes: [low]}, blue: {classes: [high]}, default: {classes: [high]}}"
        ),
        "priority_classes.high",
        "class high can never burst under any budget: no budget covers team blue",
    ),
    (
        SPENDS + "priority_classes: {vip: {rank: 500}}\n"
        "teams: {red: {classes: [low, normal, high, urgent]}, default: {classes: [low]}}",
        "priority_classes.vip",
        "class vip can never burst under any budget: no team may use it",
    ),
    (SPENDS + "preemption: {enabled: false}", "priority_classes.urgent.preempts", "switched off"),
    (
        SPENDS + "priority_classes: {idle: {rank: 0, preempts: true}}",
        "priority_classes.idle.preempts",
        "there is no lower one",
    ),
    (
        SPENDS + "priority_classes: {high: {value_per_hour: 1}}",
        "priority_classes.high.value_per_hour",
        "goes before normal, but its hours are worth less",
    ),
    (SPENDS + "aging: {max: 0}", "aging.max", "by at most 0"),
    (
        SPENDS + "preemption: {between_teams: false, within_team: false}",
        "preemption",
        "neither between teams nor within one",
    ),
    (
        SPENDS + "teams: {red: {regions: [eu]}}\nburst: {regions: [us]}",
        "teams.red.regions",
        "it can never burst",
    ),
    (
        SPENDS + "teams: {red: {guaranteed_gpus: 2}}\npreemption: {between_teams: false}",
        "teams",
        "no run of another team may be stopped",
    ),
    (
        SPENDS.replace("]", ", {name: r, scope: team, subject: rde, limit_usd: 5}]")
        + "teams: {red: {}}",
        "budgets[1].subject",
        "limits team rde, which is not under teams",
    ),
    (
        SPENDS.replace("]", ", {name: a, scope: user, subject: anm, limit_usd: 5}]")
        + "teams: {default: {members: [ann]}}",
        "budgets[1].subject",
        "limits anm, who is in no team",
    ),
    (
        SPENDS.replace("]", ", {name: r, scope: team, subject: red, limit_usd: 500}]"),
        "budgets[1].limit_usd",
        "can never be what limits: all covers the same spending and more, and allows $100.00",
    ),
    (
        "budgets: [{name: a, limit_usd: 9, thresholds: [{at: 8, action: notify}]}]",
        "budgets[0].thresholds[0].at",
        "8 times the limit",
    ),
    (
        (
            "budgets: [{name: a, limit_usd: 9, thresholds:"
            " [{at: 0.8, action: drain}, {at: 0.9, action: no_new_claims}]}]"
        ),
        "budgets[0].thresholds[1]",
        "comes after drain",
    ),
    (
        (
            "budgets: [{name: a, limit_usd: 9, thresholds:"
            " [{at: 0.8, action: notify}, {at: 0.8, action: notify}]}]"
        ),
        "budgets[0].thresholds[1]",
        "given twice",
    ),
    (SPENDS + "burst: {ceilings: {machines: 0}}", "burst.ceilings.machines", "ceiling of nothing"),
    (
        SPENDS + "burst: {markets: [spot]}\nspot: {max_interruptions_per_hour: 0}",
        "spot.max_interruptions_per_hour",
        "only spot is allowed",
    ),
    (
        SPENDS
        + "burst: {quiet_hours: [{start: 08:00, until: 20:00}, {start: 20:00, until: 08:00}]}",
        "burst.quiet_hours",
        "always a quiet hour",
    ),
    (
        SPENDS + "teams: {red: {}}\nplacement: {reserved: [{models: [h100], teams: [rad]}]}",
        "placement.reserved[0].teams[0]",
        "not under teams",
    ),
    (
        SPENDS + "teams: {default: {classes: [low]}}\n"
        "placement: {reserved: [{models: [h100], classes: [high]}]}",
        "placement.reserved[0].classes[0]",
        "which no team may use",
    ),
]


@pytest.mark.parametrize(
    ("text", "path", "message"), DOUBTFUL, ids=[f"{i}-{c[1]}" for i, c in enumerate(DOUBTFUL)]
)
def test_what_can_hardly_be_meant_is_told_with_its_place(text: str, path: str, message: str):
    found = {dotted(each.path): each for each in doubts(parse_policy(text), Surroundings())}
    assert path in found, found
    assert message in found[path].message


@pytest.mark.parametrize(
    "text",
    [
        SPENDS,
        SPENDS + "scheduling: fair_share",
        "scheduling: fifo\npriority_classes: {urgent: {preempts: false}}",
        SPENDS + "burst: {quiet_hours: [{start: 22:00, until: 06:00}]}",
        "budgets: [{name: reds, scope: team, subject: red, limit_usd: 5}]",
        SPENDS + "teams: {red: {guaranteed_gpus: 4}}",
    ],
)
def test_an_ordinary_policy_is_not_doubted(text: str):
    assert doubts(parse_policy(text), Surroundings()) == ()


def test_a_budget_below_what_the_cheapest_machine_may_cost_lets_nothing_burst():
    """30 min of lease, the end tail and the slack, at $1.20 an hour at most."""
    pool = a_burst_pool(lease={"duration": "30m", "end_tail": "2m"}).spec
    assert isinstance(pool, BurstPool)
    there = Surroundings(burst_pools=(pool,), offers=(an_offer(),))
    poor = parse_policy("budgets: [{name: all, limit_usd: 0.5}]")
    assert {each.message for each in doubts(poor, there)} == {
        f"class {name} can never burst under any budget: budget all allows $0.50, below the $0.66"
        " that the cheapest machine may cost"
        for name in ("low", "normal", "high", "urgent")
    }
    assert doubts(parse_policy("budgets: [{name: all, limit_usd: 0.7}]"), there) == ()


def test_a_region_that_no_pool_is_in_and_gpus_that_are_not_there_are_doubted():
    pool = POOL_SPEC.validate_python(a_burst_pool().spec.model_dump())
    there = Surroundings(burst_pools=(pool,), local_gpus=4)
    text = SPENDS + "burst: {regions: [us-east-2]}\nteams: {red: {guaranteed_gpus: 5}}"
    assert [(dotted(d.path), d.message, d.hint) for d in doubts(parse_policy(text), there)] == [
        ("teams", "5 GPUs are guaranteed and 4 are there", "guarantee no more than what is owned"),
        (
            "burst.regions[0]",
            "no burst pool has us-east-2 among its regions",
            "did you mean us-east-1?",
        ),
    ]
