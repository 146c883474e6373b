"""The planning benchmark makes the same world each time, and plans it cleanly."""

from __future__ import annotations

from benchmarks.planning import POLICY, TOPOLOGIES, compare, snapshot, timed
from hybrid.domain.job import JobState
from hybrid.runtime.planning import Planning
from policies.loading import parse_policy


def test_the_same_numbers_make_the_same_world() -> None:
    assert snapshot(20, nodes=12, offers=50) == snapshot(20, nodes=12, offers=50)


def test_the_cluster_has_every_topology_and_is_nearly_full() -> None:
    world = snapshot(10, nodes=48, offers=50)
    assert {node.gpus[0].model for node in world.nodes.values()} == {m for m, _ in TOPOLOGIES}
    held = sum(len(slot.gpu_ids) for run in world.runs.values() for slot in run.slots)
    assert 0.8 < held / (48 * 8) < 0.97
    assert len(world.offers) == 50


def test_a_small_world_is_planned_cleanly() -> None:
    world = snapshot(60, nodes=24, offers=100)
    done = timed(world, parse_policy(POLICY), Planning())
    waiting = {j.id for j in world.jobs.values() if j.state is JobState.PENDING}
    assert waiting <= {decision.job_id for decision in done.made.decisions}
    assert done.seconds > 0


def test_the_rows_say_what_is_reached() -> None:
    line = {
        "seconds": {"1000": 0.2, "10000": 0.9, "100000": 13.0},
        "unchanged_s": 0.04,
        "peak_mib": 200.0,
    }
    reached = {row.what: row.reached for row in compare(line)}
    assert reached["10,000 jobs waiting"] is True
    assert reached["cost per job at 100,000 to that at 10,000"] is False
    assert reached["a tick without change"] is True
