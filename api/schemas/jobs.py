"""Jobs, their runs, decisions and timelines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from api.schemas.shown import (
    Shown,
    ShownReason,
    ShownStep,
    Usd,
    instant,
    instant_or_none,
    usd,
)
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import RunId
from hybrid.domain.job import Checkpoint, Job, JobState, Progress, StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Slot
from hybrid.domain.plan import Alternative, Decision, Verdict
from hybrid.domain.run import Run, RunState
from hybrid.services.jobs import JobStory


class ShownProgress(Shown):
    """What a job says of itself."""

    step: int
    total: int = Field(description="0 when unknown")
    at: datetime

    @classmethod
    def maybe(cls, progress: Progress | None) -> ShownProgress | None:
        """Where the job has said anything."""
        if progress is None:
            return None
        return cls(step=progress.step, total=progress.total, at=instant(progress.at))


class ShownCheckpoint(Shown):
    """The last committed checkpoint."""

    seq: int
    step: int
    committed_at: datetime
    size_bytes: int
    commit_s: float

    @classmethod
    def maybe(cls, checkpoint: Checkpoint | None) -> ShownCheckpoint | None:
        """Where there is one."""
        if checkpoint is None:
            return None
        return cls(
            seq=checkpoint.seq,
            step=checkpoint.step,
            committed_at=instant(checkpoint.committed_at),
            size_bytes=checkpoint.size_bytes,
            commit_s=checkpoint.commit_s,
        )


class ShownSlot(Shown):
    """What the run holds on one node of its gang; their order is the rank."""

    node_id: str
    gpu_ids: tuple[str, ...]
    share: float
    cpus: float
    memory_gib: float
    gpu_memory_gib: float | None = Field(
        default=None, description="Of the memory of the GPU that it has a share of"
    )
    replicas: int = Field(
        default=1, description="Into how many its GPU is time-sliced; it holds one"
    )

    @classmethod
    def of(cls, slot: Slot) -> ShownSlot:
        """From a slot."""
        return cls(
            node_id=slot.node_id,
            gpu_ids=tuple(slot.gpu_ids),
            share=slot.share,
            cpus=slot.cpus,
            memory_gib=slot.memory_gib,
            gpu_memory_gib=slot.gpu_memory_gib,
            replicas=slot.replicas,
        )


class ShownRun(Shown):
    """One attempt."""

    id: str
    attempt: int
    state: RunState
    pool: str
    engine: str
    slots: tuple[ShownSlot, ...]
    claim_ids: tuple[str, ...]
    gpu_model: str
    price_usd_per_hour: Usd = Field(description="Of all its machines; 0 at home")
    assigned_at: datetime
    started_at: datetime | None
    expected_end_at: datetime | None
    ended_at: datetime | None
    stop_cause: StopCause | None
    exit_code: int | None
    resumed_from: int | None = Field(description="Number of the checkpoint it began from")
    first_step: int | None = Field(description="The first step it reported")
    checkpoint_problem: str = Field(
        description="Why what it saves is not committed now; empty while it is"
    )
    outputs: tuple[str, ...] = Field(
        description="Digests of the archives of its outputs, by rank; see /v1/artifacts"
    )
    progress: ShownProgress | None

    @classmethod
    def of(cls, run: Run, progress: Progress | None = None) -> ShownRun:
        """From a run and what it last said of itself."""
        return cls(
            id=run.id,
            attempt=run.attempt,
            state=run.state,
            pool=run.pool,
            engine=run.engine,
            slots=tuple(ShownSlot.of(slot) for slot in run.slots),
            claim_ids=tuple(run.claim_ids),
            gpu_model=run.gpu_model,
            price_usd_per_hour=usd(run.price_micros_per_hour),
            assigned_at=instant(run.assigned_at),
            started_at=instant_or_none(run.started_at),
            expected_end_at=instant_or_none(run.expected_end_at),
            ended_at=instant_or_none(run.ended_at),
            stop_cause=run.stop_cause,
            exit_code=run.exit_code,
            resumed_from=run.resume_seq,
            first_step=run.first_step,
            checkpoint_problem=run.checkpoint_problem,
            outputs=run.outputs,
            progress=ShownProgress.maybe(progress),
        )


class ShownDecision(Shown):
    """What was decided last, in one sentence."""

    at: datetime
    verdict: Verdict
    sentence: str
    chosen: str
    policy_version: int = Field(description="The policy under which it was decided")
    reason: ShownReason | None

    @classmethod
    def maybe(cls, decision: Decision | None) -> ShownDecision | None:
        """Where anything has been decided yet."""
        if decision is None:
            return None
        return cls(
            at=instant(decision.at),
            verdict=decision.verdict,
            sentence=decision.sentence,
            chosen=decision.chosen,
            policy_version=decision.policy_version,
            reason=ShownReason.maybe(decision.reason),
        )


class JobLine(Shown):
    """A job in a listing."""

    id: str
    name: str
    team: str
    user: str
    priority: str
    state: JobState
    reason: str = Field(description="Why it ended as it did; empty before")
    submitted_at: datetime
    queued_at: datetime = Field(description="When it last became pending")
    ended_at: datetime | None
    nodes: int
    gpus: int = Field(description="On each node")
    attempts: int
    failures: int
    cancel_requested: bool
    stop_cause: StopCause | None
    exit_code: int | None
    cost_usd: Usd = Field(description="Of its runs in clouds so far")
    pool: str | None = Field(description="Where its live run is")
    decision: ShownDecision | None

    @classmethod
    def of(cls, job: Job, run: Run | None, decision: Decision | None) -> JobLine:
        """From a job, its live run and its last decision."""
        return cls(**_line(job, run, decision))


class ShownJob(JobLine):
    """A job, whole."""

    spec: JobSpec
    checkpoint: ShownCheckpoint | None
    history: tuple[ShownStep, ...]
    runs: tuple[ShownRun, ...]
    wait_s: float | None = Field(
        description="From submission to the first start; None before that. See queued_at."
    )

    @classmethod
    def told(cls, story: JobStory, progress: Mapping[RunId, Progress]) -> ShownJob:
        """From a job's story and what its live run last said."""
        job = story.job
        live = next((run for run in reversed(story.runs) if run.live), None)
        started = next((run.started_at for run in story.runs if run.started_at is not None), None)
        return cls(
            **_line(job, live, story.decision),
            spec=job.spec,
            checkpoint=ShownCheckpoint.maybe(job.checkpoint),
            history=ShownStep.all_of(job.history),
            runs=tuple(ShownRun.of(run, progress.get(run.id)) for run in story.runs),
            wait_s=None if started is None else max(0.0, round(started - job.submitted_at, 3)),
        )


def _line(job: Job, run: Run | None, decision: Decision | None) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.spec.name,
        "team": job.team,
        "user": job.user,
        "priority": job.spec.priority,
        "state": job.state,
        "reason": job.reason,
        "submitted_at": instant(job.submitted_at),
        "queued_at": instant(job.queued_at),
        "ended_at": instant_or_none(job.ended_at),
        "nodes": job.spec.resources.nodes,
        "gpus": job.spec.resources.gpus,
        "attempts": job.attempts,
        "failures": job.failures,
        "cancel_requested": job.cancel_requested,
        "stop_cause": job.stop_cause,
        "exit_code": job.exit_code,
        "cost_usd": usd(job.cost_micros),
        "pool": None if run is None else run.pool,
        "decision": ShownDecision.maybe(decision),
    }


class JobPage(Shown):
    """A page of jobs, newest first."""

    jobs: tuple[JobLine, ...]
    next_cursor: str | None = Field(description="For the next page; none on the last")


class ShownEvent(Shown):
    """One line of a timeline."""

    seq: int
    at: datetime
    kind: EventKind
    subject: str
    what: str
    words: str
    job_id: str
    actor: str

    @classmethod
    def of(cls, seq: int, event: Event) -> ShownEvent:
        """From a numbered event."""
        return cls(
            seq=seq,
            at=instant(event.at),
            kind=event.kind,
            subject=event.subject,
            what=event.what,
            words=event.words,
            job_id=event.job_id,
            actor=event.actor,
        )


class Timeline(Shown):
    """What happened to a job, in order."""

    job_id: str
    events: tuple[ShownEvent, ...]
    next_after: int | None = Field(description="Pass as `after` for what follows; none at the end")


class ShownTerm(Shown):
    """One part of what an option costs."""

    name: str
    usd: Usd


class ShownAlternative(Shown):
    """One option for the job: what it would cost, or the first guard that refused it."""

    option: str = Field(description="pool:NAME, offer:ID, claim:ID or stay")
    label: str
    chosen: bool
    members: int = Field(description="How many offers alike it stands for")
    start_p50_at: datetime | None
    start_p90_at: datetime | None
    finish_at: datetime | None
    terms: tuple[ShownTerm, ...] = Field(description="They add up to the total exactly")
    total_usd: Usd | None
    refused: ShownReason | None
    speed: str = Field(
        description="How fast the job is taken to be there, learned and guessed; empty without GPU"
    )

    @classmethod
    def of(cls, option: Alternative, *, chosen: bool) -> ShownAlternative:
        """From an alternative."""
        return cls(
            option=option.option,
            label=option.label,
            chosen=chosen,
            members=option.members,
            start_p50_at=instant_or_none(option.start_p50_at),
            start_p90_at=instant_or_none(option.start_p90_at),
            finish_at=instant_or_none(option.finish_at),
            terms=tuple(ShownTerm(name=term.name, usd=usd(term.micros)) for term in option.terms),
            total_usd=usd(option.total_micros) if option.terms else None,
            refused=ShownReason.maybe(option.refused),
            speed=option.speed,
        )


class Explanation(Shown):
    """Why the job is where it is, and what else there was."""

    job_id: str
    state: JobState
    at: datetime | None
    verdict: Verdict | None = Field(description="None while no plan has considered the job")
    sentence: str
    chosen: str
    policy_version: int | None
    reason: ShownReason | None
    alternatives: tuple[ShownAlternative, ...]

    @classmethod
    def of(cls, story: JobStory) -> Explanation:
        """From a job's story."""
        decision = story.decision
        if decision is None:
            return cls(
                job_id=story.job.id,
                state=story.job.state,
                at=None,
                verdict=None,
                sentence="no plan has considered this job yet",
                chosen="",
                policy_version=None,
                reason=None,
                alternatives=(),
            )
        return cls(
            job_id=story.job.id,
            state=story.job.state,
            at=instant(decision.at),
            verdict=decision.verdict,
            sentence=decision.sentence,
            chosen=decision.chosen,
            policy_version=decision.policy_version,
            reason=ShownReason.maybe(decision.reason),
            alternatives=alternatives(decision),
        )


def alternatives(decision: Decision) -> tuple[ShownAlternative, ...]:
    """All options of a decision, in the planner's order."""
    return tuple(
        ShownAlternative.of(option, chosen=option.option == decision.chosen)
        for option in decision.alternatives
    )
