"""What is asked, how often, and what a source that fails means."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hybrid.domain.job_spec import Market
from hybrid.ports.observation import Known, Unknown
from hybrid.runtime.observe import Observer
from hybrid.runtime.pace import Pace
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.engine import SimEngine
from tests.doubles.build import NOW, a_burst_pool, a_claim, a_world

PACE = Pace(list_every_s=5.0, list_idle_every_s=60.0, offers_every_s=60.0, source_deadline_s=5.0)


class Outside:
    """One engine and one cloud that count how often they are asked."""

    def __init__(self) -> None:
        self.clock = SimClock(NOW)
        self.cloud = CountingCloud(
            "aws", self.clock, {("g5.xlarge", market): 1_000_000 for market in Market}
        )
        self.engine = SimEngine("agent", self.clock, lambda _job: 60.0)
        self.observer = Observer({"agent": self.engine}, {"aws": self.cloud}, self.clock, PACE)


class CountingCloud(SimCloud):
    listed = priced = 0
    hangs: threading.Event | None = None

    def list_machines(self):
        self.listed += 1
        if self.hangs is not None:
            self.hangs.wait(20)
        return super().list_machines()

    def offers(self, pools):
        self.priced += 1
        return super().offers(pools)


@pytest.fixture
def outside() -> Iterator[Outside]:
    made = Outside()
    yield made
    if made.cloud.hangs is not None:
        made.cloud.hangs.set()
    made.observer.close()


WITH_POOL = a_world(a_burst_pool())
WITH_CLAIM = a_world(a_burst_pool(), a_claim())


def test_every_source_says_when_it_was_asked(outside: Outside) -> None:
    seen = outside.observer.observe(WITH_POOL)
    for sources in (seen.engines, seen.machines, seen.offers):
        (source,) = sources.values()
        assert isinstance(source, Known)
        assert source.asked_at == NOW
    assert (seen.at, seen.heard_since) == (NOW, NOW)


def test_a_source_that_fails_is_unknown_with_its_cause_and_the_others_stand(
    outside: Outside,
) -> None:
    outside.engine.deaf = True
    seen = outside.observer.observe(WITH_POOL)
    gap = seen.engines["agent"]
    assert isinstance(gap, Unknown)
    assert gap.cause == "OutcomeUnknown: agent does not answer"
    assert isinstance(seen.machines["aws"], Known)


def test_a_source_that_was_known_and_fails_is_unknown_not_as_it_was(outside: Outside) -> None:
    outside.observer.observe(WITH_CLAIM)
    outside.cloud.trouble.deaf = True
    outside.clock.advance(60)
    seen = outside.observer.observe(WITH_CLAIM)
    assert isinstance(seen.machines["aws"], Unknown)
    assert isinstance(seen.offers["aws"], Unknown)


def test_a_source_that_failed_is_asked_again_at_once(outside: Outside) -> None:
    outside.cloud.trouble.deaf = True
    outside.observer.observe(WITH_POOL)
    outside.cloud.trouble.deaf = False
    seen = outside.observer.observe(WITH_POOL)
    assert isinstance(seen.machines["aws"], Known)
    assert isinstance(seen.offers["aws"], Known)


def test_a_source_that_hangs_is_unknown_and_is_not_asked_a_second_time(outside: Outside) -> None:
    outside.cloud.hangs = threading.Event()
    observer = Observer(
        {"agent": outside.engine},
        {"aws": outside.cloud},
        outside.clock,
        replace(PACE, source_deadline_s=0.1),
    )
    for _ in range(2):
        seen = observer.observe(WITH_POOL)
        gap = seen.machines["aws"]
        assert isinstance(gap, Unknown)
        assert gap.cause.startswith("no answer within")
        assert isinstance(seen.engines["agent"], Known)
    assert outside.cloud.listed == 1
    observer.close()


@pytest.mark.parametrize(("world", "every_s"), [(WITH_CLAIM, 5.0), (WITH_POOL, 60.0)])
def test_machines_are_listed_often_only_while_claims_are_live(
    outside: Outside, world, every_s: float
) -> None:
    outside.observer.observe(world)
    outside.clock.advance(every_s - 0.5)
    seen = outside.observer.observe(world)
    assert outside.cloud.listed == 1
    source = seen.machines["aws"]
    assert isinstance(source, Known)
    assert source.asked_at == NOW  # the old answer, under its old date
    outside.clock.advance(0.5)
    outside.observer.observe(world)
    assert outside.cloud.listed == 2


def test_offers_are_asked_for_in_their_own_time_and_when_there_is_a_new_pool(
    outside: Outside,
) -> None:
    outside.observer.observe(WITH_POOL)
    outside.clock.advance(59)
    outside.observer.observe(WITH_POOL)
    assert outside.cloud.priced == 1
    outside.observer.observe(a_world(a_burst_pool(), a_burst_pool("second")))
    assert outside.cloud.priced == 2
    outside.clock.advance(60)
    outside.observer.observe(WITH_POOL)
    assert outside.cloud.priced == 3


def test_offers_that_cannot_be_used_are_told_with_the_reason(outside: Outside) -> None:
    pool = a_burst_pool(machine_types=["g5.xlarge", "g5.12xlarge"], markets=["spot"])
    seen = outside.observer.observe(a_world(pool))
    offers = seen.offers["aws"]
    assert isinstance(offers, Known)
    assert [offer.machine_type for offer in offers.value] == ["g5.xlarge"]
    assert outside.observer.ignored_offers["aws"] == (
        ("cloud/us-east-1a/g5.12xlarge/spot", "no price"),
    )
    # a pool whose offers are all ignored is no reason to ask at every tick
    nothing = a_world(a_burst_pool(machine_types=["g5.12xlarge"]))
    for _ in range(3):
        outside.observer.observe(nothing)
    assert outside.cloud.priced == 2
