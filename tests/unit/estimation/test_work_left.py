"""What is left of a job after a checkpoint."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.job import Checkpoint
from hybrid.domain.learned import Learned
from hybrid.estimation.runtime import work_left
from tests.doubles.build import NOW, a_job, a_spec


def test_what_is_left_after_a_checkpoint_follows_the_steps_the_job_counts() -> None:
    saved = Checkpoint(
        seq=1, step=30, total=120, committed_at=NOW, size_bytes=1, commit_s=1.0, work_s=40.0
    )
    job = a_job(spec=a_spec(expected_runtime="50s"), checkpoint=saved)
    assert work_left(job, Learned()).mean_s == 120.0
    unsaid = a_job(spec=a_spec(expected_runtime="50s"), checkpoint=replace(saved, total=0))
    assert work_left(unsaid, Learned()).mean_s == 10.0
