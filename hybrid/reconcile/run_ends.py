"""The end of a run, and what it means for its job: done, failed, or to be run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hybrid.domain.job import FailedPlace, Job, JobState, StopCause
from hybrid.domain.money import cost_micros
from hybrid.domain.quantities import format_duration
from hybrid.domain.run import EXIT_CHECKPOINTED, Run, RunState
from hybrid.ports.engine import RankReport
from hybrid.reconcile.learning import Lessons
from hybrid.reconcile.rules import SyncRules

Ranks = Mapping[int, RankReport]

_REQUEUE = frozenset(
    {
        StopCause.RETURN,
        StopCause.CONSOLIDATE,
        StopCause.PREEMPT,
        StopCause.DRAIN,
        StopCause.LEASE,
        StopCause.INTERRUPTION,
        StopCause.NODE_LOST,
    }
)
_PLACES_KEPT = 32
"""The last nodes and places at which a job has failed that are remembered."""


def problem_of(ranks: Ranks) -> str:
    """What keeps the first rank that says so from having its saves committed."""
    said = (ranks[rank].checkpoint_problem for rank in sorted(ranks))
    return next((problem for problem in said if problem), "")


def apart(run: Run, ranks: Ranks) -> str:
    """That the ranks of a gang went on from different steps, which must not be; empty where they
    did not. Each restores for itself, and a store may not show all of them the same."""
    if run.resume_seq is None or len(run.slots) == 1:
        return ""
    steps = sorted({r.first_step for r in ranks.values() if r.first_step is not None})
    if len(steps) < 2:
        return ""
    return f"its ranks went on from different steps: {', '.join(map(str, steps))}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the end of a run means for its job."""

    state: JobState
    words: str
    failure: bool = False
    exit_code: int | None = None
    cause: StopCause | None = None


def run_over(
    run: Run,
    job: Job,
    ranks: Ranks,
    lost: set[int],
    now: float,
    lessons: Lessons,
    rules: SyncRules,
) -> tuple[Run, Job]:
    outcome = outcome_of(run, job, ranks, lost, rules)
    ended_at = max((r.ended_at or now for r in ranks.values()), default=now) if ranks else now
    ended_at = min(ended_at, now)
    run = run.to(
        RunState.ENDED,
        at=now,
        cause=outcome.words,
        ended_at=ended_at,
        exit_code=outcome.exit_code,
        stop_cause=outcome.cause,
        outputs=_outputs(run, ranks),
    )
    if outcome.state is JobState.SUCCEEDED and run.started_at is not None:
        lessons.finished(job, run, ended_at - run.started_at)
    held_s = max(0.0, ended_at - run.assigned_at)
    lessons.used(job.team, run.gpus * held_s, now, rules.usage_half_life_s)
    job = replace(job, cost_micros=job.cost_micros + cost_micros(run.price_micros_per_hour, held_s))
    return run, _job_after(job, run, outcome, now)


def _outputs(run: Run, ranks: Ranks) -> tuple[str, ...]:
    by_rank = [ranks[rank].outputs if rank in ranks else "" for rank in range(len(run.slots))]
    return tuple(by_rank) if any(by_rank) else ()


def outcome_of(run: Run, job: Job, ranks: Ranks, lost: set[int], rules: SyncRules) -> Outcome:
    """What the end of all ranks of a run means for its job."""
    ended = [ranks[rank] for rank in sorted(ranks)]
    codes = [report.exit_code for report in ended]
    if not lost and codes and all(code == 0 for code in codes):
        return Outcome(JobState.SUCCEEDED, "finished", exit_code=0)
    cause = _hardest(run, ended, lost)
    if job.cancel_requested or cause is StopCause.CANCEL:
        return Outcome(JobState.CANCELLED, "cancelled", exit_code=_first_bad(codes), cause=cause)
    if cause is StopCause.TIMEOUT:
        words = f"stopped at its walltime of {format_duration(job.spec.walltime)}"
        return Outcome(JobState.FAILED, words, exit_code=_first_bad(codes), cause=cause)
    if cause in _REQUEUE:
        words = _requeue_words(cause, codes, problem_of(ranks))
        return Outcome(JobState.PENDING, words, exit_code=_first_bad(codes), cause=cause)
    if codes and all(code in (0, EXIT_CHECKPOINTED) for code in codes):
        return Outcome(
            JobState.PENDING,
            "checkpointed and asked to run again",
            exit_code=EXIT_CHECKPOINTED,
            cause=cause,
        )
    return _failure(run, job, ended, rules)


def _hardest(run: Run, ended: Sequence[RankReport], lost: set[int]) -> StopCause | None:
    causes = {report.cause for report in ended if report.cause is not None}
    if run.stop_cause is not None:
        causes.add(run.stop_cause)
    if lost:
        causes.add(StopCause.NODE_LOST)
    return max(causes, key=lambda cause: cause.hardness, default=None)


def _requeue_words(cause: StopCause | None, codes: Sequence[int | None], problem: str) -> str:
    saved = bool(codes) and all(code == EXIT_CHECKPOINTED for code in codes) and not problem
    how = "its work saved" if saved else "back to its last checkpoint"
    if problem:
        how += f" ({problem})"
    why = (cause or StopCause.PREEMPT).replace("_", " ")
    return f"stopped ({why}), {how}"


def _first_bad(codes: Sequence[int | None]) -> int | None:
    bad = [code for code in codes if code not in (0, None)]
    return bad[0] if bad else (codes[0] if codes else None)


def _failure(run: Run, job: Job, ended: Sequence[RankReport], rules: SyncRules) -> Outcome:
    bad = [r for r in ended if r.exit_code not in (0, EXIT_CHECKPOINTED)] or [*ended[:1]]
    # one that ended by itself says why; the others were stopped for it
    worst = next((r for r in bad if r.cause is None), bad[0])
    torn = apart(run, {report.rank: report for report in ended})
    never_began = worst.exit_code is None or bool(torn)
    words = torn or (worst.problem if never_began else _exit_words(worst.exit_code or 0))
    elsewhere = len(set(job.avoid_nodes) - set(run.node_ids))
    if elsewhere and not never_began and job.exit_code == worst.exit_code:
        places = dict.fromkeys((*job.failed_at, FailedPlace(pool=run.pool, market=run.market)))
        where = f" in {', '.join(map(str, places))}" if len(places) > 1 else ""
        words += f" as before on {elsewhere} other node(s){where}: the fault is the job's own"
    if worst.tail and not torn:
        words = f"{words}; its last lines:\n{worst.tail}"
    # a run that could not even begin says more about the node than about the job
    allowed = max(job.spec.retries.max, rules.problem_retries if never_began else 0)
    state = JobState.PENDING if job.failures < allowed else JobState.FAILED
    return Outcome(state, words, failure=True, exit_code=worst.exit_code, cause=worst.cause)


def _exit_words(code: int) -> str:
    if code < 0:
        return f"killed by signal {-code}"
    return f"exited with code {code}"


def _job_after(job: Job, run: Run, outcome: Outcome, now: float) -> Job:
    changes: dict[str, object] = {"exit_code": outcome.exit_code, "stop_cause": outcome.cause}
    if outcome.failure:
        failures = job.failures + 1
        backoff = job.spec.retries.backoff * 2.0 ** min(failures - 1, 16)
        avoid = tuple(dict.fromkeys((*job.avoid_nodes, *run.node_ids)))[-_PLACES_KEPT:]
        places = (*job.failed_at, FailedPlace(pool=run.pool, market=run.market))[-_PLACES_KEPT:]
        changes |= {"failures": failures, "not_before": now + backoff}
        changes |= {"avoid_nodes": avoid, "failed_at": places}
    if outcome.state is JobState.SUCCEEDED and job.state is JobState.PLACED:
        job = job.to(JobState.RUNNING, at=now)
    if job.state in (JobState.PLACED, JobState.RUNNING) and outcome.state not in _direct(job):
        job = job.to(JobState.STOPPING, at=now, cause=str(outcome.cause or outcome.words))
    if outcome.state.ended:
        changes["reason"] = outcome.words
    return job.to(outcome.state, at=now, cause=outcome.words, **changes)


def _direct(job: Job) -> tuple[JobState, ...]:
    if job.state is JobState.PLACED:
        return (JobState.PENDING,)
    return (JobState.SUCCEEDED, JobState.FAILED)
