"""GPUs of a time-sliced pool are given out in replicas, to jobs that accept one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Slot
from hybrid.domain.plan import Place, Plan
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.planning.why_not import why_not
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build

WOULD_DO = "gpu.time_slicing: true accepts one, and so does a share of 0.25 or less"
DESK = {"time_slicing": {"replicas": 4}}


def world(jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"pools": {"desk": DESK}, "nodes": {"d1": {"pool": "desk"}}, "jobs": jobs, **more}


def planned(described: dict[str, Any]) -> tuple[Snapshot, Plan]:
    snapshot, policy = build(described)
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return snapshot, made


def slots(made: Plan) -> dict[str, Slot]:
    return {str(a.run.job_id): a.run.slots[0] for a in made.actions if isinstance(a, Place)}


def sentence(made: Plan, job: str) -> str:
    return next(d.sentence for d in made.decisions if d.job_id == job)


def test_as_many_jobs_share_a_gpu_as_it_has_replicas() -> None:
    _, made = planned(world({"j": {"time_slicing": True, "count": 5, "run": "1h"}}))
    held = slots(made)
    assert {s.gpu_ids for s in held.values()} == {("GPU-d1-0",)}
    assert [(s.share, s.replicas, s.gpu_memory_gib) for s in held.values()] == [(0.25, 4, 20.0)] * 4
    assert sentence(made, "j-1") == "starts now on d1 (one of 4 replicas of a GPU) in desk"
    assert sentence(made, "j-5").startswith("waits for GPUs in desk")


@pytest.mark.parametrize(
    "asked",
    [{"share": 0.25}, {"share": 0.1}, {"slice_memory": 20}, {"share": 0.5, "time_slicing": True}],
    ids=str,
)
def test_a_replica_does_for_jobs_that_ask_for_no_more_or_say_so(asked: dict[str, Any]) -> None:
    _, made = planned(world({"j": {**asked, "run": "1h"}}))
    assert (slots(made)["j"].share, slots(made)["j"].replicas) == (0.25, 4)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, f"the job wants a whole GPU; {WOULD_DO}"),
        ({"share": 0.5}, f"the job wants 0.5 of a GPU; {WOULD_DO}"),
        ({"gpus": 2}, "of which a job gets one: it wants 2 GPUs"),
        ({"slice_memory": 21}, "needs 21 GiB of memory per GPU; the largest has 20 GiB usable"),
        ({"time_slicing": True, "memory": 40},
         "needs 40 GiB of memory per GPU; the largest has 20 GiB usable"),
    ],
    ids=["whole", "half", "two", "slice", "memory"],
)  # fmt: skip
def test_others_are_refused_with_what_would_do(asked: dict[str, Any], words: str) -> None:
    nodes = {"d1": {"pool": "desk", "gpus": 2}}
    _, made = planned(world({"j": {**asked, "run": "1h"}}, nodes=nodes))
    assert slots(made) == {}
    assert words in sentence(made, "j")


def test_a_job_without_gpus_goes_there_as_ever() -> None:
    _, made = planned(world({"j": {"gpus": 0, "run": "1h"}}))
    assert slots(made)["j"].gpu_ids == ()
    assert slots(made)["j"].replicas == 1


def test_a_replica_is_taken_to_run_at_its_part_of_the_speed() -> None:
    snapshot, made = planned(world({"j": {"time_slicing": True, "run": "1h"}}))
    (action,) = made.actions
    assert isinstance(action, Place)
    assert action.run.speed == 0.25
    assert action.run.expected_end_at == snapshot.now + 4 * 3600
    (option,) = next(d for d in made.decisions if d.job_id == "j").alternatives
    assert option.speed.endswith("; one of 4 replicas that share it: 0.25 of that")


def test_a_job_whose_walltime_is_too_short_for_a_replica_is_told_so() -> None:
    _, made = planned(world({"j": {"time_slicing": True, "run": "1h", "walltime": "2h"}}))
    assert slots(made) == {}
    assert "4h" in sentence(made, "j")


def test_a_whole_gpu_is_taken_where_a_replica_would_take_longer() -> None:
    pools = {"desk": DESK, "rack": {}}
    nodes = {"d1": {"pool": "desk"}, "r1": {"pool": "rack"}}
    described = world({"j": {"time_slicing": True, "run": "1h"}}, pools=pools, nodes=nodes)
    snapshot, made = planned(described)
    assert (slots(made)["j"].node_id, slots(made)["j"].share) == ("r1", 1.0)
    assert slots(made)["j"].gpu_memory_gib is None
    _, policy = build(described)
    (job,) = snapshot.jobs.values()
    told = why_not(snapshot, policy, 1, job, "desk")
    assert told.alternatives[-1].speed.endswith("one of 4 replicas that share it: 0.25 of that")


def test_instances_of_a_pool_that_is_time_sliced_are_not_divided() -> None:
    nodes = {"d1": {"pool": "desk", "mig": [{"3g.40gb": [0, 4]}]}}
    _, made = planned(world({"j": {"mig_profile": "3g.40gb", "run": "1h"}}, nodes=nodes))
    assert (slots(made)["j"].share, slots(made)["j"].replicas) == (1.0, 1)
    (action,) = made.actions
    assert isinstance(action, Place)
    assert action.run.speed == 1.0


@pytest.mark.parametrize("field", ["slice_memory", "time_slicing"])
@pytest.mark.parametrize("gpus", [0, 2])
def test_a_part_is_of_one_gpu(field: str, gpus: int) -> None:
    resources = {"gpus": gpus, "gpu": {field: 1}}
    with pytest.raises(ValueError, match="set gpus to 1"):
        JobSpec.model_validate({"command": ["x"], "resources": resources})


@pytest.mark.parametrize("field", ["slice_memory", "time_slicing"])
def test_a_mig_profile_says_it_all(field: str) -> None:
    resources = {"gpu": {field: 1, "mig_profile": "1g.10gb"}}
    with pytest.raises(ValueError, match="out"):
        JobSpec.model_validate({"command": ["x"], "resources": resources})


ASKED = st.sampled_from(
    [{}, {"share": 0.5}, {"share": 0.2}, {"slice_memory": 10}, {"slice_memory": 50},
     {"time_slicing": True}, {"time_slicing": True, "share": 0.7}, {"gpus": 2}, {"gpus": 0}]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.lists(st.tuples(ASKED, st.sampled_from(["10m", "3h"]), st.integers(1, 4)), max_size=8),
)
def test_whole_jobs_and_replicas_never_meet_on_a_gpu(
    replicas: int, asked: list[tuple[dict[str, Any], str, int]]
) -> None:
    jobs = {
        f"j{i}": {**what, "run": run, "count": count} for i, (what, run, count) in enumerate(asked)
    }
    pools = {"desk": {"time_slicing": {"replicas": replicas}}, "rack": {}}
    nodes = {"d1": {"pool": "desk", "gpus": 2}, "r1": {"pool": "rack", "gpus": 3}}
    unsearched = {"scheduling": {"improve": False}}  # searching takes long, and is not the point
    snapshot, made = planned({"pools": pools, "nodes": nodes, "jobs": jobs, "policy": unsearched})
    count: dict[str, int] = {}
    total: dict[str, float] = {}
    for slot in slots(made).values():
        for gpu in slot.gpu_ids:
            count[gpu] = count.get(gpu, 0) + 1
            total[gpu] = total.get(gpu, 0.0) + slot.share
            assert slot.replicas == (replicas if slot.node_id == "d1" else 1)
    assert all(share <= 1 + 1e-9 for share in total.values())
    assert all(n <= replicas for gpu, n in count.items() if gpu.startswith("GPU-d1"))
    assert len(snapshot.jobs) >= len(slots(made))
