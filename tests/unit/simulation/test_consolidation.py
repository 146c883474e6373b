"""The whole loop over a made-up cloud: two machines half used become one, and nothing is lost."""

from __future__ import annotations

from hybrid.domain.ids import ClaimId, JobId, MachineId
from hybrid.domain.job import JobState, StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.run import RunState
from hybrid.simulation.drive import Control
from tests.doubles.sim import a_training, an_installation, broken_promises, quiet, the_job

KIND = "g5.12xlarge"
POLICY = """
budgets:
  - {name: all, limit_usd: 200, period: lifetime}
priority_classes:
  normal: {value_per_hour: 3}
"""


def test_a_job_moves_beside_another_and_its_machine_ends() -> None:
    with an_installation(local_gpus=0, policy=POLICY, machine_types=[KIND]) as control:
        control.world.clouds["aws"].prices = {(KIND, Market.ON_DEMAND): 5_672_000}
        cloud = control.world.clouds["aws"]
        pair = {"resources": {"gpus": 2}}
        control.submit("long", a_training(180, **pair))
        control.submit("late", a_training(150, **pair))
        control.run(120)
        assert len(cloud.running) == 2
        control.run(600)
        assert len(cloud.running) == 1
        first, second = control.store.runs_of(JobId("late"))
        assert (first.stop_cause, second.stop_cause) == (StopCause.CONSOLIDATE, None)
        assert second.node_ids == control.store.runs_of(JobId("long"))[0].node_ids
        assert the_job(control, "late").failures == 0
        assert broken_promises(control) == []
        control.run(4 * 3600, every_s=30)
        assert quiet(control)
        assert [the_job(control, name).state for name in ("long", "late")] == [
            JobState.SUCCEEDED,
            JobState.SUCCEEDED,
        ]
        assert len(control.store.runs_of(JobId("late"))) == 2


def test_a_machine_that_is_taken_while_its_run_moves_away_leaves_one_run_and_the_harder_cause() -> (
    None
):
    with an_installation(local_gpus=0, policy=POLICY, machine_types=[KIND], stop_s=15.0) as control:
        cloud = control.world.clouds["aws"]
        cloud.prices = {(KIND, Market.ON_DEMAND): 5_672_000}
        pair = {"resources": {"gpus": 2}}
        control.submit("long", a_training(180, **pair))
        control.submit("late", a_training(150, **pair))
        moving = None
        while moving is None:
            control.run(5)
            runs = control.store.runs_of(JobId("late"))
            moving = next((r for r in runs if r.state is RunState.STOPPING), None)
        assert moving.stop_cause is StopCause.CONSOLIDATE
        asked_at = control.world.clock.now()
        cloud.announce(cloud_machine(control, moving.claim_ids[0]), 8)
        control.run(60)
        first, second = control.store.runs_of(JobId("late"))
        assert first.stop_cause is StopCause.INTERRUPTION
        assert first.stop_by is not None
        assert first.stop_by <= asked_at + 8
        assert second.live
        control.run(4 * 3600, every_s=30)
        assert quiet(control)
        assert broken_promises(control) == []
        assert len(control.store.runs_of(JobId("late"))) == 2


def cloud_machine(control: Control, claim_id: ClaimId) -> MachineId:
    (claim,) = [claim for claim in control.store.claims() if claim.id == claim_id]
    assert claim.machine_id is not None
    return claim.machine_id
