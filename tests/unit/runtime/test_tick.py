"""Observe, sync, plan, lint, commit, act: what one tick does, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.ids import GpuId, JobId, NodeId, PoolName
from hybrid.domain.job import JobState
from hybrid.domain.node import Slot
from hybrid.domain.plan import ActionBundle, Place, Plan, RowRef
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.planner import plan as real_plan
from hybrid.ports.store import Bundle, DropCause, EpochPassed, Put
from hybrid.simulation.drive import Control
from policies.document import PolicyDocument
from tests.doubles.sim import a_training, the_job


def revision(control: Control) -> int:
    return control.store.load(now=control.world.clock.now()).revision


def patiently(control: Control) -> Control:
    """The same with a loop that plans again only when something has changed."""
    control.pace = replace(control.pace, replan_s=300.0, offers_every_s=1e6)
    control.restart()
    return control


def test_a_job_is_placed_started_and_told_of_in_a_tick(control: Control) -> None:
    control.submit("j1", a_training())
    report = control.tick()
    assert report is not None
    assert (report.planned, report.actions, report.calls) == (True, 1, 1)
    assert [run.order.run.id for run in control.world.engine.lives] == ["j1.1"]
    assert the_job(control, "j1").state is JobState.PLACED
    (run,) = control.store.runs_of(JobId("j1"))
    assert run.state is RunState.STARTING
    decision = control.store.decision(JobId("j1"))
    assert decision is not None
    assert decision.sentence


def test_a_quiet_tick_writes_nothing_calls_nobody_and_plans_nothing(control: Control) -> None:
    patiently(control)
    control.submit("j1", a_training())
    for _ in range(3):
        control.tick()
    before = revision(control)
    report = control.tick()
    assert report is not None
    assert report.quiet
    assert not report.planned
    assert revision(control) == before


def test_time_alone_makes_a_plan_due_after_a_while(control: Control) -> None:
    patiently(control)
    for _ in range(2):
        control.tick()
    planned = []
    for _ in range(4):
        control.world.advance(100)
        report = control.tick()
        assert report is not None
        planned.append(report.planned)
    assert planned == [False, False, True, False]


def test_a_new_row_makes_a_plan_due_at_once(control: Control) -> None:
    patiently(control)
    for _ in range(2):
        control.tick()
    control.submit("j1", a_training())
    report = control.tick()
    assert report is not None
    assert report.planned


def test_a_bundle_whose_row_has_moved_is_dropped_and_planned_again(control: Control) -> None:
    patiently(control)
    control.tick()
    control.submit("j1", a_training())
    moved: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "commit" and not moved:
            moved.append(name)
            job = the_job(control, "j1")
            touched = Put(replace(job, reason="looked at"))
            control.store.commit([Bundle(id="meanwhile", changes=(touched,))], at=job.submitted_at)

    control.crash_point = meanwhile
    first = control.tick()
    assert first is not None
    assert [drop.cause for drop in first.dropped] == [DropCause.MOVED]
    assert control.store.runs_of(JobId("j1")) == ()
    second = control.tick()
    assert second is not None
    assert second.actions == 1
    assert len(control.store.runs_of(JobId("j1"))) == 1


def test_of_two_bundles_the_one_whose_row_has_not_moved_goes_through(control: Control) -> None:
    control.tick()
    control.submit("j1", a_training())
    control.submit("j2", a_training(priority="urgent"))
    moved: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "commit" and not moved:
            moved.append(name)
            job = the_job(control, "j1").to(JobState.CANCELLED, at=control.world.clock.now())
            control.store.commit([Bundle(id="cancel", changes=(Put(job),))], at=job.submitted_at)

    control.crash_point = meanwhile
    report = control.tick()
    assert report is not None
    assert len(control.store.runs_of(JobId("j2"))) == 1
    assert the_job(control, "j1").state is JobState.CANCELLED


def test_a_plan_that_is_not_clean_is_not_committed(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_on_one_gpu(snapshot: Snapshot, policy: PolicyDocument, version: int) -> Plan:
        made = real_plan(snapshot, policy, version)
        slot = Slot(node_id=NodeId("n1"), gpu_ids=(GpuId("n1-gpu0"),))
        bundles = tuple(
            ActionBundle(
                id=f"place:{job.id}",
                actions=(
                    Place(
                        run=Run(
                            id=f"{job.id}.1",  # type: ignore[arg-type]
                            job_id=job.id,
                            attempt=1,
                            state=RunState.ASSIGNED,
                            pool=PoolName("rack"),
                            engine="agent",
                            slots=(slot,),
                            assigned_at=snapshot.now,
                            epoch=snapshot.epoch,
                        )
                    ),
                ),
                rests_on=(RowRef(kind="job", id=job.id, version=job.version),),
            )
            for job in snapshot.jobs.values()
        )
        return replace(made, bundles=bundles)

    control.tick()
    control.submit("j1", a_training())
    control.submit("j2", a_training())
    monkeypatch.setattr("hybrid.runtime.planning.plan", two_on_one_gpu)
    report = control.tick()
    assert report is not None
    assert report.findings
    assert report.actions == 0
    assert control.store.runs_of(JobId("j1")) == control.store.runs_of(JobId("j2")) == ()
    monkeypatch.undo()
    again = control.tick()
    assert again is not None
    assert again.findings == ()
    assert control.world.engine.lives


def test_an_unknown_engine_starts_and_concludes_nothing(control: Control) -> None:
    control.tick()
    control.submit("j1", a_training())
    control.world.engine.deaf = True
    report = control.tick()
    assert report is not None
    assert report.actions == 1  # the decision that it waits
    assert control.store.runs_of(JobId("j1")) == ()
    assert control.store.claims() == ()
    decision = control.store.decision(JobId("j1"))
    assert decision is not None
    assert "agent does not answer" in decision.sentence
    control.world.engine.deaf = False
    control.tick()
    assert len(control.store.runs_of(JobId("j1"))) == 1


def test_a_launch_whose_answer_is_lost_makes_one_machine(control: Control) -> None:
    control.submit("j1", a_training(where={"pools": ["cloud"]}))
    cloud = control.world.clouds["aws"]
    cloud.trouble.lose = 2
    control.run(300, every_s=5)
    assert cloud.launches == 1
    assert the_job(control, "j1").state is JobState.RUNNING


def test_who_leads_no_more_writes_nothing(control: Control) -> None:
    control.tick()
    control.submit("j1", a_training())
    lease = control.store.acquire_loop("sim", now=control.world.clock.now(), ttl_s=30)
    assert lease is not None
    before = revision(control)
    with pytest.raises(EpochPassed):
        control.loop.tick.run(lease.epoch - 1)
    assert revision(control) == before
    assert control.world.engine.lives == []


def test_a_policy_counts_from_the_next_tick_on(control: Control) -> None:
    control.submit("j1", a_training())
    control.submit("j2", a_training())
    control.tick()
    claims = control.store.claims()
    assert len(claims) == 1
    control.apply_policy("budgets:\n  - {name: all, limit_usd: 0, period: lifetime}\n")
    control.submit("j3", a_training())
    control.tick()
    assert control.store.claims() == control.store.claims(states=[claims[0].state, "booting"])
    decision = control.store.decision(JobId("j3"))
    assert decision is not None
    assert len(control.store.claims()) == 1
