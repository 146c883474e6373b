"""A trace is played from event to event by the planner itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.bursting import CLOUD, LOCAL, POLICY, offers
from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.job_spec import JobSpec, Resources
from hybrid.simulation.replay import START_AT, Arrival, Fate, Replay, Replayed, ReplayError
from hybrid.simulation.world import node_report

HOUR = 3600.0
NEVER_WORTH_IT, ALWAYS_WORTH_IT = "0.000001", "100000"


def arrival(id_: str, at_h: float, run_h: float, gpus: int = 1, **fields: Any) -> Arrival:
    spec = JobSpec(
        command=("train",),
        resources=Resources(gpus=gpus),
        expected_runtime=run_h * HOUR,
        walltime=30 * 86_400,
    )
    return Arrival(job_id=id_, at_s=at_h * HOUR, spec=spec, work_s=run_h * HOUR, **fields)


def played(
    *arrivals: Arrival, gpus: int = 1, value: str = NEVER_WORTH_IT, **fields: Any
) -> Replayed:
    node = node_report(
        NodeId("n1"), PoolName("rack"), "a100-sxm4-80gb", gpus, "nvswitch",
        run_lease_s=float("inf"), cpus=1000, memory_gib=10_000,
    )  # fmt: skip
    replay = Replay(
        policy=POLICY.format(value=value),
        pools=(LOCAL, CLOUD),
        nodes=[node],
        **{"offers": offers(), **fields},
    )
    return replay.run(arrivals)


def by_id(done: Replayed) -> dict[str, Fate]:
    return {fate.job_id: fate for fate in done.fates}


def test_jobs_run_one_after_the_other_on_one_gpu() -> None:
    done = played(arrival("a", 0, 2), arrival("b", 1, 1))
    fates = by_id(done)
    assert fates["a"].started_at == START_AT
    assert fates["b"].started_at == pytest.approx(START_AT + 2 * HOUR)
    assert done.mean_wait_s == pytest.approx(HOUR / 2)
    assert done.cloud_gpu_s == 0
    assert done.utilisation == pytest.approx(1.0)


def test_a_wait_that_costs_more_than_a_machine_is_not_waited() -> None:
    done = played(arrival("a", 0, 2), arrival("b", 1, 1), value=ALWAYS_WORTH_IT)
    fates = by_id(done)
    assert not fates["a"].in_cloud
    assert fates["b"].in_cloud
    assert fates["b"].wait_s == 0
    assert done.cloud_gpu_s == pytest.approx(HOUR)
    assert done.utilisation == pytest.approx(1.0)


def test_a_machine_that_boots_is_waited_for() -> None:
    slow = tuple(replace(offer, boot_s=600.0) for offer in offers())
    done = played(arrival("a", 0, 3), arrival("b", 1, 1), value=ALWAYS_WORTH_IT, offers=slow)
    fate = by_id(done)["b"]
    assert fate.in_cloud
    assert fate.wait_s == pytest.approx(600.0)


def test_a_run_that_outlasts_its_lease_keeps_its_machine() -> None:
    done = played(arrival("a", 0, 80), arrival("b", 1, 60), value=ALWAYS_WORTH_IT)
    assert by_id(done)["b"].gpu_s == pytest.approx(60 * HOUR)


def test_the_start_told_at_submission_is_kept() -> None:
    done = played(arrival("a", 0, 2), arrival("b", 0.5, 1))
    told = by_id(done)["b"].told
    assert told is not None
    assert told.p50_at <= told.p90_at
    assert told.p90_at > START_AT + 1.5 * HOUR


def test_the_world_runs_what_is_true_not_what_was_said() -> None:
    lie = replace(arrival("a", 0, 1), work_s=3 * HOUR)
    assert by_id(played(lie))["a"].gpu_s == pytest.approx(3 * HOUR)


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(ReplayError, match="two jobs are called a"):
        played(arrival("a", 0, 1), arrival("a", 1, 1))


def test_a_job_that_never_started_has_no_wait() -> None:
    fate = Fate(job_id="a", submitted_at=0.0)
    with pytest.raises(ReplayError, match="never started"):
        _ = fate.wait_s
    with pytest.raises(ReplayError, match="never ended"):
        _ = fate.gpu_s


def test_nothing_to_play_is_a_replay_of_nothing() -> None:
    done = played()
    assert (done.fates, done.mean_wait_s, done.utilisation) == ((), 0.0, 0.0)
