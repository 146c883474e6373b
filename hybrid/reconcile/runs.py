"""What nodes say of ranks: runs start and end, and jobs with them.

A run is over when every rank has ended or its node is surely beyond its run lease. Only then may
another run of the job be planned; silence alone ends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import NodeId, RunId
from hybrid.domain.job import Checkpoint, Job, JobState, StopCause
from hybrid.domain.node import NodeState
from hybrid.domain.run import EXIT_CHECKPOINTED, Run, RunState
from hybrid.ports.engine import ORDER_KEPT_PART, NodeReport, RankPhase, RankReport
from hybrid.ports.observation import Known, Observation
from hybrid.ports.store import Note
from hybrid.reconcile.drafts import Draft, Drafts
from hybrid.reconcile.learning import Lessons
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.run_ends import Ranks, apart, problem_of, run_over

_BEYOND = (NodeState.LOST, NodeState.GONE)


def ranks_by_run(observation: Observation) -> dict[RunId, dict[int, RankReport]]:
    """All rank reports of all engines that could be read."""
    found: dict[RunId, dict[int, RankReport]] = {}
    for source in observation.engines.values():
        if isinstance(source, Known):
            for report in source.value.ranks:
                ranks = found.get(report.run_id)
                if ranks is None:
                    found[report.run_id] = {report.rank: report}
                else:
                    ranks[report.rank] = report
    return found


def sync_runs(drafts: Drafts, observation: Observation, lessons: Lessons, rules: SyncRules) -> None:
    """Bring runs and jobs to what their nodes say."""
    reports = ranks_by_run(observation)
    nodes = _nodes_by_id(observation)
    there = {node.id for node in drafts.nodes() if node.state not in _BEYOND}
    for run in list(drafts.runs()):
        job = drafts.job(run.job_id)
        if run.live and job is not None:
            ranks = reports.get(run.id, {})
            if _goes_on(run, job, ranks, there):
                continue
            lost = _lost_ranks(drafts, run, ranks) | _never_begun(run, ranks, nodes, rules)
            run, forgotten = _forgotten(run, job, ranks, nodes, observation.at, rules)
            if run != drafts.run(run.id):
                drafts.draft(f"job:{job.id}").put(run)
            lost |= forgotten
            _sync_run(drafts, run, job, ranks, lost, observation.at, lessons, rules)


def _goes_on(run: Run, job: Job, ranks: Ranks, there: Collection[NodeId]) -> bool:
    """Whether all of the run is there and running, with nothing saved that is not known yet. Hot:
    so it is with most runs, and there is nothing more to ask about them."""
    if run.state is not RunState.RUNNING or len(ranks) != len(run.slots):
        return False
    if run.unnamed_since is not None:
        return False
    problem = ""
    for report in ranks.values():
        if report.phase is not RankPhase.RUNNING:
            return False
        problem = problem or report.checkpoint_problem
        saved = report.checkpoint
        if saved is not None and (job.checkpoint is None or not _not_newer(saved, job.checkpoint)):
            return False
    if (problem or run.checkpoint_problem) and _other_problem(run, ranks):
        return False
    return all(slot.node_id in there for slot in run.slots)


def _nodes_by_id(observation: Observation) -> dict[NodeId, NodeReport]:
    return {
        report.id: report
        for source in observation.engines.values()
        if isinstance(source, Known)
        for report in source.value.nodes
    }


def _sync_run(
    drafts: Drafts,
    run: Run,
    job: Job,
    ranks: Ranks,
    lost: set[int],
    now: float,
    lessons: Lessons,
    rules: SyncRules,
) -> None:
    before_run, before_job = run, job
    job = _with_checkpoint(job, run, ranks, lessons)
    if _other_problem(run, ranks):
        run = replace(run, checkpoint_problem=problem_of(ranks))
    if _all_begun(run, ranks):
        run, job = _begun(run, job, ranks, now)
    over = {rank for rank, report in ranks.items() if report.phase is RankPhase.ENDED}
    if len(over | lost) == len(run.slots):
        run, job = run_over(run, job, ranks, lost, now, lessons, rules)
    elif (over or lost) and run.state is not RunState.STOPPING:
        run, job = _stop_peers(run, job, ranks, lost, now)
    elif run.state is RunState.RUNNING and (words := apart(run, ranks)):
        run, job = _stopping(run, job, StopCause.PEER_FAILED, words, now)
    if run is before_run and job is before_job:
        return  # hot: most runs simply go on
    draft = drafts.draft(f"job:{job.id}")
    if run.checkpoint_problem != before_run.checkpoint_problem:
        draft.add(Note(_told_of_its_saves(run, now)))
    if run != before_run:
        draft.put(run)
    if job != before_job:
        draft.put(job)
    if run != before_run or job != before_job:
        _rest_on_nodes(draft, drafts, lost, run)


def _other_problem(run: Run, ranks: Ranks) -> bool:
    """Whether something else than is known is wrong with its saves. What comes behind the colon may
    change with every try: no row is written for that."""
    if not ranks:
        return False
    return problem_of(ranks).partition(":")[0] != run.checkpoint_problem.partition(":")[0]


def _told_of_its_saves(run: Run, now: float) -> Event:
    return Event(
        kind=EventKind.RUN,
        subject=run.id,
        what="saves not safe" if run.checkpoint_problem else "saves safe again",
        at=now,
        words=run.checkpoint_problem,
        job_id=run.job_id,
    )


def _lost_ranks(drafts: Drafts, run: Run, ranks: Ranks) -> set[int]:
    lost = set()
    for rank, slot in enumerate(run.slots):
        report = ranks.get(rank)
        if report is not None and report.phase is RankPhase.ENDED:
            continue  # its word came before its node went
        node = drafts.node(slot.node_id)
        if node is None or node.state in _BEYOND:
            lost.add(rank)
    return lost


def _never_begun(
    run: Run, ranks: Ranks, nodes: Mapping[NodeId, NodeReport], rules: SyncRules
) -> set[int]:
    """Ranks that their nodes, heard since, do not know and will not begin any more: the order came
    too late (the node was away) or to nobody."""
    if _has_begun(run):
        return set()  # a rank that has begun is over when its node says so, or is lost
    missing = set()
    for rank, slot in enumerate(run.slots):
        node = nodes.get(slot.node_id)
        if rank in ranks or node is None:
            continue
        too_late_at = run.assigned_at + ORDER_KEPT_PART * node.run_lease_s
        if node.heard_at > too_late_at + rules.silent_after_s:
            missing.add(rank)
    return missing


def _has_begun(run: Run) -> bool:
    return run.state is RunState.RUNNING or any(
        step.state == RunState.RUNNING for step in run.history
    )


def _forgotten(
    run: Run,
    job: Job,
    ranks: Ranks,
    nodes: Mapping[NodeId, NodeReport],
    now: float,
    rules: SyncRules,
) -> tuple[Run, set[int]]:
    """Ranks that had begun and that their nodes, heard all the time, name no more: an agent that
    lost its memory. Nobody renews their run lease, so they are over when that surely is."""
    if not _has_begun(run):
        return run, set()
    missing = {
        rank
        for rank, slot in enumerate(run.slots)
        if rank not in ranks
        and (node := nodes.get(slot.node_id)) is not None
        and now - node.heard_at <= rules.silent_after_s
    }
    if not missing:
        return (run if run.unnamed_since is None else replace(run, unnamed_since=None)), set()
    if run.unnamed_since is None:
        return replace(run, unnamed_since=now), set()
    lease_s = max(nodes[run.slots[rank].node_id].run_lease_s for rank in missing)
    over_s = (lease_s + job.spec.stop.grace + rules.kill_s) * (1 + rules.clock_drift)
    return run, (missing if now - run.unnamed_since > over_s else set())


def _rest_on_nodes(draft: Draft, drafts: Drafts, lost: set[int], run: Run) -> None:
    # judged lost by a node's state: should that row move meanwhile, judge again
    changed_here: set[NodeId] = set()
    for rank in lost:
        node_id = run.slots[rank].node_id
        stored = drafts.world.nodes.get(node_id)
        if stored is not None and drafts.node(node_id) == stored and node_id not in changed_here:
            draft.rest_on("node", node_id, stored.version)
            changed_here.add(node_id)


def _all_begun(run: Run, ranks: Ranks) -> bool:
    return (
        run.state in (RunState.ASSIGNED, RunState.STARTING)
        and len(ranks) == len(run.slots)
        and all(report.started_at is not None for report in ranks.values())
    )


def _begun(run: Run, job: Job, ranks: Ranks, now: float) -> tuple[Run, Job]:
    started_at = max(r.started_at for r in ranks.values() if r.started_at is not None)
    first_step = ranks[0].first_step if 0 in ranks else None
    if run.state is RunState.ASSIGNED:
        run = run.to(RunState.STARTING, at=now)
    words = f"attempt {run.attempt} on {', '.join(dict.fromkeys(run.node_ids))}"
    run = run.to(
        RunState.RUNNING, at=now, cause=words, started_at=started_at, first_step=first_step
    )
    if job.state is JobState.PLACED:
        job = job.to(JobState.RUNNING, at=now, cause=words)
    return run, job


def _stop_peers(run: Run, job: Job, ranks: Ranks, lost: set[int], now: float) -> tuple[Run, Job]:
    """One rank has ended and others go on: a gang does not run in part.

    Ranks that finish well finish at about the same time, so the others are given their grace
    before they are asked to stop.
    """
    ended_at = [r.ended_at for r in ranks.values() if r.ended_at is not None]
    failed = any(r.exit_code not in (0, EXIT_CHECKPOINTED) for r in ranks.values() if r.ended_at)
    patient = not failed and not lost
    if patient and ended_at and now < max(ended_at) + job.spec.stop.grace:
        return run, job
    if lost:
        return _stopping(run, job, StopCause.NODE_LOST, "a rank's node was lost", now)
    return _stopping(run, job, StopCause.PEER_FAILED, "another rank has ended", now)


def _stopping(run: Run, job: Job, cause: StopCause, words: str, now: float) -> tuple[Run, Job]:
    run = run.to(RunState.STOPPING, at=now, cause=words, stop_cause=cause, stop_requested_at=now)
    job = job.to(JobState.STOPPING, at=now, cause=words, stop_cause=cause)
    return run, job


def _with_checkpoint(job: Job, run: Run, ranks: Ranks, lessons: Lessons) -> Job:
    """The job with the newest checkpoint that every rank has, if that is newer than its last."""
    taken = [ranks[rank].checkpoint for rank in range(len(run.slots)) if rank in ranks]
    complete = [checkpoint for checkpoint in taken if checkpoint is not None]
    if len(complete) < len(run.slots):
        return job
    oldest = min(complete, key=lambda c: (c.step, c.committed_at, c.seq))
    if job.checkpoint is not None and _not_newer(oldest, job.checkpoint):
        return job
    lessons.checkpointed(job, max(c.commit_s for c in complete))
    worked_s = _work_until(oldest, run, job)
    size = sum(c.size_bytes for c in complete)
    return replace(
        job,
        checkpoint=replace(
            oldest,
            size_bytes=size,
            work_s=worked_s,
            gpu_model=run.gpu_model,
            total=_total_steps(ranks),
        ),
    )


def _total_steps(ranks: Ranks) -> int:
    said = [report.progress.total for report in ranks.values() if report.progress is not None]
    return max(said, default=0)


def _not_newer(checkpoint: Checkpoint, last: Checkpoint) -> bool:
    return (checkpoint.committed_at, checkpoint.step) <= (last.committed_at, last.step)


def _work_until(checkpoint: Checkpoint, run: Run, job: Job) -> float:
    """Reference-GPU seconds of work saved: those of the run before, if this one went on from its
    checkpoint, and this run's at its speed."""
    began = run.started_at if run.started_at is not None else run.assigned_at
    saved, last = 0.0, job.checkpoint
    if last is not None and last.committed_at <= run.assigned_at:
        last = job.resumes_on(run.gpu_model)
    if last is not None:
        began = max(began, last.committed_at)
        saved = last.work_s
    return saved + max(0.0, checkpoint.committed_at - began) * run.speed
