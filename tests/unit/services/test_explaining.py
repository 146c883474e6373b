"""What is said of a job that waits is of the moment at which somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hybrid.domain.ids import JobId
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.plan import Decision
from hybrid.ports.access import Role
from hybrid.ports.observation import Observation
from hybrid.ports.store import Bundle, Decide
from hybrid.services.access import Principal
from hybrid.services.explaining import Explaining
from hybrid.services.foresight import Foresight
from hybrid.services.jobs import Jobs
from hybrid.services.live import Live
from hybrid.services.policy import Policies
from hybrid.services.sight import Sight
from hybrid.simulation.clock import SimClock
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.memory_store import MemoryStore
from hybrid.simulation.world import SimWorld
from tests.doubles.build import NOW

ROOT = Principal(name="root", role=Role.ADMIN)
FIRST, SECOND = JobId("first"), JobId("second")


@pytest.fixture
def control() -> Iterator[Control]:
    """One GPU: a job of hours on it, and one that waits."""
    clock = SimClock(NOW)
    engine = SimEngine("agent", clock, lambda job: job.spec.expected_runtime or 30.0)
    world = SimWorld(clock, {}, engine, step_s=1.0)
    control = Control(MemoryStore(), world)
    control.apply_pool({"kind": "local", "name": "home"})
    world.add_node("home", "n1", "l4", 1, links="pcie")
    control.tick()
    control.submit("first", _spec())
    control.tick()
    control.submit("second", _spec())
    control.tick()
    yield control
    control.loop.stop()


def _spec() -> JobSpec:
    return JobSpec(command=("train",), expected_runtime="2h", walltime="24h", resources={"gpus": 1})


def explaining(control: Control, *, blind: bool = False) -> Explaining:
    clock = control.world.clock

    def seen() -> Observation | None:
        return None if blind else control.loop.tick.observation

    policies = Policies(control.store, clock, lambda: pytest.fail("the loop was woken"))
    sight = Sight(Live(control.store, clock), clock, seen, engines=("agent",), providers=())
    jobs = Jobs(control.store, clock, lambda: pytest.fail("the loop was woken"))
    return Explaining(jobs, policies, sight, Foresight(policies, sight))


def told(control: Control) -> Decision:
    found = control.store.decision(SECOND)
    assert found is not None
    return found


def said(service: Explaining, job_id: JobId = SECOND) -> Decision:
    found = service.why(ROOT, job_id).decision
    assert found is not None
    return found


def _expected_s(decision: Decision) -> float:
    (option,) = [each for each in decision.alternatives if each.option == decision.chosen]
    assert option.start_p50_at is not None
    return option.start_p50_at - decision.at


def test_what_was_decided_a_moment_ago_is_told_as_it_stands(control: Control) -> None:
    assert said(explaining(control)) == told(control)


def test_the_times_of_a_job_that_waits_are_of_now(control: Control) -> None:
    control.run(1800.0, every_s=300.0)
    then, now = told(control), said(explaining(control))
    assert then.at < NOW + 60.0
    assert now.at == control.world.clock.now()
    assert (now.verdict, now.chosen) == (then.verdict, then.chosen)
    assert now.sentence.startswith("waits for GPUs in home, expected in ")
    assert _expected_s(now) < _expected_s(then) - 600.0
    assert told(control) == then, "nothing is written"


def test_one_plan_answers_all_who_ask_within_a_few_seconds(control: Control) -> None:
    control.run(1800.0, every_s=300.0)
    service = explaining(control)
    first = said(service)
    control.world.advance(1.0)
    assert said(service) is first
    control.world.advance(60.0)
    assert said(service).at == first.at + 61.0


def test_the_row_stands_where_this_server_has_not_looked_at_the_world(control: Control) -> None:
    control.run(1800.0, every_s=300.0)
    assert said(explaining(control, blind=True)) == told(control)


def test_the_row_stands_where_a_plan_of_now_would_decide_otherwise(control: Control) -> None:
    other = replace(told(control), chosen="pool:elsewhere", sentence="waits for a place elsewhere")
    bundle = Bundle(id="given", changes=(Decide(other),))
    assert not control.store.commit([bundle], at=control.world.clock.now()).dropped
    control.world.advance(1800.0)
    assert said(explaining(control)) == other


def test_of_a_job_that_runs_the_row_is_told(control: Control) -> None:
    control.run(1800.0, every_s=300.0)
    assert said(explaining(control), FIRST) == control.store.decision(FIRST)
