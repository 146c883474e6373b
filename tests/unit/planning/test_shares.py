"""Shares go where what stays free is of most use to the jobs there are."""

from __future__ import annotations

from typing import Any

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
