"""What the recovery benchmark counts as whose time, and as work lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import recovery, saving_job
from benchmarks.recovery import Recovery


def test_time_that_two_take_at_once_is_taken_off_once() -> None:
    spans = [(5.0, 6.0), (1.0, 3.0), (2.0, 4.0), (5.5, 20.0), (-3.0, 0.5)]
    assert recovery.covered_s(spans, (0.0, 10.0)) == pytest.approx(0.5 + 3.0 + 5.0)
    assert recovery.covered_s([], (0.0, 10.0)) == 0.0


def test_steps_done_beyond_what_was_resumed_from_are_lost() -> None:
    trace = ["begin 0 1", "step 1 2", "step 2 3", "begin 1 4", "step 2 5", "begin 2 6"]
    assert recovery.steps_lost(trace, 1) == 1
    assert recovery.steps_lost(trace, 2) == 0
    with pytest.raises(ValueError, match="no beginning 3"):
        recovery.steps_lost(trace, 3)


def test_a_jobs_span_is_from_the_signal_to_the_last_process(tmp_path: Path) -> None:
    events = [("started", 1.0), ("stopping", 5.0), ("killing", 6.0), ("ended", 7.5)]
    folder = tmp_path / "machine" / "guard"
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"run_id": run, "event": event, "at": at + shift})
        for run, shift in (("j.2", 100.0), ("j.1", 0.0))
        for event, at in events
    ]
    (folder / "journal.jsonl").write_text("\n".join(lines))
    assert recovery.job_span(tmp_path, "j.1") == (5.0, 7.5)


def test_the_line_has_the_mean_of_ours_and_the_worst_loss() -> None:
    line = recovery.figures([Recovery(10.0, 9.0, 0), Recovery(10.0, 7.0, 2)])
    assert line["own_seconds_per_job"] == 2.0
    assert line["lost_steps_max"] == 2
    assert [row.reached for row in recovery.compare(line)] == [None, True, False]


def test_what_the_job_saves_it_finds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_CHECKPOINT_DIR", str(tmp_path))
    assert saving_job.saved_step() == 0
    saving_job.save(41, 1000)
    assert saving_job.saved_step() == 41
    first = (tmp_path / "state.bin").read_bytes()
    saving_job.save(42, 1000)
    second = (tmp_path / "state.bin").read_bytes()
    assert len(first) == len(second) == 1000
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 50
    assert (tmp_path / "STEP").read_text() == "42\n"
