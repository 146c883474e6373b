"""What another policy would do with the demo's queue as it stands: shown, and not done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from hybrid.demo import cast, scene
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.domain.money import to_micros
from hybrid.ports.access import Role
from hybrid.services.access import Principal
from hybrid.services.errors import Refused
from hybrid.services.live import Live
from hybrid.services.policy import Policies
from hybrid.services.policy_trial import PolicyTrials
from hybrid.services.sight import Sight
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.memory_store import MemoryStore
from hybrid.simulation.world import SimWorld
from tests.doubles.build import NOW

ROOT = Principal(name="root", role=Role.ADMIN)


@pytest.fixture(scope="module")
def queue() -> Iterator[Control]:
    """The demo's machine, pools, policy and jobs, three seconds after the first was sent."""
    clock = SimClock(NOW)
    prices = {
        (scene.MACHINE, Market.SPOT): to_micros(scene.SPOT_USD),
        (scene.MACHINE, Market.ON_DEMAND): to_micros(scene.ON_DEMAND_USD),
    }
    engine = SimEngine("agent", clock, lambda job: job.spec.expected_runtime or 30.0)
    world = SimWorld(clock, {"sandbox": SimCloud("sandbox", clock, prices)}, engine, step_s=0.5)
    control = Control(MemoryStore(), world)
    control.apply_policy(scene.policy())
    control.apply_pool(scene.local_pool())
    for name, market in (("spot", "spot"), ("steady", "on_demand")):
        pool = scene.burst_pool(name, market, "ami-1", dict.fromkeys(scene.ZONES, "subnet-1"))
        control.apply_pool(pool)
    world.add_node("local", "here", "a100-pcie-80gb", 4, links="nvlink-pairs")
    control.tick()
    jobs = cast.jobs(datetime.fromtimestamp(NOW, UTC))
    for job in jobs:
        if job.after_s == 0:
            control.submit(job.name, JobSpec(**job.document))
    control.tick()
    world.advance(3.0)
    for job in jobs:
        if job.after_s > 0 and not job.refused:
            control.submit(job.name, JobSpec(**job.document))
    yield control
    control.loop.stop()


@pytest.fixture
def trials(queue: Control) -> PolicyTrials:
    clock = queue.world.clock
    return PolicyTrials(
        Policies(queue.store, clock, lambda: pytest.fail("the loop was woken")),
        Sight(
            Live(queue.store, clock),
            clock,
            lambda: queue.loop.tick.observation,
            engines=("agent",),
            providers=("sandbox",),
        ),
    )


def test_without_a_budget_the_demos_jobs_stay_at_home_and_wait_longer(
    trials: PolicyTrials, queue: Control
) -> None:
    before = queue.store.load(now=NOW).revision
    trial = trials.trial(ROOT, "")
    by_name = {change.job.spec.name: change for change in trial.plans.changes}
    speech = by_name["speech-steady"]
    assert (speech.before.verdict, speech.after.verdict) == ("burst", "wait")
    assert speech.before.cloud_micros is not None
    assert speech.cloud_change_micros == -speech.before.cloud_micros < 0
    assert speech.finish_change_s is not None
    assert speech.finish_change_s > 60
    assert trial.plans.before.machines_asked > 0
    assert trial.plans.before.held_now_micros > 0
    assert (trial.plans.after.machines_asked, trial.plans.after.cloud_micros) == (0, 0)
    # nothing was written, nothing launched
    assert queue.store.load(now=NOW).revision == before
    assert queue.store.policy().version == 1
    assert queue.world.clouds["sandbox"].running == ()


def test_one_more_machine_at_most_is_a_change_in_dollars_and_in_minutes(
    trials: PolicyTrials,
) -> None:
    text = scene.policy().replace("machines: 6", "machines: 1")
    trial = trials.trial(ROOT, text)
    assert [d.path for d in trial.settings] == ["burst.ceilings.machines"]
    assert 0 < trial.plans.after.machines_asked <= 1 < trial.plans.before.machines_asked
    later = [c for c in trial.plans.changes if c.before.verdict == "burst" != c.after.verdict]
    assert later
    assert all(c.cloud_change_micros < 0 for c in later)
    assert any((c.finish_change_s or 0) > 0 for c in later)
    assert {c.after.reason for c in later} <= {"waiting_for_gpus", "nowhere"}
    dearest = [abs(c.cloud_change_micros) for c in trial.plans.changes]
    assert dearest == sorted(dearest, reverse=True)


def test_the_same_policy_changes_nobodys_decision(trials: PolicyTrials) -> None:
    trial = trials.trial(ROOT, scene.policy())
    assert (trial.settings, trial.plans.changes) == ((), ())
    assert trial.plans.before == trial.plans.after
    assert trial.plans.jobs == len(trials.sight.live.world().jobs)


def test_people_see_what_changes_for_their_own_jobs_alone(trials: PolicyTrials) -> None:
    stranger = Principal(name="eve", role=Role.OPERATOR, teams=("elsewhere",))
    trial = trials.trial(stranger, "")
    assert (trial.plans.jobs, trial.plans.changes) == (0, ())


def test_what_is_no_policy_is_tried_on_nobody(trials: PolicyTrials) -> None:
    with pytest.raises(Refused, match="did you mean burst"):
        trials.trial(ROOT, "brust: {}")
