"""Why a job is not in a place: the first guard in words, or by how much the place is dearer."""

from __future__ import annotations

from typing import Any

import pytest

from hybrid.domain.ids import JobId
from hybrid.domain.plan import Decision
from hybrid.domain.reasons import CannotCheckpoint
from hybrid.planning.alternatives import STAY
from hybrid.planning.why_not import places, why_not
from tests.scenarios.world import build

WORLD: dict[str, Any] = {
    "pools": {
        "home": {},
        "attic": {},
        "empty": {},
        "cloud": {"kind": "burst"},
        "bare": {"kind": "burst", "machine_types": ["x1"]},
    },
    "nodes": {
        "rack1": {"gpus": 2},
        "old1": {"pool": "attic", "model": "t4"},
        "old2": {"pool": "attic", "model": "k80"},
        "off": {"pool": "empty", "state": "cordoned"},
    },
    "offers": {
        "spot": {"pool": "cloud", "type": "p4d", "market": "spot", "price": 1},
        "od": {"pool": "cloud", "type": "p4d", "price": 4},
        "small": {"pool": "cloud", "type": "g4dn", "price": 1, "model": "t4"},
    },
    "policy": {"budgets": [{"name": "all", "limit_usd": 100}]},
}


def asked(where: str, job: dict[str, Any] | None = None, **more: Any) -> Decision:
    given = {"run": "1h", "models": ["a100-80gb"], **(job or {})}
    snapshot, policy = build({**WORLD, **more, "jobs": {**more.get("jobs", {}), "mine": given}})
    assert where in places(snapshot)
    return why_not(snapshot, policy, 1, snapshot.jobs[JobId("mine")], where)


def codes(decision: Decision) -> list[str]:
    return [a.refused.code for a in decision.alternatives if a.refused is not None]


def test_the_place_that_was_chosen_says_so() -> None:
    decision = asked("home")
    assert decision.sentence.startswith("home is what was chosen: starts now on rack1")
    assert decision.reason is None


def test_a_local_pool_tells_what_each_kind_of_node_lacks() -> None:
    decision = asked("attic")
    assert decision.sentence.startswith("not in attic: GPU model: wants a100-80gb, has ")
    assert codes(decision) == ["hardware_mismatch", "hardware_mismatch"]
    # what was chosen stands beside it, to compare
    assert decision.alternatives[0].option == "pool:home"


def test_a_pool_whose_nodes_take_no_runs_says_in_which_state_they_are() -> None:
    assert asked("empty").sentence == (
        "not in empty: nodes: wants one that takes runs, has 1 cordoned"
    )


def test_a_pool_that_was_not_the_cheapest_says_by_how_much() -> None:
    dear = {**WORLD["pools"], "attic": {"rate_per_gpu_hour": "5"}}
    more = {"nodes": {"rack1": {"gpus": 1}, "old1": {"pool": "attic"}}, "pools": dear}
    decision = asked("attic", **more)
    assert decision.sentence == "not in attic: $4.90 dearer than local pool home"


def test_an_owned_pool_that_is_full_is_weighed_with_its_wait() -> None:
    busy = {"run": "9h", "at": "rack1"}
    more = {
        "nodes": {"rack1": {"gpus": 1}, "old1": {"pool": "attic"}},
        "jobs": {"busy": busy},
    }
    decision = asked("home", **more)
    assert codes(decision) == ["not_worth_it"]
    (_, home) = decision.alternatives
    assert {term.name for term in home.terms} == {"local energy", "waiting", "running"}


@pytest.mark.parametrize(
    ("job", "where", "sentence"),
    [
        ({}, "g4dn", "not in g4dn: GPU model: wants a100-80gb, has t4"),
        ({"where": {"burst": "never"}}, "cloud",
         "not in cloud: may not leave the premises: the job says burst: never"),
        ({"where": {"pools": ["home"]}}, "p4d",
         "not in p4d: pool cloud is not allowed by the job"),
        ({"nodes": 20, "where": {"pools": ["cloud"]}}, "cloud/us-east-1a/p4d/on_demand",
         "not in cloud/us-east-1a/p4d/on_demand: pool cloud is at its ceiling of 10 machines"),
        ({}, "cloud/us-east-1a/p4d/spot",
         f"not in cloud/us-east-1a/p4d/spot: {CannotCheckpoint()}"),
        ({}, "bare", "not in bare: no machine of bare is offered now"),
    ],
)  # fmt: skip
def test_a_cloud_tells_its_first_guard(job: dict[str, Any], where: str, sentence: str) -> None:
    assert asked(where, job).sentence == sentence


def test_a_provider_that_could_not_be_read_is_why_nothing_is_offered() -> None:
    decision = asked("bare", unknown=["offers:aws"])
    assert decision.sentence == "not in bare: offers:aws could not be read (timed out)"


def test_an_offer_that_would_do_says_by_how_much_it_is_dearer() -> None:
    decision = asked("p4d", {"saves": True})
    told = [a for a in decision.alternatives if a.option.startswith("offer:")]
    assert [a.refused.code for a in told if a.refused] == ["not_worth_it", "not_worth_it"]
    assert told[0].total_micros <= told[1].total_micros
    assert decision.sentence == f"not in p4d: {told[0].refused}"


def test_a_job_that_runs_is_judged_as_if_it_waited() -> None:
    decision = asked("attic", {"at": "rack1"})
    assert decision.sentence.startswith("not in attic: GPU model")


def test_a_job_that_runs_compares_with_going_on_where_it_is() -> None:
    decision = asked("home", {"at": "rack1"})
    assert decision.sentence == "home is where it runs"
    assert [option.option for option in decision.alternatives] == [STAY]


def test_a_job_that_no_place_takes_is_told_of_the_place_all_the_same() -> None:
    decision = asked("attic", {"models": ["h100"]})
    assert decision.sentence.startswith("not in attic: GPU model: wants h100")
