"""The whole loop over a made-up cloud: two machines half used become one, and nothing is lost."""

from __future__ import annotations

from hybrid.domain.ids import JobId
from hybrid.domain.job import JobState, StopCause
from hybrid.domain.job_spec import Market
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
