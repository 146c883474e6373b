"""A storm: clouds that fail at random, a control plane that is killed again and again.

At the end nothing is left running in the clouds' own books, nobody was served twice or forgotten,
and the ledger has charged for every machine what its cloud's own instants say. ``make soak FULL=1``
launches 2,000 machines and kills the control plane 50 times; the ordinary suite has a squall.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrid.domain.ids import JobId
from hybrid.domain.job import JobState
from hybrid.simulation.drive import Control
from hybrid.store.sql_store import SqlStore
from tests.doubles.sim import _caps_passed, _gpus_held_twice, _jobs_running_twice, a_training
from tests.doubles.wire import (
    Clouds,
    assert_the_ledger_is_what_the_clouds_say,
    aws_pool,
    gcp_pool,
    two_clouds,
)

SOAK = bool(os.environ.get("HYBRID_SOAK"))
pytestmark = [
    pytest.mark.xdist_group("sandbox-cloud"),
    pytest.mark.timeout(0 if SOAK else 300),
]
LAUNCHES, KILLS, WAVE = (2_000, 50, 200) if SOAK else (20, 4, 8)
"""Jobs come in waves: the next when nothing is left of the one before, so that each job needs a
machine of its own."""
LAUNCHES = int(os.environ.get("HYBRID_STORM_LAUNCHES", LAUNCHES))
KILLS = int(os.environ.get("HYBRID_STORM_KILLS", KILLS))
SEED = int(os.environ.get("HYBRID_STORM_SEED", "0")) or (
    random.SystemRandom().randrange(1, 10**9) if SOAK else 7
)
STEP_S = 20.0
CALM_WITHIN_S = 3 * 3600.0

POLICY = """
budgets:
  - {name: all, limit_usd: 20000, period: lifetime}
priority_classes:
  normal: {value_per_hour: 40}
"""

EC2_FAULTS = (
    ("RunInstances", {"code": "InsufficientInstanceCapacity", "probability": 0.05}),
    ("RunInstances", {"code": "RequestLimitExceeded", "probability": 0.02}),
    ("RunInstances", {"code": "InternalError", "probability": 0.03}),
    ("RunInstances", {"execute_then_lose": True, "probability": 0.06}),
    ("TerminateInstances", {"code": "InternalError", "probability": 0.1}),
    ("TerminateInstances", {"execute_then_lose": True, "probability": 0.05}),
    ("DescribeInstances", {"code": "InternalError", "probability": 0.02}),
)
GCE_FAULTS = (
    ("instances.insert", {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "probability": 0.05}),
    ("instances.insert", {"code": "QUOTA_EXCEEDED", "probability": 0.01}),
    ("instances.insert", {"code": "rateLimitExceeded", "probability": 0.02}),
    ("instances.insert", {"code": "backendError", "probability": 0.03}),
    ("instances.insert", {"code": "SOMETHING_NEW", "probability": 0.02}),
    ("instances.insert", {"execute_then_lose": True, "probability": 0.06}),
    ("zoneOperations.wait", {"execute_then_lose": True, "probability": 0.1}),
    ("instances.delete", {"code": "backendError", "probability": 0.1}),
    ("instances.delete", {"execute_then_lose": True, "probability": 0.05}),
    ("instances.aggregatedList", {"code": "backendError", "probability": 0.05}),
    ("operations.aggregatedList", {"code": "backendError", "probability": 0.05}),
)


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Storm:
    """What happens next, drawn from one seed."""

    def __init__(self, clouds: Clouds, control: Control, seed: int) -> None:
        self.clouds, self.control = clouds, control
        self.draw = random.Random(seed)
        self.submitted = self.kills = 0
        self.told: Counter[str] = Counter()
        self._until_kill: int | None = None
        control.crash_point = self.boundary
        for provider in clouds.world.clouds.values():
            for name in ("launch", "terminate"):
                setattr(provider, name, self._both_sides(getattr(provider, name)))

    def boundary(self, _name: str = "") -> None:
        if self._until_kill is None:
            return
        self._until_kill -= 1
        if self._until_kill < 0:
            self._until_kill = None
            self.kills += 1
            raise Killed

    def _both_sides(self, call):
        def wrapped(*args):
            self.boundary()
            result = call(*args)
            self.boundary()
            return result

        return wrapped

    def begin(self) -> None:
        for action, rule in EC2_FAULTS:
            self.clouds.ec2.fault(action, times=None, **rule)
        for action, rule in GCE_FAULTS:
            self.clouds.gce.fault(action, times=None, **rule)

    def end(self) -> None:
        self.clouds.ec2.clear_faults()
        self.clouds.gce.clear_faults()

    def step(self, *, kill: bool) -> None:
        self.clouds.world.advance(STEP_S)
        self._misfortune()
        self.clouds.world.settle()
        self._until_kill = self.draw.randrange(0, 60) if kill else None
        try:
            self.control.tick()
        except Killed:
            self._reborn()
        self._until_kill = None

    def _reborn(self) -> None:
        dead = self.control.loop
        dead.tick.observer.close()
        dead.tick.actor.close()
        self.control.restart()

    def _misfortune(self) -> None:
        """People and clouds do what they like with a machine now and then."""
        living = self.clouds.living()
        if not living or self.draw.random() > 0.25:
            return
        machine = self.draw.choice(living)
        what = self.draw.choice(("take", "take", "end by hand", "stop by hand"))
        self.told[what] += 1
        ec2, gce = self.clouds.ec2, self.clouds.gce
        match what:
            case "take" if machine.market != "spot":
                return
            case "take" if machine.cloud == "aws":
                ec2.interrupt(machine.id, 0.0)
                while ec2.instance(machine.id).ended_at is None:
                    time.sleep(0.002)  # the sandbox takes it in a thread of its own
            case "take":
                gce.preempt(machine.id, float(self.draw.choice((0, 30))))
            case "end by hand" if machine.cloud == "aws":
                ec2.terminate(machine.id)
            case "end by hand":
                gce.delete(machine.id)
            case _ if machine.cloud == "aws":
                ec2.client("ec2").stop_instances(InstanceIds=[machine.id])
            case _:
                gce.stop(machine.id)

    def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            self.submitted += 1
            spec = a_training(self.draw.choice((1, 2, 3)), speeds={"a10g": 1.0, "l4": 1.0})
            self.control.submit(f"s{self.submitted:05d}", spec)

    def open(self) -> tuple[int, int]:
        """Jobs and claims that are not over, as they are stored."""
        world = self.control.store.load(now=self.clouds.clock.now())
        return len(world.jobs), len(world.claims)


def test_after_the_storm_nothing_runs_and_the_ledger_is_what_the_clouds_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("HYBRID_STORM_SEED", SEED)
    with (
        two_clouds(tmp_path, monkeypatch, seed=SEED, terminated_visible_s=900.0) as clouds,
        SqlStore.open(f"sqlite:///{tmp_path / 'storm.db'}") as store,
    ):
        control = Control(store, clouds.world, call_workers=8)
        control.apply_policy(POLICY)
        control.apply_pool(aws_pool(clouds.ec2))
        control.apply_pool(gcp_pool(clouds.gce))
        storm = Storm(clouds, control, SEED)
        storm.begin()
        while len(clouds.books()) < LAUNCHES or storm.kills < KILLS:
            if storm.open() == (0, 0):
                storm.submit(WAVE)
            launched = len(clouds.books())
            storm.step(kill=storm.kills * LAUNCHES < (launched + 1) * KILLS)
            assert storm.submitted < 10 * LAUNCHES + 10 * WAVE, (
                f"nothing is launched any more (seed {SEED})"
            )
        storm.end()
        calmed_at = clouds.clock.now()
        while storm.open() != (0, 0) or clouds.living():
            storm.step(kill=False)
            assert clouds.clock.now() - calmed_at < CALM_WITHIN_S, (
                f"something never ended (seed {SEED})"
            )
        control.loop.stop()
        assert list(_jobs_running_twice(control)) == []
        assert list(_gpus_held_twice(control)) == []
        assert list(_caps_passed(control)) == []
        _everybody_was_served_or_told(storm)
        assert_the_ledger_is_what_the_clouds_say(clouds, store)
        for provider in clouds.world.clouds.values():
            assert [m.id for m in provider.list_machines() if m.ended_at is None] == []


def _everybody_was_served_or_told(storm: Storm) -> None:
    for number in range(1, storm.submitted + 1):
        job = storm.control.store.job(JobId(f"s{number:05d}"))
        assert job is not None
        assert job.state is JobState.SUCCEEDED or job.history[-1].cause, job
