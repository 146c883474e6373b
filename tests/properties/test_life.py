"""Anything may happen at any time, and still nothing leaks, runs twice, is lost or passes a cap.

Hypothesis makes up lives of a small company: people submit and cancel, prices move, machines are
taken, answers get lost, sources and nodes fall silent, limits are lowered, control planes are
killed at any boundary and stand still at any. After every step the promises are looked at in the
world itself; in the end all trouble is over, and everything must come to rest.

``HYPOTHESIS_SEED`` and the printed blob replay a failure; ``HYBRID_SOAK=1`` lives longer and more
often.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from hybrid.domain.job_spec import Market
from hybrid.ports.store import Store
from hybrid.services.log_lines import log_to_stderr
from hybrid.simulation.memory_store import MemoryStore
from hybrid.store import SqlStore
from tests.doubles.life import HOME, LIST_MICROS, NOW, ZONE, Life

SOAK = os.environ.get("HYBRID_SOAK") == "1"
EXAMPLES = int(os.environ.get("HYBRID_SOAK_EXAMPLES", "300"))
LIVED = os.environ.get("HYBRID_SOAK_LIVED")
"""A file that is told how many seconds each life lasted."""
MOST_JOBS = 10

offers = st.tuples(st.sampled_from(sorted(LIST_MICROS)), st.sampled_from(tuple(Market)))
later = st.sampled_from((0.0, 20.0, 75.0, 180.0))
"""How long life goes on after something has happened, in seconds."""


class AnyLife(RuleBasedStateMachine):
    """Lives over a store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(self.new_store())

    def new_store(self) -> Store:
        """An empty store."""
        return MemoryStore()

    # --- people ---------------------------------------------------------------------------------

    @initialize(minutes=st.sampled_from((10, 40)))
    def a_full_house(self, minutes: int) -> None:
        """Home is taken, so that what comes next is about the cloud."""
        for _ in range(2):
            self.life.submit(
                minutes,
                team="red",
                resources={"gpus": 2},
                checkpoint={"enabled": True, "interval": 60, "size": 0.1},
                where={"burst": "never"},
            )
        self.life.live(20)

    @precondition(lambda self: len(self.life.submitted) < MOST_JOBS)
    @rule(
        minutes=st.sampled_from((3, 12, 30)),
        shape=st.sampled_from(((1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (1, 4))),
        saves=st.booleans(),
        restarts=st.booleans(),
        burst=st.sampled_from(("allowed", "allowed", "allowed", "never")),
        priority=st.sampled_from(("normal", "high", "high", "low", "urgent")),
        due_in_m=st.sampled_from((None, None, 10, 60)),
        team=st.sampled_from(("red", "blue")),
        then_s=later,
    )
    def submit(
        self,
        minutes: int,
        shape: tuple[int, int],
        saves: bool,
        restarts: bool,
        burst: str,
        priority: str,
        due_in_m: int | None,
        team: str,
        then_s: float,
    ) -> None:
        nodes, gpus = shape
        self.life.submit(
            minutes,
            team=team,
            priority=priority,
            resources={"nodes": nodes, "gpus": gpus},
            checkpoint={"enabled": saves, "interval": 60, "size": 0.1},
            retries={"on_spot_restart": restarts},
            where={"burst": burst},
            due_in_m=due_in_m,
        )
        self.life.live(then_s)

    @rule(which=st.integers(0, MOST_JOBS - 1), then_s=later)
    def cancel(self, which: int, then_s: float) -> None:
        jobs = list(self.life.submitted)
        self.life.cancel(jobs[which % len(jobs)])
        self.life.live(then_s)

    @rule(
        all_usd=st.sampled_from((0, 4, 60, 60)),
        blue_usd=st.sampled_from((0, 3, 20)),
        value=st.sampled_from((1, 4, 12)),
        then_s=later,
    )
    def change_the_policy(self, all_usd: int, blue_usd: int, value: int, then_s: float) -> None:
        self.life.all_usd, self.life.blue_usd, self.life.value = all_usd, blue_usd, value
        self.life.apply_policy()
        self.life.live(then_s)

    # --- time -----------------------------------------------------------------------------------

    @rule(minutes=st.sampled_from((0.25, 1, 5, 12)))
    def live(self, minutes: float) -> None:
        self.life.live(minutes * 60)

    @rule(minutes=st.sampled_from((0.5, 3, 11, 40)), deaf=st.booleans())
    def sleep(self, minutes: float, deaf: bool) -> None:
        self.life.sleep(minutes * 60, deaf=deaf)

    # --- the cloud ------------------------------------------------------------------------------

    @rule(offer=offers, sold_out=st.booleans(), then_s=later)
    def capacity(self, offer: tuple[str, Market], sold_out: bool, then_s: float) -> None:
        kind, market = offer
        empty = self.life.cloud.trouble.empty
        (empty.add if sold_out else empty.discard)((ZONE, kind, market))
        self.life.live(then_s)

    @rule(quota=st.sampled_from((None, None, 1)), then_s=later)
    def quota(self, quota: int | None, then_s: float) -> None:
        self.life.cloud.trouble.quota = quota
        self.life.live(then_s)

    @rule(offer=offers, part=st.sampled_from((0.2, 0.4, 1.0, 2.5)))
    def price(self, offer: tuple[str, Market], part: float) -> None:
        self.life.cloud.prices[offer] = int(LIST_MICROS[offer[0]] * part)

    @precondition(lambda self: self.life.running())
    @rule(which=st.integers(0, 5), notice_s=st.sampled_from((120.0, 30.0, 3.0)), then_s=later)
    def notice(self, which: int, notice_s: float, then_s: float) -> None:
        machines = self.life.running()
        self.life.cloud.announce(machines[which % len(machines)], notice_s)
        self.life.live(then_s)

    @precondition(lambda self: self.life.running())
    @rule(which=st.integers(0, 5), then_s=later)
    def vanish(self, which: int, then_s: float) -> None:
        machines = self.life.running()
        self.life.cloud.end(machines[which % len(machines)], "ended by hand")
        self.life.world.settle()
        self.life.live(then_s)

    @rule(count=st.sampled_from((1, 2)), lag_s=st.sampled_from((0.0, 20.0)), then_s=later)
    def lose_answers(self, count: int, lag_s: float, then_s: float) -> None:
        """Answers to launches are lost, and new machines are listed late."""
        self.life.cloud.trouble.lose = count
        self.life.cloud.trouble.listing_lag_s = lag_s
        self.life.live(then_s)

    @rule(deaf=st.booleans(), then_s=later)
    def cloud_deaf(self, deaf: bool, then_s: float) -> None:
        self.life.cloud.trouble.deaf = deaf
        self.life.live(then_s)

    @precondition(lambda self: not self.life.trouble())
    @rule(kind=st.sampled_from(sorted(LIST_MICROS)), then_s=later)
    def stray(self, kind: str, then_s: float) -> None:
        """A machine under our tag that no claim stands for."""
        self.life.cloud.trouble.quota = None
        self.life.cloud.trouble.empty.discard((ZONE, kind, Market.SPOT))
        self.life.stray(kind)
        self.life.live(then_s)

    # --- the engine and its nodes ---------------------------------------------------------------

    @rule(deaf=st.booleans(), then_s=later)
    def engine_deaf(self, deaf: bool, then_s: float) -> None:
        self.life.world.engine.deaf = deaf
        self.life.live(then_s)

    @rule(which=st.integers(0, 7), silent=st.booleans(), then_s=later)
    def silence(self, which: int, silent: bool, then_s: float) -> None:
        nodes = self.life.world.engine.nodes
        alive = [*HOME, *(n for n, node in nodes.items() if n not in HOME and not node.dead)]
        nodes[alive[which % len(alive)]].silent = silent
        self.life.live(then_s)

    @rule()
    def all_is_well_again(self) -> None:
        self.life.all_is_well_again()

    # --- control planes -------------------------------------------------------------------------

    @rule(boundary=st.integers(0, 12), before_s=later)
    def crash(self, boundary: int, before_s: float) -> None:
        self.life.world.advance(before_s)
        self.life.crash(boundary)

    @rule(boundary=st.integers(0, 8), pause_s=st.sampled_from((35.0, 35.0, 240.0, 900.0)))
    def the_other_takes_over(self, boundary: int, pause_s: float) -> None:
        self.life.pause_and_replace(boundary, pause_s)

    @precondition(lambda self: not self.life.trouble())
    @rule()
    def come_to_rest(self) -> None:
        """With facts and clock frozen, ticks soon do nothing: no plan reverses the one before. Who
        stands by does nothing at all."""
        reports = []
        for _ in range(10):
            report = self.life.tick()
            if report is None:
                return  # another leads
            reports.append(report)
            if report.quiet:
                before = self.life.store.load(now=self.life.now).revision
                assert self.life.standby.tick() is None, "two control planes lead"
                assert self.life.store.load(now=self.life.now).revision == before
                return
        raise AssertionError(f"never at rest: {reports}{self.life.story(None)}")

    # --- what must never be ---------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        broken = self.life.broken()
        assert broken == [], f"{broken}{self.life.story(None)}"

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # a life that failed already has said enough
                self.life.end()
                if LIVED:
                    with Path(LIVED).open("a") as file:
                        file.write(f"{self.life.now - NOW:.0f}\n")
        finally:
            self.life.close()


class AnyLifeInSql(AnyLife):
    """The same over SQLite."""

    def new_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        self.sql = SqlStore.open(f"sqlite:///{Path(self.folder.name) / 'life.db'}")
        return self.sql

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.sql.close()
            self.folder.cleanup()


def test_nobody_is_stopped_for_a_job_that_is_served_after_him() -> None:
    """A deadline without slack goes before a class: the urgent job would never get the slots."""
    life = Life(MemoryStore())
    terms = {
        "where": {"burst": "never"},
        "checkpoint": {"enabled": True, "interval": 60, "size": 0.1},
    }
    life.submit(30, due_in_m=10, resources={"nodes": 2, "gpus": 2}, **terms)
    life.live(60)
    life.submit(12, priority="urgent", resources={"nodes": 2}, **terms)
    life.live(480)
    told = [event for _, event in life.store.events(limit=10_000)]
    assert [e.words for e in told if e.kind == "run" and e.what == "stopping"] == []
    life.end()
    life.close()


def test_a_machine_that_vanishes_and_is_forgotten_at_once_takes_nothing_along() -> None:
    """Found by a soak: its node went while its run was still being given up."""
    life = Life(MemoryStore())
    for _ in range(2):
        life.submit(10, team="red", resources={"gpus": 2}, where={"burst": "never"})
    life.live(20)
    life.submit(3, team="red")
    life.live(75)
    life.cloud.end(life.running()[0], "ended by hand")
    life.world.settle()
    life.crash(4)
    assert life.broken() == []
    life.end()
    life.close()


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not SOAK,
        database=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Thousands of lines of trouble that is meant to be."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    log_to_stderr(level="info")


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = _settings(EXAMPLES if SOAK else 40, 60 if SOAK else 40)
TestAnyLife.pytestmark = [pytest.mark.timeout(0 if SOAK else 240)]

TestAnyLifeInSql = AnyLifeInSql.TestCase
TestAnyLifeInSql.settings = _settings(EXAMPLES // 10 if SOAK else 3, 60 if SOAK else 30)
TestAnyLifeInSql.pytestmark = [pytest.mark.timeout(0 if SOAK else 240)]
