"""The whole loop over a made-up cloud and a checkpoint store in trouble: nobody is brought home
before what it has done is safe."""

from __future__ import annotations

from hybrid.domain.ids import JobId, NodeId
from hybrid.domain.job import JobState, StopCause
from hybrid.domain.run import RunState
from hybrid.simulation.drive import Control
from tests.doubles.sim import a_training, an_installation, broken_promises, quiet, the_job

FULL = "the checkpoint store is full: no space left on device"


def away_with_a_free_gpu_at_home(control: Control) -> None:
    """A job that saves runs in the cloud, and home becomes free."""
    control.submit("home", a_training(25, where={"burst": "never"}))
    control.run(10)
    control.submit("away", a_training(90))
    control.run(180)
    (run,) = control.store.runs_of(JobId("away"))
    assert run.claim_ids
    assert run.state is RunState.RUNNING


def test_a_run_comes_home_only_when_its_saves_arrive_again() -> None:
    with an_installation(stop_s=5.0) as control:
        away_with_a_free_gpu_at_home(control)
        control.world.engine.store.trouble = FULL
        control.run(1800)
        assert the_job(control, "home").state is JobState.SUCCEEDED
        (run,) = control.store.runs_of(JobId("away"))
        assert (run.state, run.checkpoint_problem) == (RunState.RUNNING, FULL)
        told = control.store.decision(JobId("away"))
        assert told is not None
        assert FULL in told.sentence
        control.world.engine.store.trouble = ""
        control.run(120)
        first, second = control.store.runs_of(JobId("away"))
        assert (first.stop_cause, second.node_ids) == (StopCause.RETURN, (NodeId("n1"),))
        control.run(2 * 3600, every_s=30)
        assert quiet(control)
        assert broken_promises(control) == []
        assert the_job(control, "away").state is JobState.SUCCEEDED
