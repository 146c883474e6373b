"""How much work is left of a job, in seconds on the reference GPU, and how sure that is."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.job import Job, Progress
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.learned import Learned
from hybrid.domain.run import Run, RunState
from hybrid.estimation.waits import Duration

WALLTIME_USED = 0.5
"""What part of its walltime a job of which nothing else is known is expected to take. Users ask
for about twice what they need (Mu'alem & Feitelson, IEEE TPDS 2001)."""

SPREAD_PROGRESS = 0.1
"""Relative standard deviation when the job itself says how far it is."""
SPREAD_LEARNED = 0.25
SPREAD_STATED = 0.3
SPREAD_WALLTIME = 0.6

FAMILY_RUNS = 3
"""Finished runs of a family from which on their mean goes before what the user stated."""

_LEAST_LEFT_S = 1.0


def total_work(spec: JobSpec, learned: Learned, *, stated_speed: float = 1.0) -> Duration:
    """The whole job's work in reference-seconds.

    ``stated_speed`` is the speed of the hardware that ``expected_runtime`` and ``walltime`` are
    meant for (1 on the reference GPU).
    """
    family = learned.work_s.get(spec.family) if spec.family else None
    if family is not None and family.samples >= FAMILY_RUNS:
        return Duration(family.mean, family.mean * SPREAD_LEARNED)
    if spec.expected_runtime is not None:
        work = spec.expected_runtime * stated_speed
        return Duration(work, work * SPREAD_STATED)
    if family is not None:
        return Duration(family.mean, family.mean * SPREAD_STATED)
    work = spec.walltime * WALLTIME_USED * stated_speed
    return Duration(work, work * SPREAD_WALLTIME)


def work_left(job: Job, learned: Learned, *, stated_speed: float = 1.0) -> Duration:
    """Work of a pending job that must still be done: its last checkpoint counts as done."""
    total = total_work(job.spec, learned, stated_speed=stated_speed)
    if job.checkpoint is None or job.checkpoint.work_s <= 0:
        return total
    saved = job.checkpoint
    if 0 < saved.step < saved.total:
        # the same word that a live run is judged by: stopping a run must not change what is left
        left = max(saved.work_s * (saved.total - saved.step) / saved.step, _LEAST_LEFT_S)
        return Duration(left, left * SPREAD_PROGRESS)
    left = max(total.mean_s - saved.work_s, _LEAST_LEFT_S)
    return Duration(left, total.sd_s * left / total.mean_s)


def run_left(
    job: Job,
    run: Run,
    learned: Learned,
    *,
    now: float,
    progress: Progress | None = None,
    stated_speed: float = 1.0,
) -> Duration:
    """Seconds that a live run still takes where it is, never past its walltime."""
    saved = job.checkpoint
    if saved is not None and saved.committed_at <= run.assigned_at:
        # what an earlier run saved counts if this one goes on from it
        job = replace(job, checkpoint=job.resumes_on(run.gpu_model))
    whole = work_left(job, learned, stated_speed=stated_speed)
    if run.started_at is None:
        mean_s = min(whole.mean_s / run.speed, job.spec.walltime)
        return Duration(mean_s, whole.sd_s / run.speed)
    age_s = max(now - run.started_at, 0.0)
    limit_s = max(job.spec.walltime - age_s, _LEAST_LEFT_S)
    said = _by_progress(run, progress, now) if run.state is not RunState.ASSIGNED else None
    if said is not None:
        left = min(said, limit_s)
        return Duration(left, left * SPREAD_PROGRESS)
    since_s = age_s
    if job.checkpoint is not None and job.checkpoint.committed_at > run.started_at:
        # what the checkpoint saved is out of ``whole`` already; the time it took is as well
        since_s = max(now - job.checkpoint.committed_at, 0.0)
    lasts = Duration(whole.mean_s / run.speed, whole.sd_s / run.speed)
    left_s = lasts.mean_s - since_s
    if _is_guess(job.spec, learned) or left_s < _LEAST_LEFT_S:
        # a guess gets better with age, and a run past its expectation is not about to end
        rest = lasts.left_after(since_s, since_s + limit_s)
        return Duration(min(max(rest.mean_s, _LEAST_LEFT_S), limit_s), rest.sd_s)
    return Duration(min(left_s, limit_s), min(lasts.sd_s, left_s))


def _is_guess(spec: JobSpec, learned: Learned) -> bool:
    """Whether nothing but its walltime says how long the job takes."""
    return spec.expected_runtime is None and (
        spec.family is None or spec.family not in learned.work_s
    )


def work_done(job: Job, run: Run, *, now: float) -> float:
    """Reference-seconds of work a live run would lose if it were killed now without saving."""
    if run.started_at is None:
        return 0.0
    since = run.started_at
    if job.checkpoint is not None:
        since = max(since, job.checkpoint.committed_at)
    return max(now - since, 0.0) * run.speed


def _by_progress(run: Run, progress: Progress | None, now: float) -> float | None:
    """Seconds left at the pace of the steps done in this run; None when they do not tell."""
    if progress is None or progress.total <= 0 or run.started_at is None:
        return None
    done = progress.step - (run.first_step or 0)
    took_s = progress.at - run.started_at
    if done <= 0 or took_s <= 0:
        return None
    left_s = max(progress.total - progress.step, 0) * took_s / done - max(now - progress.at, 0.0)
    return max(left_s, _LEAST_LEFT_S)


def checkpoint_s(job: Job, learned: Learned, *, gib_per_s: float) -> float:
    """Seconds one checkpoint takes: measured on this job, on its family, else its size over the
    pool's transfer rate."""
    if job.checkpoint is not None and job.checkpoint.commit_s > 0:
        return job.checkpoint.commit_s
    family = learned.checkpoint_s.get(job.spec.family or str(job.id))
    if family is not None:
        return family.mean
    return job.spec.checkpoint.size / gib_per_s


def restart_s(job: Job, learned: Learned, *, boot_s: float, inbound_s: float) -> float:
    """Seconds from losing a machine to going on: the next machine, the data, the own start-up."""
    family = learned.restart_s.get(job.spec.family) if job.spec.family else None
    return boot_s + inbound_s + (family.mean if family is not None else 0.0)
