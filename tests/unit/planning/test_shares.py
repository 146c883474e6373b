"""Shares go where what stays free is of most use to the jobs there are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.domain.plan import Place
from hybrid.planning.choices import Choices
from hybrid.planning.demand import Demand
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.planning.workspace import Workspace
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build


def held(world: dict[str, Any]) -> dict[str, str]:
    """Which device each placed job gets."""
    snapshot, policy = build(world)
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return {
        str(a.run.job_id): a.run.slots[0].gpu_ids[0].removeprefix("GPU-")
        for a in made.actions
        if isinstance(a, Place)
    }


def test_a_share_leaves_the_room_that_others_ask_for() -> None:
    """Beside the 0.5 the tightest fit would be on the device with 0.5 free, which is all that the
    queue's 0.5 jobs could use there; on the one with 0.7 free nobody loses a place."""
    jobs = {
        "a": {"share": 0.5, "at": "n1:0", "run": "9h"},
        "b": {"share": 0.3, "at": "n1:1", "run": "9h"},
        "small": {"share": 0.2, "run": "1h", "priority": "high"},
        "half": {"share": 0.5, "run": "1h", "count": 4},
    }
    assert held({"nodes": {"n1": {"gpus": 2}}, "jobs": jobs})["small"] == "n1-1"


def test_a_share_does_not_open_the_device_that_whole_jobs_wait_for() -> None:
    jobs = {
        "a": {"share": 0.6, "at": "n1:0", "run": "9h"},
        "whole": {"run": "1h", "count": 9},
        "small": {"share": 0.2, "run": "1h", "priority": "high"},
    }
    nodes = {"n1": {"gpus": 4}, "n2": {"gpus": 4}}
    assert held({"nodes": nodes, "jobs": jobs})["small"] == "n1-0"


def test_cores_run_short_before_devices_do() -> None:
    """Two nodes alike but for their cores: the share that needs none goes where cores are scarce
    and the free GPU is lost to others anyway."""
    jobs = {
        "hungry": {"share": 0.5, "cpus": 8, "run": "1h", "count": 3, "where": {"pools": ["else"]}},
        "frugal": {"share": 0.5, "cpus": 1, "run": "1h", "priority": "high"},
    }
    nodes = {"n1": {"gpus": 1, "cpus": 16}, "n2": {"gpus": 1, "cpus": 4}}
    pools = {"home": {}, "else": {}}
    assert held({"nodes": nodes, "jobs": jobs, "pools": pools})["frugal"] == "n2-0"


def test_instances_of_a_parted_gpu_take_no_shares() -> None:
    snapshot, policy = build({"nodes": {"n1": {"gpus": 2}}, "jobs": {"s": {"share": 0.5}}})
    ws = Workspace(snapshot, policy, 1)
    (view,) = ws.nodes
    demand = Demand(ws, ws.lines)
    assert demand.free_milli(view, ws.lines[0], {0: 0.25}).tolist() == [250, 1000]


def test_the_mix_counts_every_job_by_what_it_asks() -> None:
    jobs = {
        "half": {"share": 0.5, "count": 3},
        "gang": {"gpus": 2, "nodes": 2},
        "runs": {"share": 0.5, "at": "n1:0"},
    }
    snapshot, policy = build({"nodes": {"n1": {"gpus": 2}, "n2": {"gpus": 2}}, "jobs": jobs})
    ws = Workspace(snapshot, policy, 1)
    choices = Choices(ws)
    assert choices.demand() is choices.demand()
    weights = {(c.gpus, c.share_milli): c.weight for c in choices.demand().classes}
    assert weights == {(1, 500): 4.0, (2, 1000): 2.0}
    ws.rebuild_timelines()
    assert choices.demand().fragmentation.share() >= 0.0


def test_a_slice_of_memory_is_the_larger_share_of_the_smaller_card() -> None:
    jobs = {"slice": {"slice_memory": "20GiB"}}
    for model, share in (("a100-sxm4-80gb", 0.25), ("a100-sxm4-40gb", 0.5)):
        snapshot, policy = build({"nodes": {"n1": {"model": model}}, "jobs": jobs})
        (action,) = plan(snapshot, policy, 1).actions
        assert isinstance(action, Place)
        (slot,) = action.run.slots
        assert (slot.share, slot.gpu_memory_gib) == (share, 20.0)


def test_of_share_and_slice_the_larger_part_is_held() -> None:
    jobs = {"both": {"slice_memory": "20GiB", "share": 0.5}, "share": {"share": 0.3}}
    snapshot, policy = build({"nodes": {"n1": {}}, "jobs": jobs})
    slots = {
        str(a.run.job_id): a.run.slots[0]
        for a in plan(snapshot, policy, 1).actions
        if isinstance(a, Place)
    }
    assert (slots["both"].share, slots["both"].gpu_memory_gib) == (0.5, 20.0)
    assert (slots["share"].share, slots["share"].gpu_memory_gib) == (0.3, 24.0)


def test_a_slice_of_all_the_memory_takes_the_device_whole() -> None:
    """80 GiB of a card with a little less: two per cent may be missing."""
    jobs = {"all": {"slice_memory": "81GiB"}, "small": {"slice_memory": "1GiB"}}
    snapshot, policy = build({"nodes": {"n1": {}}, "jobs": jobs})
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    (action,) = made.actions
    assert isinstance(action, Place)
    assert (action.run.slots[0].share, action.run.slots[0].gpu_memory_gib) == (1.0, 80.0)


PARTS = st.fixed_dictionaries(
    {"run": st.sampled_from(["10m", "1h", "9h"])},
    optional={
        "slice_memory": st.sampled_from([1, 7.3, 10, 26.7, 39, 40, 79]),
        "share": st.sampled_from([0.07, 1 / 3, 0.5, 1.0]),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a100-sxm4-80gb", "a100-sxm4-40gb", "t4"]), min_size=1, max_size=3),
    st.lists(PARTS, max_size=12),
)
def test_no_device_gives_more_memory_or_computing_than_it_has(
    models: list[str], asked: list[dict[str, Any]]
) -> None:
    nodes = {f"n{i}": {"gpus": 2, "model": model} for i, model in enumerate(models)}
    jobs = {f"j{i}": job for i, job in enumerate(asked)}
    unsearched = {"scheduling": {"improve": False}}  # searching takes long, and is not the point
    snapshot, policy = build({"nodes": nodes, "jobs": jobs, "policy": unsearched})
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    after = apply_plan(snapshot, made)
    assert plan(after, policy, 1).actions == ()
    has = {gpu.id: gpu.memory_gib for node in after.nodes.values() for gpu in node.gpus}
    share, memory = dict.fromkeys(has, 0.0), dict.fromkeys(has, 0.0)
    for run in after.runs.values():
        gpu = snapshot.jobs[run.job_id].spec.resources.gpu
        for slot in run.slots:
            (id_,) = slot.gpu_ids
            share[id_] += slot.share
            memory[id_] += has[id_] if slot.gpu_memory_gib is None else slot.gpu_memory_gib
            assert slot.share >= gpu.share or gpu.share == 1.0
            assert gpu.slice_memory is None or slot.gpu_memory_gib is not None
    assert all(total <= 1 + 1e-9 for total in share.values())
    assert all(memory[id_] <= has[id_] * (1 + 1e-9) for id_ in has)
