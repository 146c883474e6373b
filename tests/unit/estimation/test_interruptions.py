"""Interruptions stretch runs by the published first-order formulas."""

from __future__ import annotations

import math

import pytest

from hybrid.domain.job_spec import Checkpointing
from hybrid.estimation.interruptions import (
    LEAST_INTERVAL_S,
    MOST_INTERVAL_S,
    MOST_PRESSURE,
    best_interval,
    hinted_rate,
    interval_s,
    price_pressure,
    rate_per_hour,
    with_checkpoints,
    without_checkpoints,
)

HOUR = 3600.0


def test_the_best_interval_is_youngs() -> None:
    assert best_interval(50.0, 1e-4) == pytest.approx(1000.0)


def test_without_interruptions_one_need_never_save() -> None:
    assert best_interval(50.0, 0.0) == math.inf


def test_a_run_with_checkpoints_is_stretched_by_overhead_and_losses() -> None:
    found = with_checkpoints(
        10_000.0, rate_per_s=1e-4, overhead_s=10.0, interval_s=1000.0, restart_s=200.0
    )
    assert found is not None
    # (1 + 10/1000) / (1 − 1e-4 · (500 + 200))
    assert found.mean_s == pytest.approx(10_000 * 1.01 / 0.93)
    assert found.sd_s > 0
    assert found.interval_s == 1000.0


def test_a_run_shorter_than_the_interval_saves_nothing_on_the_way() -> None:
    found = with_checkpoints(
        100.0, rate_per_s=0.0, overhead_s=10.0, interval_s=1000.0, restart_s=0.0
    )
    assert found is not None
    assert found.mean_s == 100.0


def test_near_the_pole_a_run_is_refused() -> None:
    assert (
        with_checkpoints(100.0, rate_per_s=1e-3, overhead_s=1, interval_s=1000, restart_s=400)
        is None
    )


def test_a_run_without_checkpoints_begins_anew_each_time() -> None:
    rate = 1.0 / HOUR
    found = without_checkpoints(HOUR, rate_per_s=rate, restart_s=60.0)
    assert found is not None
    assert found.mean_s == pytest.approx((math.e - 1) * (HOUR + 60))
    # time to the first gap of length x in a Poisson stream, in units of 1/λ: e² − 2e − 1
    assert found.sd_s == pytest.approx(HOUR * math.sqrt(math.e**2 - 2 * math.e - 1))


def test_a_run_that_hardly_ever_gets_through_is_refused() -> None:
    assert without_checkpoints(4 * HOUR, rate_per_s=1.0 / HOUR, restart_s=0.0) is None


def test_nothing_interrupts_a_run_of_rate_nothing() -> None:
    found = without_checkpoints(HOUR, rate_per_s=0.0, restart_s=60.0)
    assert found is not None
    assert (found.mean_s, found.sd_s) == (HOUR, 0.0)


@pytest.mark.parametrize(
    ("stated", "hours", "seen", "expected"),
    [
        (0.05, 0.0, 0, 0.05),
        (0.05, 80.0, 4, 0.05),
        (0.05, 180.0, 0, 0.005),
        (0.0, 10.0, 2, 0.2),
        (0.0, 0.0, 0, 0.0),
        (0.0, 10.0, 0, 0.0),
    ],
)
def test_what_is_stated_counts_as_one_mean_lifetime_seen(
    stated: float, hours: float, seen: int, expected: float
) -> None:
    assert rate_per_hour(stated, hours, seen) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("written", "overhead_s", "per_hour", "expected_s"),
    [
        ("10m", 50.0, 0.36, 600.0),
        ("auto", 50.0, 0.36, 1000.0),
        ("auto", 50.0, 0.0, MOST_INTERVAL_S),
        ("auto", 0.001, 60.0, LEAST_INTERVAL_S),
        ("auto", 500.0, 60.0, 500.0),
        ("auto", 9_000.0, 0.0, 9_000.0),
    ],
    ids=["as written", "Young's", "nothing is taken", "not less than a minute",
         "not less than a save", "a save longer than an hour"],
)  # fmt: skip
def test_an_interval_is_as_written_or_worked_out(
    written: str, overhead_s: float, per_hour: float, expected_s: float
) -> None:
    saving = Checkpointing.model_validate({"enabled": True, "interval": written})
    found = interval_s(saving, overhead_s=overhead_s, rate_per_s=per_hour / 3600)
    assert found == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("now", "usual", "ceiling", "expected"),
    [
        (300, 300, 1000, 1.0),
        (200, 300, 1000, 1.0),
        (450, 300, 1000, 2.25),
        (900, 300, 1000, MOST_PRESSURE),
        (900, 900, 1000, 1.5),
        (1000, 1000, 1000, 2.0),
        (301, 300, 1000, 1.0),
        (300, 0, 1000, 1.0),
    ],
    ids=["as usual", "fallen", "risen by half", "trebled", "near the ceiling", "at the ceiling",
         "a hair above", "nothing known"],
)  # fmt: skip
def test_a_spot_price_that_rises_or_nears_its_ceiling_raises_the_rate(
    now: int, usual: int, ceiling: int, expected: float
) -> None:
    assert price_pressure(now, usual, ceiling) == expected


def test_a_machine_that_should_be_left_counts_as_taken_once_an_hour_at_least() -> None:
    assert (hinted_rate(0.05), hinted_rate(3.0)) == (1.0, 3.0)
