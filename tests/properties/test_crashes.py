"""Kill the control plane at every effect boundary: no machine leaks, no job runs twice or is lost.

A boundary is the moment before and after every port call, and before every commit. A bounded
scenario is run once to count them, and then once for each, killed there and begun again from the
store alone: all of them over the store in memory, and a part of them over SQLite.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid.domain.event import Event
from hybrid.domain.job import JobState
from tests.doubles.sim import a_training, an_installation, broken_promises, quiet, the_job

STRIDE = 1 if os.environ.get("HYBRID_SOAK") else 12
"""Every so many-th boundary is tried over SQLite as well."""


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Boundaries:
    """Counts effect boundaries, and kills at one."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def pass_one(self, _name: str = "") -> None:
        """A boundary is reached."""
        with self._lock:
            here = self.count
            self.count += 1
        if here == self._kill_at:
            raise Killed

    def around(self, port: Any, names: tuple[str, ...]) -> None:
        """Make every named call of a port two boundaries: before it, and after the deed."""
        for name in names:
            setattr(port, name, self._both_sides(getattr(port, name)))

    def _both_sides(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.pass_one()
            result = call(*args, **kwargs)
            self.pass_one()
            return result

        return wrapped


def live_through(folder: Path | None, boundaries: Boundaries) -> list[Event]:
    """Three jobs, one GPU at home, a cloud that loses an answer and takes a machine back."""
    with an_installation(folder) as control:
        world, cloud = control.world, control.world.clouds["aws"]
        cloud.trouble.lose = 1
        boundaries.around(cloud, ("launch", "terminate"))
        boundaries.around(world.engine, ("start", "stop", "acknowledge", "extend_lease"))
        control.crash_point = boundaries.pass_one
        for name in ("j1", "j2", "j3"):
            control.submit(name, a_training(8))
        interrupted = False
        for _ in range(160):
            world.advance(20)
            for machine in cloud.running:
                if not interrupted and world.clock.now() - machine.launched_at > 180:
                    cloud.announce(machine.id, 120)
                    interrupted = True
            try:
                control.tick()
            except Killed:
                control.restart()
            assert broken_promises(control) == []
            if quiet(control):
                break
        assert quiet(control), "something never ended"
        assert [the_job(control, name).state for name in ("j1", "j2", "j3")] == [
            JobState.SUCCEEDED
        ] * 3
        assert cloud.running == ()
        (balance,) = control.store.balances(now=world.clock.now())
        assert balance.held_micros == 0
        assert balance.charged_micros == cloud.bill_micros()
        return [event for _, event in control.store.events()]


def test_the_scenario_bursts_is_interrupted_and_ends(tmp_path: Path) -> None:
    boundaries = Boundaries()
    events = live_through(tmp_path, boundaries)
    told = [event.words for event in events if event.kind == "claim"]
    assert any(words.startswith("will be taken") for words in told)
    stops = [event.words for event in events if event.what == "stopping"]
    assert "the provider takes its machine in 2m" in stops
    assert boundaries.count > 60


@pytest.mark.parametrize("part", range(2))
def test_a_kill_at_any_boundary_loses_nothing_and_does_nothing_twice(part: int) -> None:
    counting = Boundaries()
    live_through(None, counting)
    for boundary in range(part, counting.count, 2):
        live_through(None, Boundaries(kill_at=boundary))


@pytest.mark.parametrize("part", range(2))
def test_a_kill_loses_nothing_that_is_written_to_disk_either(tmp_path: Path, part: int) -> None:
    counting = Boundaries()
    live_through(None, counting)
    for boundary in range(part, counting.count, 2 * STRIDE):
        folder = tmp_path / str(boundary)
        folder.mkdir()
        live_through(folder, Boundaries(kill_at=boundary))
