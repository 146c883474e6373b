"""Ranks → runs and jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.job import Checkpoint, FailedPlace, Job, JobState, StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run, RunState
from hybrid.domain.transitions import Step
from hybrid.ports.engine import RankPhase, RankReport
from hybrid.ports.observation import Observation, Unknown
from hybrid.ports.store import Learn, World
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from tests.doubles.build import (
    NOW,
    a_job,
    a_node,
    a_node_report,
    a_rank,
    a_run,
    a_slot,
    a_spec,
    a_world,
    an_ended_rank,
    an_observation,
)
from tests.doubles.changes import notes, puts

RULES = SyncRules()
GANG = (a_slot("n1", "n1-g0"), a_slot("n2", "n2-g0"))


def after(world: World, observation: Observation) -> tuple[Run, Job]:
    bundles = sync(world, observation, RULES)
    runs, jobs = puts(bundles, Run), puts(bundles, Job)
    run = runs.get("j1.1", next(iter(world.runs.values())))
    return run, jobs.get("j1", next(iter(world.jobs.values())))


def one(run: Run | None = None, job: Job | None = None, *more: Node) -> World:
    return a_world(
        run or a_run(), job or a_job(state=JobState.RUNNING, attempts=1), a_node(), *more
    )


def test_a_run_begins_when_its_rank_has_started() -> None:
    world = one(a_run(state=RunState.ASSIGNED), a_job(state=JobState.PLACED))
    run, job = after(world, an_observation(nodes=(a_node_report(),), ranks=(a_rank(),)))
    assert (run.state, run.started_at) == (RunState.RUNNING, NOW)
    assert job.state is JobState.RUNNING


def test_a_gang_begins_only_when_all_ranks_have_started() -> None:
    world = one(
        a_run(state=RunState.STARTING, slots=GANG), a_job(state=JobState.PLACED), a_node("n2")
    )
    first = a_rank()
    run, job = after(world, an_observation(ranks=(first,)))
    assert (run.state, job.state) == (RunState.STARTING, JobState.PLACED)
    second = a_rank(rank=1, node="n2", started_at=NOW + 1)
    run, job = after(world, an_observation(ranks=(first, second)))
    assert (run.state, run.started_at) == (RunState.RUNNING, NOW + 1)


@pytest.mark.parametrize(
    ("code", "cause", "state"),
    [
        (0, None, JobState.SUCCEEDED),
        (0, StopCause.PREEMPT, JobState.SUCCEEDED),
        (0, StopCause.CANCEL, JobState.SUCCEEDED),
        (85, None, JobState.PENDING),
        (85, StopCause.RETURN, JobState.PENDING),
        (-15, StopCause.INTERRUPTION, JobState.PENDING),
        (-9, StopCause.LEASE, JobState.PENDING),
        (-15, StopCause.CANCEL, JobState.CANCELLED),
        (85, StopCause.CANCEL, JobState.CANCELLED),
        (-15, StopCause.TIMEOUT, JobState.FAILED),
        (1, None, JobState.FAILED),
        (-11, None, JobState.FAILED),
    ],
)
def test_the_end_of_a_run_decides_the_job(
    code: int, cause: StopCause | None, state: JobState
) -> None:
    run, job = after(one(), an_observation(ranks=(an_ended_rank(code=code, cause=cause),)))
    assert (run.state, job.state) == (RunState.ENDED, state)
    assert run.ended_at == NOW or run.ended_at == NOW + 10


def test_a_begun_rank_that_a_heard_node_names_no_more_is_over_with_its_run_lease() -> None:
    def looked(run: Run, at: float, *ranks: RankReport) -> tuple[Run, Job]:
        heard = a_node_report(heard_at=at)
        return after(one(run), an_observation(nodes=(heard,), ranks=ranks, at=at))

    run, job = looked(a_run(started_at=NOW), NOW + 100)
    assert (run.unnamed_since, run.state, job.state) == (NOW + 100, RunState.RUNNING, "running")
    again, _ = looked(run, NOW + 200, a_rank())
    assert again.unnamed_since is None
    run, job = looked(run, NOW + 700)
    assert run.state is RunState.RUNNING, "its guardian may go on until its lease is over"
    run, job = looked(run, NOW + 100 + (600 + 30 + 15) * 1.01 + 1)
    assert (run.state, run.stop_cause) == (RunState.ENDED, StopCause.NODE_LOST)
    assert job.state is JobState.PENDING


def test_a_cancelled_job_that_checkpoints_is_cancelled_and_not_run_again() -> None:
    job = a_job(state=JobState.RUNNING, cancel_requested=True)
    _, job = after(one(job=job), an_observation(ranks=(an_ended_rank(code=85),)))
    assert job.state is JobState.CANCELLED


def test_a_failure_is_retried_elsewhere_after_a_backoff() -> None:
    spec = a_spec(retries={"max": 2, "backoff": "10s"})
    job = a_job(state=JobState.RUNNING, attempts=2, failures=1, spec=spec)
    _, job = after(one(job=job), an_observation(ranks=(an_ended_rank(code=1),)))
    assert (job.state, job.failures, job.not_before) == (JobState.PENDING, 2, NOW + 20)
    assert job.avoid_nodes == (NodeId("n1"),)
    assert job.failed_at == (FailedPlace(pool=PoolName("rack")),)


def test_a_failure_in_a_cloud_is_remembered_with_its_market() -> None:
    run = a_run(state=RunState.RUNNING, pool="cloud", market=Market.SPOT)
    before = FailedPlace(pool=PoolName("rack"))
    spec = a_spec(retries={"max": 9})
    job = a_job(state=JobState.RUNNING, failures=1, spec=spec, failed_at=(before,))
    _, job = after(one(run, job), an_observation(ranks=(an_ended_rank(code=1),)))
    assert job.failed_at == (before, FailedPlace(pool=PoolName("cloud"), market=Market.SPOT))


def test_the_last_thirty_two_places_of_failure_are_remembered() -> None:
    place = FailedPlace(pool=PoolName("lab"))
    spec = a_spec(retries={"max": 99})
    job = a_job(state=JobState.RUNNING, failures=40, spec=spec, failed_at=(place,) * 32)
    _, job = after(one(job=job), an_observation(ranks=(an_ended_rank(code=1),)))
    assert job.failed_at == (*(place,) * 31, FailedPlace(pool=PoolName("rack")))


def test_a_failure_past_the_last_retry_is_told_with_the_last_lines() -> None:
    spec = a_spec(retries={"max": 1})
    job = a_job(state=JobState.RUNNING, failures=1, spec=spec)
    ended = an_ended_rank(code=3, tail="ValueError: no data")
    _, job = after(one(job=job), an_observation(ranks=(ended,)))
    assert job.state is JobState.FAILED
    assert job.reason == "exited with code 3; its last lines:\nValueError: no data"


def test_a_job_that_fails_everywhere_the_same_way_is_told_that_it_is_its_own_fault() -> None:
    spec = a_spec(retries={"max": 1})
    there = {"state": JobState.RUNNING, "failures": 1, "spec": spec, "exit_code": 3}
    job = a_job(**there, avoid_nodes=(NodeId("elsewhere"),))
    ended = an_ended_rank(code=3, tail="ValueError: no data")
    _, failed = after(one(job=job), an_observation(ranks=(ended,)))
    assert failed.reason == (
        "exited with code 3 as before on 1 other node(s): the fault is the job's own;"
        " its last lines:\nValueError: no data"
    )
    cloud = FailedPlace(pool=PoolName("cloud"), market=Market.SPOT)
    _, failed = after(one(job=replace(job, failed_at=(cloud,))), an_observation(ranks=(ended,)))
    assert failed.reason.startswith(
        "exited with code 3 as before on 1 other node(s) in cloud (spot), rack: the fault is"
    )
    another_way = an_ended_rank(code=4, tail="")
    _, failed = after(one(job=job), an_observation(ranks=(another_way,)))
    assert failed.reason == "exited with code 4"


def test_a_run_that_could_not_begin_is_tried_elsewhere_even_without_retries() -> None:
    world = one(a_run(state=RunState.STARTING), a_job(state=JobState.PLACED))
    ended = an_ended_rank(code=None, started_at=None, problem="no such image")
    run, job = after(world, an_observation(ranks=(ended,)))
    assert (run.state, job.state, job.failures) == (RunState.ENDED, JobState.PENDING, 1)


def test_a_run_that_can_begin_nowhere_fails_with_the_problem() -> None:
    world = one(a_run(state=RunState.STARTING), a_job(state=JobState.PLACED, failures=2))
    ended = an_ended_rank(code=None, started_at=None, problem="no such image")
    _, job = after(world, an_observation(ranks=(ended,)))
    assert (job.state, job.reason) == (JobState.FAILED, "no such image")


def test_a_rank_that_fails_stops_its_gang() -> None:
    world = one(a_run(slots=GANG), None, a_node("n2"))
    ranks = (an_ended_rank(code=1), a_rank(rank=1, node="n2"))
    run, job = after(world, an_observation(ranks=ranks))
    assert (run.state, run.stop_cause) == (RunState.STOPPING, StopCause.PEER_FAILED)
    assert job.state is JobState.STOPPING


def test_a_gang_is_told_why_the_rank_failed_that_ended_by_itself() -> None:
    run = a_run(slots=GANG, state=RunState.STOPPING, stop_cause=StopCause.PEER_FAILED)
    job = a_job(state=JobState.STOPPING, stop_cause=StopCause.PEER_FAILED)
    stopped = an_ended_rank(code=-15, cause=StopCause.PEER_FAILED, tail="going on")
    failed = an_ended_rank(code=1, rank=1, node="n2", tail="CUDA error")
    _, job = after(one(run, job, a_node("n2")), an_observation(ranks=(stopped, failed)))
    assert job.reason == "exited with code 1; its last lines:\nCUDA error"


def test_a_gang_of_which_one_rank_could_not_begin_is_tried_elsewhere_even_without_retries() -> None:
    run = a_run(slots=GANG, state=RunState.STOPPING, stop_cause=StopCause.PEER_FAILED)
    job = a_job(state=JobState.STOPPING, stop_cause=StopCause.PEER_FAILED)
    stopped = an_ended_rank(code=-15, cause=StopCause.PEER_FAILED)
    spoilt = "the checkpoint cannot be restored: step 20 is withdrawn"
    not_begun = an_ended_rank(code=None, rank=1, node="n2", problem=spoilt)
    _, job = after(one(run, job, a_node("n2")), an_observation(ranks=(stopped, not_begun)))
    assert (job.state, job.history[-1].cause) == (JobState.PENDING, spoilt)


def test_a_gang_whose_ranks_went_on_from_different_steps_is_stopped_and_tried_again() -> None:
    run = a_run(slots=GANG, state=RunState.STARTING, resume_seq=1)
    world = one(run, a_job(state=JobState.PLACED), a_node("n2"))
    ranks = (a_rank(first_step=20), a_rank(rank=1, node="n2", first_step=10))
    run, job = after(world, an_observation(ranks=ranks))
    words = "its ranks went on from different steps: 10, 20"
    assert (run.state, run.stop_cause) == (RunState.STOPPING, StopCause.PEER_FAILED)
    assert run.history[-1].cause == words
    killed = {"code": -15, "cause": StopCause.PEER_FAILED}
    ends = (
        an_ended_rank(**killed, first_step=20),
        an_ended_rank(**killed, rank=1, node="n2", first_step=10),
    )
    _, job = after(one(run, job, a_node("n2")), an_observation(ranks=ends))
    assert (job.state, job.history[-1].cause) == (JobState.PENDING, words)
    same = (a_rank(first_step=20), a_rank(rank=1, node="n2", first_step=20))
    assert after(world, an_observation(ranks=same))[0].state is RunState.RUNNING


def test_ranks_that_finish_well_wait_for_each_other_for_a_grace() -> None:
    spec = a_spec(stop={"grace": "30s"})
    world = one(a_run(slots=GANG), a_job(state=JobState.RUNNING, spec=spec), a_node("n2"))
    ranks = (an_ended_rank(code=0, ended_at=NOW), a_rank(rank=1, node="n2"))
    run, _ = after(world, an_observation(ranks=ranks, at=NOW + 29))
    assert run.state is RunState.RUNNING
    run, _ = after(world, an_observation(ranks=ranks, at=NOW + 30))
    assert run.state is RunState.STOPPING


def test_silence_ends_nothing_before_the_run_lease_is_surely_over() -> None:
    lease_over = (600 + RULES.kill_s) * 1.01
    silent = a_node_report(heard_at=NOW)
    world = one()
    run, _ = after(world, an_observation(nodes=(silent,), at=NOW + lease_over - 1))
    assert run.state is RunState.RUNNING
    bundles = sync(world, an_observation(nodes=(silent,), at=NOW + lease_over + 1), RULES)
    assert puts(bundles, Node)["n1"].state is NodeState.LOST
    assert puts(bundles, Run)["j1.1"].state is RunState.ENDED
    assert puts(bundles, Job)["j1"].state is JobState.PENDING


def test_silence_while_the_server_was_down_does_not_count() -> None:
    silent = a_node_report(heard_at=NOW)
    observation = an_observation(nodes=(silent,), at=NOW + 5000, heard_since=NOW + 4990)
    assert after(one(), observation)[0].state is RunState.RUNNING


def test_an_unknown_engine_concludes_nothing() -> None:
    observation = Observation(
        at=NOW + 1e6, heard_since=0, engines={"agent": Unknown("refused", NOW)}
    )
    assert sync(one(), observation, RULES) == ()


def test_the_word_of_a_rank_counts_although_its_node_has_gone() -> None:
    world = a_world(a_run(), a_job(state=JobState.RUNNING))
    _, job = after(world, an_observation(ranks=(an_ended_rank(code=0),)))
    assert job.state is JobState.SUCCEEDED


def test_a_lost_node_stops_the_rest_of_its_gang_first() -> None:
    lost = a_node("n2", state=NodeState.LOST)
    world = one(a_run(slots=GANG), None, lost)
    run, _ = after(world, an_observation(ranks=(a_rank(),)))
    assert (run.state, run.stop_cause) == (RunState.STOPPING, StopCause.NODE_LOST)


def test_a_checkpoint_counts_only_when_every_rank_has_it() -> None:
    world = one(a_run(slots=GANG), None, a_node("n2"))
    saved = Checkpoint(seq=1, step=40, committed_at=NOW + 30, size_bytes=10, commit_s=2.0)
    ranks = (a_rank(checkpoint=saved), a_rank(rank=1, node="n2"))
    assert after(world, an_observation(ranks=ranks))[1].checkpoint is None
    older = replace(saved, step=30)
    ranks = (a_rank(checkpoint=saved), a_rank(rank=1, node="n2", checkpoint=older))
    _, job = after(world, an_observation(ranks=ranks))
    assert job.checkpoint is not None
    assert (job.checkpoint.step, job.checkpoint.size_bytes) == (30, 20)
    assert job.checkpoint.work_s == 30.0


READ_ONLY = "the checkpoint store cannot be written to: AccessDenied"


def test_what_keeps_saves_from_being_committed_is_kept_and_told_once() -> None:
    seen = an_observation(ranks=(a_rank(checkpoint_problem=READ_ONLY),))
    bundles = sync(one(), seen, RULES)
    (run,) = puts(bundles, Run).values()
    assert run.checkpoint_problem == READ_ONLY
    (told,) = [event for event in notes(bundles) if event.what == "saves not safe"]
    assert (told.job_id, told.words) == ("j1", READ_ONLY)
    another_try = a_rank(checkpoint_problem="the checkpoint store cannot be written to: (403)")
    assert sync(one(run), an_observation(ranks=(another_try,)), RULES) == ()
    bundles = sync(one(run), an_observation(ranks=(a_rank(),)), RULES)
    assert puts(bundles, Run)[run.id].checkpoint_problem == ""
    assert [event.what for event in notes(bundles)] == ["saves safe again"]


def test_a_job_that_had_to_stop_while_its_saves_were_not_safe_is_told_what_that_means() -> None:
    run = a_run(state=RunState.STOPPING, stop_cause=StopCause.DRAIN)
    job = a_job(state=JobState.STOPPING)
    ended = an_ended_rank(code=85, checkpoint_problem=READ_ONLY)
    _, job = after(one(run, job), an_observation(ranks=(ended,)))
    assert job.history[-1].cause == f"stopped (drain), back to its last checkpoint ({READ_ONLY})"


@pytest.mark.parametrize(("portable", "work_s"), [(True, 10 + 20 * 0.5), (False, 30 * 0.5)])
def test_work_of_a_checkpoint_that_a_run_could_not_go_on_from_does_not_count(
    portable: bool, work_s: float
) -> None:
    saved = {"seq": 1, "step": 3, "size_bytes": 1, "commit_s": 1.0}
    first = Checkpoint(**saved, committed_at=NOW + 10, work_s=10.0, gpu_model="l40s")
    spec = a_spec(checkpoint={"enabled": True, "portable": portable})
    job = a_job(state=JobState.RUNNING, checkpoint=first, spec=spec)
    run = a_run(speed=0.5, assigned_at=NOW + 10, started_at=NOW + 10, gpu_model="a100-sxm4-80gb")
    second = Checkpoint(**saved, committed_at=NOW + (30 if portable else 40))
    _, job = after(one(run, job), an_observation(ranks=(a_rank(checkpoint=second),)))
    assert job.checkpoint is not None
    assert job.checkpoint.work_s == work_s


def test_work_saved_adds_up_over_checkpoints() -> None:
    first = Checkpoint(seq=1, step=1, committed_at=NOW + 10, size_bytes=1, commit_s=1, work_s=10)
    job = a_job(state=JobState.RUNNING, checkpoint=first)
    second = replace(first, seq=2, step=2, committed_at=NOW + 30, work_s=0)
    world = one(a_run(speed=0.5), job)
    _, job = after(world, an_observation(ranks=(a_rank(checkpoint=second),)))
    assert job.checkpoint is not None
    assert job.checkpoint.work_s == 10 + 20 * 0.5


def test_a_finished_job_of_a_family_teaches_its_work_and_speed() -> None:
    job = a_job(state=JobState.RUNNING, attempts=1, spec=a_spec(family="resnet"))
    observation = an_observation(ranks=(an_ended_rank(code=0),), at=NOW + 20)
    learned = [
        change.learned
        for bundle in sync(one(a_run(speed=2.0), job), observation, RULES)
        for change in bundle.changes
        if isinstance(change, Learn)
    ]
    assert learned[0].work_s["resnet"].mean == 20.0
    assert learned[0].usage["red"].gpu_s == 10.0


def test_a_mig_instance_is_used_as_the_part_of_its_gpu_that_it_is() -> None:
    job = a_job(state=JobState.RUNNING, attempts=1)
    observation = an_observation(ranks=(an_ended_rank(code=0),), at=NOW + 20)
    world = one(a_run(gpu_model="a100-sxm4-80gb:2g.20gb"), job)
    usage = [
        change.learned.usage["red"].gpu_s
        for bundle in sync(world, observation, RULES)
        for change in bundle.changes
        if isinstance(change, Learn)
    ]
    assert usage == [pytest.approx(10.0 * 2 / 7)]


def test_a_run_on_a_replica_teaches_usage_alone() -> None:
    job = a_job(state=JobState.RUNNING, attempts=1, spec=a_spec(family="resnet"))
    run = a_run()
    slots = tuple(replace(slot, share=0.25, replicas=4) for slot in run.slots)
    observation = an_observation(ranks=(an_ended_rank(code=0),), at=NOW + 20)
    learned = [
        change.learned
        for bundle in sync(one(replace(run, slots=slots), job), observation, RULES)
        for change in bundle.changes
        if isinstance(change, Learn)
    ]
    assert (learned[0].work_s, learned[0].speed) == ({}, {})
    assert learned[0].usage["red"].gpu_s == 2.5


def test_every_step_of_a_history_is_an_event_of_its_bundle() -> None:
    world = one(a_run(state=RunState.ASSIGNED, history=()), a_job(state=JobState.PLACED))
    bundles = sync(world, an_observation(ranks=(a_rank(),)), RULES)
    told = [(event.kind, event.what, event.job_id) for event in notes(bundles)]
    assert told == [("run", "starting", "j1"), ("run", "running", "j1"), ("job", "running", "j1")]


def test_facts_seen_twice_change_nothing_the_second_time() -> None:
    world = one(a_run(state=RunState.RUNNING))
    assert sync(world, an_observation(nodes=(a_node_report(),), ranks=(a_rank(),)), RULES) == ()


def test_a_rank_that_is_stopping_ends_nothing() -> None:
    run = a_run(state=RunState.STOPPING, stop_cause=StopCause.CANCEL)
    world = one(run, a_job(state=JobState.STOPPING))
    ranks = (a_rank(phase=RankPhase.STOPPING, cause=StopCause.CANCEL),)
    assert sync(world, an_observation(ranks=ranks), RULES) == ()


def test_the_cost_of_a_cloud_run_is_added_to_its_job() -> None:
    world = one(a_run(price_micros_per_hour=3_600_000))
    _, job = after(world, an_observation(ranks=(an_ended_rank(code=0),), at=NOW + 20))
    assert job.cost_micros == 10_000_000 // 1000


def test_outputs_are_kept_with_their_run_by_rank() -> None:
    world = one(a_run(slots=GANG), None, a_node("n2"))
    digest = "sha256:" + "0" * 64
    ranks = (
        an_ended_rank(code=0, outputs=digest),
        an_ended_rank(code=0, rank=1, node="n2"),
    )
    run, _ = after(world, an_observation(ranks=ranks))
    assert run.outputs == (digest, "")
    run, _ = after(one(), an_observation(ranks=(an_ended_rank(code=0),)))
    assert run.outputs == ()


@pytest.mark.parametrize(
    ("heard_s", "lost"), [(300.0, False), (320.0, False), (321.0, True), (5_000.0, True)]
)
def test_a_run_whose_order_was_never_taken_in_time_is_given_up(heard_s: float, lost: bool) -> None:
    """An order is kept for half the run lease (600 s), and 20 s are left for its report."""
    now = NOW + heard_s
    world = one(a_run(state=RunState.STARTING), a_job(state=JobState.PLACED))
    observation = an_observation(at=now, nodes=(a_node_report(heard_at=now),))
    if not lost:
        assert sync(world, observation, RULES) == ()
        return
    run, job = after(world, observation)
    assert (run.state, job.state) == (RunState.ENDED, JobState.PENDING)
    assert run.stop_cause is StopCause.NODE_LOST


def test_a_run_that_was_seen_to_begin_is_not_given_up_for_a_missing_report() -> None:
    steps = (Step("assigned", NOW), Step("starting", NOW), Step("running", NOW))
    world = one(a_run(history=steps), a_job(state=JobState.RUNNING))
    now = NOW + 5_000
    run, job = after(world, an_observation(at=now, nodes=(a_node_report(heard_at=now),)))
    assert (run.state, job.state) == (RunState.RUNNING, JobState.RUNNING)
    assert run.unnamed_since == now  # from now on it counts
