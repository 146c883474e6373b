"""A plan's actions → changes. One action bundle becomes one store bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.node import NodeState
from hybrid.domain.plan import (
    Action,
    ActionBundle,
    CordonClaim,
    CordonNode,
    Decision,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    Stop,
    Verdict,
)
from hybrid.domain.run import RunState
from hybrid.ports.store import Bundle, Decide, Learn, Note, Post, World
from hybrid.reconcile.drafts import Draft, Drafts
from hybrid.reconcile.learning import Lessons

Prepare = Callable[[Claim], str]
"""The provider's pure ``prepare``: the complete launch request of a claim."""


def enact(plan: Plan, world: World, prepare: Prepare) -> tuple[Bundle, ...]:
    """The changes that carry out a plan, decisions included.

    A job's decision travels with its actions, so that a dropped bundle leaves no decision behind
    that was never carried out; decisions without actions go in one bundle of their own.
    """
    drafts = Drafts(world)
    changed = {
        decision.job_id: decision
        for decision in plan.decisions
        if not decision.same_as(world.decisions.get(decision.job_id))
    }
    for bundle in plan.bundles:
        draft = drafts.draft(bundle.id)
        for action in bundle.actions:
            _enact(drafts, draft, action, plan.at, prepare)
        for ref in bundle.rests_on:
            draft.rest_on(ref.kind, ref.id, ref.version)
        for job_id in _jobs_of(drafts, bundle):
            if (decision := changed.pop(job_id, None)) is not None:
                _decide(draft, decision)
    if changed:
        draft = drafts.draft("decisions")
        for decision in changed.values():
            _decide(draft, decision)
    lessons = _starts(plan, world)
    if lessons.changed:
        drafts.draft("learned").add(Learn(lessons.learned))
    return drafts.bundles()


def _starts(plan: Plan, world: World) -> Lessons:
    """Who of those that were told to wait for a pool starts there now, in time or late. A decision
    is written anew only when it changes, so what stands there is what the job was first told."""
    lessons = Lessons(world.learned)
    for action in plan.actions:
        if not isinstance(action, Place) or action.run.claim_ids:
            continue
        told = world.decisions.get(action.run.job_id)
        if told is None or told.verdict is not Verdict.WAIT or told.at >= plan.at:
            continue
        chosen = next((a for a in told.alternatives if a.option == told.chosen), None)
        if told.chosen == f"pool:{action.run.pool}" and chosen is not None:
            p90_at = chosen.start_p90_at
            if p90_at is not None:
                lessons.started(action.run.pool, late=plan.at > p90_at)
    return lessons


def _decide(draft: Draft, decision: Decision) -> None:
    draft.add(Decide(decision))
    event = Event(
        kind=EventKind.JOB,
        subject=decision.job_id,
        what=f"decided: {decision.verdict}",
        at=decision.at,
        words=decision.sentence,
        job_id=decision.job_id,
    )
    draft.add(Note(event))


def _jobs_of(drafts: Drafts, bundle: ActionBundle) -> Iterable[JobId]:
    for action in bundle.actions:
        match action:
            case Place(run=run):
                yield run.job_id
            case Stop(run_id=run_id):
                run_ = drafts.run(run_id)
                if run_ is not None:
                    yield run_.job_id
            case OpenClaim(claim=claim):
                yield claim.job_id
            case FailJob(job_id=job_id):
                yield job_id
            case _:
                pass


def _enact(drafts: Drafts, draft: Draft, action: Action, now: float, prepare: Prepare) -> None:
    match action:
        case Place():
            _place(drafts, draft, action, now)
        case Stop():
            _stop(drafts, draft, action, now)
        case OpenClaim():
            _open(drafts, draft, action, now, prepare)
        case RenewLease():
            claim = drafts.claim(action.claim_id)
            if claim is not None:
                held = claim.held_micros + action.hold.amount_micros
                draft.put(replace(claim, lease_until=action.until, held_micros=held))
                draft.add(Post(action.hold))
        case CordonClaim():
            claim = drafts.claim(action.claim_id)
            if claim is not None and claim.state is ClaimState.READY:
                draft.put(claim.to(ClaimState.CORDONED, at=now, cause=action.words))
        case EndClaim():
            claim = drafts.claim(action.claim_id)
            if claim is not None and claim.state is not ClaimState.TERMINATING:
                draft.put(
                    claim.to(
                        ClaimState.TERMINATING,
                        at=now,
                        cause=action.words,
                        terminate_attempts=0,
                    )
                )
        case CordonNode():
            node = drafts.node(action.node_id)
            if node is not None and node.state is NodeState.READY:
                draft.put(node.to(NodeState.CORDONED, at=now, cause=action.words))
        case FailJob():
            job = drafts.job(action.job_id)
            if job is not None:
                state = JobState.CANCELLED if action.cancelled else JobState.FAILED
                words = str(action.reason)
                draft.put(job.to(state, at=now, cause=words, reason=words))


def _place(drafts: Drafts, draft: Draft, action: Place, now: float) -> None:
    run = action.run
    job = drafts.job(run.job_id)
    if job is None:
        return
    draft.put(run.entered(now))
    draft.put(
        job.to(
            JobState.PLACED,
            at=now,
            cause=f"attempt {run.attempt} in {run.pool}",
            attempts=run.attempt,
            stop_cause=None,
        )
    )
    for node_id in run.node_ids:
        node = drafts.node(node_id)
        if node is not None:
            draft.rest_on("node", node.id, node.version)
    for claim_id in run.claim_ids:
        claim = drafts.claim(claim_id)
        if claim is not None:
            draft.rest_on("claim", claim.id, claim.version)


def _stop(drafts: Drafts, draft: Draft, action: Stop, now: float) -> None:
    run = drafts.run(action.run_id)
    job = drafts.job(run.job_id) if run is not None else None
    if run is None or job is None or not run.live:
        return
    if run.state is RunState.STOPPING:
        # two causes at once: the harder one wins, the time left only shrinks
        harder = _harder(run.stop_cause, action.cause)
        stop_by = min((t for t in (run.stop_by, action.by) if t is not None), default=None)
        draft.put(replace(run, stop_cause=harder, stop_by=stop_by))
        draft.put(replace(job, stop_cause=harder))
        return
    draft.put(
        run.to(
            RunState.STOPPING,
            at=now,
            cause=action.words,
            stop_cause=action.cause,
            stop_requested_at=now,
            stop_by=action.by,
        )
    )
    draft.put(_stopping(job, action, now))


def _stopping(job: Job, action: Stop, now: float) -> Job:
    return job.to(JobState.STOPPING, at=now, cause=action.words, stop_cause=action.cause)


def _harder(first: StopCause | None, second: StopCause) -> StopCause:
    return second if first is None or second.hardness > first.hardness else first


def _open(drafts: Drafts, draft: Draft, action: OpenClaim, now: float, prepare: Prepare) -> None:
    job = drafts.job(action.claim.job_id)
    if job is None:
        return
    claim = replace(action.claim, held_micros=action.hold.amount_micros)
    draft.put(replace(claim, request=prepare(claim)).entered(now))
    draft.add(Post(action.hold))
    draft.put(replace(job, claims_opened=job.claims_opened + 1))
