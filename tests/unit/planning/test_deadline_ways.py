"""Jobs with a deadline choose between nothing, spot and on-demand."""

from __future__ import annotations

from typing import Any

import pytest

from hybrid.domain.plan import CordonClaim, Decision, OpenClaim, Plan, Stop, Verdict
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build

SPOT = "offer:cloud/us-east-1a/p4d/spot"
REFUSED = {SPOT: {"cause": "InsufficientInstanceCapacity", "for": "45s"}}
SAVES = {"interval": "5m"}


def world(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One job with a deadline, and one machine type of two markets; nothing at home."""
    return {
        "pools": {"home": {}, "cloud": {"kind": "burst"}},
        "offers": {
            "spot": {"pool": "cloud", "type": "p4d", "market": "spot", "price": 1,
                     "interruptions": 0.2, **more.pop("spot", {})},
            "od": {"pool": "cloud", "type": "p4d", "price": 4, **more.pop("od", {})},
        },
        "policy": {"budgets": [{"name": "all", "limit_usd": 1000}], **more.pop("policy", {})},
        "jobs": {"report": {"run": "4h", "saves": SAVES, **job}},
        **more,
    }  # fmt: skip


def planned(given: dict[str, Any]) -> tuple[Plan, Decision]:
    snapshot, policy = build(given)
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return made, next(d for d in made.decisions if d.job_id == "report")


def markets(made: Plan) -> list[str]:
    return [str(a.claim.offer.market) for a in made.actions if isinstance(a, OpenClaim)]


def test_spot_is_taken_while_on_demand_could_still_meet_the_deadline() -> None:
    made, decision = planned(world({"deadline": "7h30m"}))
    assert markets(made) == ["spot"]
    assert "spot can be had and is the cheapest way to the deadline" in decision.sentence
    assert "by the stated interruption rate" in decision.sentence


def test_with_no_time_for_a_loss_it_is_on_demand() -> None:
    made, decision = planned(world({"deadline": "6h36m"}))
    assert markets(made) == ["on_demand"]
    assert "only on-demand is certain" in decision.sentence
    refusals = {a.refused.code for a in decision.alternatives if a.refused}
    assert "endangers_deadline" in refusals


def test_a_job_waits_for_spot_that_was_refused_while_there_is_time() -> None:
    made, decision = planned(world({"deadline": "20h"}, breakers=REFUSED))
    assert made.actions == ()
    assert (decision.verdict, decision.reason and decision.reason.code) == (
        Verdict.WAIT,
        "waits_for_spot",
    )


def test_a_job_whose_delay_is_dear_does_not_wait() -> None:
    made, _ = planned(world({"deadline": "20h", "value": 500}, breakers=REFUSED))
    assert markets(made) == ["on_demand"]


def test_a_job_without_checkpoints_keeps_the_rules_of_chance() -> None:
    made, decision = planned(
        world({"deadline": "20h", "saves": None, "retries": {"on_spot_restart": True}},
              breakers=REFUSED)
    )  # fmt: skip
    assert markets(made) == ["on_demand"]
    assert "expected:" not in decision.sentence


def test_a_second_job_of_the_class_takes_on_demand_when_spot_is_used_up() -> None:
    given = world({"deadline": "7h30m", "count": 2}, spot={"quota": 1})
    snapshot, policy = build(given)
    made = plan(snapshot, policy, 1)
    assert sorted(markets(made)) == ["on_demand", "spot"]
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()


def test_a_gang_is_judged_by_the_losses_of_all_its_machines() -> None:
    made, _ = planned(world({"deadline": "9h", "nodes": 2}, spot={"interruptions": 0.1}))
    assert markets(made) == ["spot", "spot"]


def test_a_tolerance_of_nothing_is_a_certainty_that_can_be_had() -> None:
    strict = {"spot": {"deadline_miss_probability": 0}}
    made, _ = planned(world({"deadline": "20h"}, policy=strict))
    assert markets(made) == ["spot"]


RUNNING = {"at": "n-c1", "started": "-40m", "run": "8h"}
CLAIMED = {"claims": {"c1": {"offer": "od", "job": "report", "asked": "-50m"}}}


def test_a_run_on_demand_goes_to_spot_and_leaves_its_machine_closed() -> None:
    made, decision = planned(world({**RUNNING, "deadline": "20h"}, **CLAIMED))
    assert [type(a) for a in made.actions] == [Stop, CordonClaim]
    assert decision.verdict is Verdict.STOP
    assert "goes on on spot p4d in cloud" in decision.sentence


@pytest.mark.parametrize(
    ("job", "more"),
    [
        ({"deadline": "9h30m"}, {}),
        ({"deadline": "20h"}, {"breakers": REFUSED}),
        ({"deadline": "20h"}, {"breakers": {SPOT: {"for": "-5s"}}}),
        ({"deadline": "20h", "started": "-2m"}, {}),
        ({"deadline": "20h", "where": {"markets": ["on_demand"]}}, {}),
    ],
    ids=["no time for two starts", "refused", "only a probe would tell", "young", "not allowed"],
)
def test_a_run_on_demand_stays(job: dict[str, Any], more: dict[str, Any]) -> None:
    made, _ = planned(world({**RUNNING, **job}, **CLAIMED, **more))
    assert made.actions == ()
