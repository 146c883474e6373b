"""Contradictory constraints: the smallest set of them is named, and none in it is needless."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.job_spec import JobSpec
from hybrid.domain.reasons import Contradiction
from hybrid.planning.conflicts import constraints_of, contradiction, in_the_catalogue, smallest
from tests.doubles.build import a_local_pool, a_spec
from tests.unit.planning.test_admit import A100, RACK, T4S, asked, gpu


def test_each_constraint_that_is_met_alone_is_named_with_the_others() -> None:
    reason = asked(resources=gpu(memory=80, models=["t4"]))
    assert reason == Contradiction(
        ("GPU model t4", "GPU memory ≥ 80 GiB"),
        ("resources.gpu.models", "resources.gpu.memory"),
    )
    assert str(reason) == (
        "no place meets GPU model t4 and GPU memory ≥ 80 GiB together; each alone can be met"
    )


def test_constraints_that_have_no_part_in_it_are_not_named() -> None:
    resources = {"gpus": 2, "cpus": 8, "memory": 16, "gpu": {"models": ["t4"], "memory": 40}}
    reason = asked(resources=resources, image="img", where={"regions": ["eu-west-1"]})
    assert isinstance(reason, Contradiction)
    assert reason.paths == ("resources.gpu.models", "resources.gpu.memory")


def test_what_only_the_pools_forbid_is_found_as_well() -> None:
    pools = (*RACK, a_local_pool("lab"))
    lab = {"where": {"pools": ["lab"]}}
    there = (A100, T4S, _in_lab())
    reason = asked(*there, pools=pools, resources=gpu(models=["a100-80gb"]), **lab)
    assert isinstance(reason, Contradiction)
    assert reason.paths == ("resources.gpu.models", "where.pools")
    assert "pool rack is not allowed by the job" in reason.places


def _in_lab() -> Any:
    from dataclasses import replace

    from hybrid.domain.ids import NodeId, PoolName

    return replace(T4S, id=NodeId("n9"), pool=PoolName("lab"))


def test_a_contradiction_in_the_catalogue_is_told_although_no_node_has_joined() -> None:
    resources = gpu(models=["t4"], min_compute_capability="8.0")
    assert isinstance(asked(A100, pools=(*RACK, a_local_pool("new")), resources=resources),
                      Contradiction)  # fmt: skip


@pytest.mark.parametrize(
    "resources",
    [
        gpu(models=["t4"]),
        gpu(memory=80, models=["t4", "a100-80gb"]),
        gpu(mig_profile="1g.10gb", models=["a100-80gb"], memory=10),
        gpu(models=["tpu-9"], memory=4000),
        gpu(memory=4000),
        {"gpus": 0, "gpu": {"models": ["t4"], "memory": 80}},
    ],
    ids=["nothing", "one of two", "of the slice", "unknown", "one alone", "no GPU"],
)
def test_the_catalogue_says_nothing_of(resources: dict[str, Any]) -> None:
    assert in_the_catalogue(a_spec(resources=resources)) is None


def test_a_profile_that_no_such_model_has_is_told() -> None:
    reason = in_the_catalogue(a_spec(resources=gpu(mig_profile="1g.10gb", models=["t4"])))
    assert reason is not None
    assert reason.constraints == ("GPU model t4", "MIG profile 1g.10gb")


def test_an_instance_with_less_memory_than_is_asked_for_is_told() -> None:
    resources = gpu(mig_profile="1g.10gb", models=["a100"], memory=40)
    reason = in_the_catalogue(a_spec(resources=resources))
    assert reason is not None
    assert reason.constraints == ("GPU memory ≥ 40 GiB", "MIG profile 1g.10gb")


def test_more_gpus_than_any_node_has_keep_the_hint_at_a_gang() -> None:
    assert asked(resources=gpu(gpus=6, models=["a100-80gb"])).code == "too_many_gpus_per_node"  # type: ignore[union-attr]


@given(st.integers(0, 10_000))
def test_the_set_is_the_smallest_that_cannot_be_met(seed: int) -> None:
    """Against all subsets: random conflicts, each a set of constraints that clash."""
    dice = random.Random(seed)
    number = dice.randint(1, 7)
    clashes = [
        frozenset(dice.sample(range(number), dice.randint(1, min(4, number))))
        for _ in range(dice.randint(0, 3))
    ]

    def meets(kept: Any) -> bool:
        return not any(clash <= set(kept) for clash in clashes)

    found = smallest(number, meets)
    every = [
        few
        for size in range(1, number + 1)
        for few in combinations(range(number), size)
        if not meets(few)
    ]
    assert (found is None) == (not every)
    if found is not None:
        assert not meets(found)
        assert len(found) == len(every[0])
        assert all(meets([k for k in found if k != gone]) for gone in found)


def test_letting_go_of_every_constraint_leaves_a_spec_that_is_still_one() -> None:
    spec = a_spec(
        resources={"gpus": 4, "nodes": 2, "cpus": 8, "memory": 64, "architecture": "aarch64",
                   "gpu": {"models": ["t4"], "memory": 10, "link": "nvlink",
                           "min_compute_capability": "7.0"}},
        image="img",
        max_cost="5",
        where={"pools": ["a"], "providers": ["aws"], "regions": ["r"], "markets": ["spot"],
               "burst": "never"},
    )  # fmt: skip
    paths = [constraint.path for constraint in constraints_of(spec)]
    assert len(set(paths)) == len(paths) == 17
    for constraint in constraints_of(spec):
        freed = JobSpec.model_validate(constraint.without(spec).model_dump(mode="json"))
        left = {c.path for c in constraints_of(freed)}
        # what is left of a size is still a size
        assert left >= set(paths) - {constraint.path}


def test_a_job_that_can_run_has_no_contradiction() -> None:
    assert contradiction(a_spec(), lambda _: True) is None
    assert contradiction(a_spec(), lambda _: False) is None
