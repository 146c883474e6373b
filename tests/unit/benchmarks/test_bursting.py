"""The bursting benchmark: its tuning, its world, and its line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks.bursting import compare, main, offers, replayed, tune
from hybrid.simulation.traces import TraceJob

HOUR = 3600.0


def falling(value: float) -> tuple[float, float]:
    """More GPU-hours and less waiting for a larger value."""
    return value, 1.0 / value


def test_tuning_ends_just_within_the_allowed_wait() -> None:
    found = tune(falling, 0.1, most=12)
    assert found.wait_h <= 0.1
    assert found.gpu_hours == pytest.approx(10.0, rel=0.02)
    assert found.replays == 12


def test_tuning_goes_on_while_nothing_has_kept_the_allowed_wait() -> None:
    found = tune(falling, 1e-4, most=2)
    assert found.wait_h <= 1e-4
    assert 2 < found.replays <= 20


def test_tuning_finds_a_cheaper_value_beyond_one_that_waits_too_long() -> None:
    tried: list[float] = []

    def jumping(value: float) -> tuple[float, float]:
        tried.append(value)
        gpu_hours, wait_h = falling(value)
        return gpu_hours, 0.09 if 9.0 < value < 9.7 else wait_h

    found = tune(jumping, 0.1, most=14)
    assert 9.0 < found.value_usd_per_hour < 9.7
    assert all(abs(a / b - 1.0) > 0.005 for a, b in itertools.combinations(tried, 2))


def test_tuning_says_when_no_value_will_do() -> None:
    with pytest.raises(ValueError, match="no value keeps the mean wait"):
        tune(lambda value: (value, 5.0), 0.1, most=4)


def test_a_cloud_costs_the_gpus_that_a_job_runs_on() -> None:
    prices = {offer.gpus: offer.price_micros_per_hour for offer in offers()}
    assert prices == {count: 2_500_000 * count for count in range(1, 9)}


def test_with_waits_beyond_price_only_what_finds_no_free_gpu_leaves() -> None:
    jobs = [TraceJob(str(i), i * 60.0, HOUR, 8) for i in range(6)]
    done = replayed(jobs, 1_000_000.0)
    assert done.mean_wait_s == 0
    assert done.cloud_gpu_s == pytest.approx(2 * 8 * HOUR)


def test_a_job_of_more_gpus_than_a_node_has_takes_whole_nodes() -> None:
    done = replayed([TraceJob("wide", 0.0, HOUR, 16)], 1.0)
    assert done.fates[0].gpus == 16


def test_the_line_has_the_keys_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i},{i * 0.1},1.0,8\n" for i in range(8))
    (tmp_path / "load1.0_seed1.csv").write_text("job_id,arrival_h,runtime_h,gpus\n" + rows)
    published = {"compute_wait": {"cloud_gpu_hours": 32.0, "mean_wait_h": 0.2}}
    (tmp_path / "published.json").write_text(json.dumps([{"load": 1.0, "seed": 1, **published}]))
    main(["--data", str(tmp_path), "--quick"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["benchmark"] == "bursting"
    assert set(line["ratio"]) == set(line["ratio_noisy"]) == {"1", "mean"}
    assert all(row.what for row in compare(line))
