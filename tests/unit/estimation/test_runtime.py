"""How much is left of a job, from what is known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.job import Checkpoint, Job, JobState, Progress
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.run import Run, RunState
from hybrid.estimation.runtime import (
    checkpoint_s,
    restart_s,
    run_left,
    total_work,
    work_done,
    work_left,
)
from tests.doubles.build import NOW, a_job, a_run, a_spec

HOUR = 3600.0


def running(**fields: Any) -> tuple[Job, Run]:
    """A job of one hour on the reference GPU, begun half an hour ago."""
    spec = a_spec(expected_runtime="1h", walltime="3h", **fields)
    job = a_job(state=JobState.RUNNING, spec=spec)
    return job, replace(a_run(), started_at=NOW - HOUR / 2)


def saved(at: float, work_s: float) -> Checkpoint:
    return Checkpoint(seq=1, step=1, committed_at=at, size_bytes=2**30, commit_s=7.0, work_s=work_s)


def test_what_the_user_states_counts_on_the_hardware_it_was_meant_for() -> None:
    assert total_work(a_spec(expected_runtime="1h"), Learned(), stated_speed=0.5).mean_s == 1800


def test_enough_finished_runs_of_the_family_go_before_the_statement() -> None:
    spec = a_spec(expected_runtime="1h", family="llm")
    few = Learned(work_s={"llm": Estimate(7200.0, 2)})
    many = Learned(work_s={"llm": Estimate(7200.0, 3)})
    assert total_work(spec, few).mean_s == HOUR
    assert total_work(spec, many).mean_s == 2 * HOUR


def test_a_single_run_of_the_family_goes_before_the_walltime() -> None:
    spec = a_spec(expected_runtime=None, family="llm", walltime="8h")
    assert total_work(spec, Learned(work_s={"llm": Estimate(600.0, 1)})).mean_s == 600.0


def test_of_an_unknown_job_half_its_walltime_is_expected() -> None:
    assert total_work(a_spec(expected_runtime=None, walltime="8h"), Learned()).mean_s == 4 * HOUR


def test_the_work_of_a_checkpoint_need_not_be_done_again() -> None:
    job = replace(a_job(spec=a_spec(expected_runtime="1h")), checkpoint=saved(NOW, 2400.0))
    left = work_left(job, Learned())
    assert left.mean_s == 1200.0
    assert left.sd_s == pytest.approx(0.3 * 1200.0)


def test_a_run_that_has_not_begun_takes_all_of_it() -> None:
    job, run = running()
    fast = replace(run, state=RunState.ASSIGNED, started_at=None, speed=2.0)
    assert run_left(job, fast, Learned(), now=NOW).mean_s == 1800.0


def test_a_run_without_progress_is_expected_to_keep_to_its_time() -> None:
    job, run = running()
    assert run_left(job, run, Learned(), now=NOW).mean_s == 1800.0


def test_progress_goes_before_the_expectation() -> None:
    job, run = running()
    said = Progress(step=25, total=100, at=NOW)
    assert run_left(job, run, Learned(), now=NOW, progress=said).mean_s == 3 * HOUR / 2


def test_progress_counts_from_the_first_step_of_this_run() -> None:
    job, run = running()
    resumed = replace(run, first_step=50)
    said = Progress(step=75, total=100, at=NOW)
    assert run_left(job, resumed, Learned(), now=NOW, progress=said).mean_s == 1800.0


def test_progress_that_tells_nothing_is_not_used() -> None:
    job, run = running()
    for step, total in ((0, 100), (5, 0)):
        said = Progress(step=step, total=total, at=NOW)
        assert run_left(job, run, Learned(), now=NOW, progress=said).mean_s == 1800.0


def test_a_run_past_its_expectation_takes_the_mean_residual_of_its_distribution() -> None:
    job, run = running()
    old = replace(run, started_at=NOW - 1.5 * HOUR)
    # lognormal of mean 1 h and spread 0.3, cut off at the walltime of 3 h: integrated numerically
    assert run_left(job, old, Learned(), now=NOW).mean_s == pytest.approx(771.7, abs=0.5)


def test_no_run_is_expected_past_its_walltime() -> None:
    job, run = running()
    old = replace(run, started_at=NOW - 3 * HOUR + 60)
    assert 20.0 < run_left(job, old, Learned(), now=NOW).mean_s <= 60.0


def test_a_run_known_by_its_walltime_alone_is_judged_by_its_age_from_the_beginning() -> None:
    job, run = running()
    job = replace(job, spec=a_spec(expected_runtime=None, walltime="2h"))
    left = run_left(job, replace(run, started_at=NOW - HOUR), Learned(), now=NOW)
    # half the walltime is over, the mean: most such runs go on for a third of what is left
    assert left.mean_s == pytest.approx(1275, abs=15)
    assert 0 < left.sd_s < 3600


def test_a_checkpoint_of_this_run_splits_what_is_done_from_what_is_left() -> None:
    job, run = running()
    job = replace(job, checkpoint=saved(NOW - 300, 1500.0))
    # 2100 s of work were left at the checkpoint, 300 s ago
    assert run_left(job, run, Learned(), now=NOW).mean_s == 1800.0
    assert work_done(job, run, now=NOW) == 300.0


def test_without_checkpoint_all_work_since_the_start_would_be_lost() -> None:
    job, run = running()
    assert work_done(job, replace(run, speed=0.5), now=NOW) == 900.0
    assert work_done(job, replace(run, started_at=None), now=NOW) == 0.0


def test_a_checkpoint_takes_as_long_as_measured_else_as_its_family_else_by_size() -> None:
    job = a_job(spec=a_spec(family="llm", checkpoint={"enabled": True, "size": 20}))
    learned = Learned(checkpoint_s={"llm": Estimate(40.0, 3)})
    assert checkpoint_s(job, Learned(), gib_per_s=0.1) == 200.0
    assert checkpoint_s(job, learned, gib_per_s=0.1) == 40.0
    measured = replace(job, checkpoint=saved(NOW, 1.0))
    assert checkpoint_s(measured, learned, gib_per_s=0.1) == 7.0


def test_a_restart_is_the_next_machine_the_data_and_the_jobs_own_start() -> None:
    job = a_job(spec=a_spec(family="llm"))
    learned = Learned(restart_s={"llm": Estimate(30.0, 3)})
    assert restart_s(job, learned, boot_s=120.0, inbound_s=5.0) == 155.0
    assert restart_s(a_job(), learned, boot_s=120.0, inbound_s=5.0) == 125.0
