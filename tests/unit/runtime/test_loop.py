"""Who leads, who stands by, and how the loop goes on after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from hybrid.domain.job import JobState
from hybrid.ports.store import EpochPassed, World
from hybrid.simulation.drive import SIM_PACE, Control
from hybrid.simulation.memory_store import MemoryStore
from tests.doubles.sim import a_training, the_job


def until(holds: Callable[[], bool], within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


def another(control: Control) -> Control:
    return Control(control.store, control.world, holder="other")


def test_the_second_stands_by_while_the_first_ones_lease_lasts(control: Control) -> None:
    control.tick()
    other = another(control)
    control.submit("j1", a_training())
    assert other.tick() is None
    assert control.world.engine.lives == []
    assert not other.loop.status().leads
    assert control.loop.status().leads
    other.loop.stop()


def test_the_second_takes_over_when_the_lease_has_lapsed_and_the_first_stands_by(
    control: Control,
) -> None:
    control.tick()
    other = another(control)
    control.submit("j1", a_training())
    control.world.advance(control.pace.loop_lease_s)
    assert other.tick() is not None
    assert other.loop.status().epoch == control.loop.status().epoch + 1
    assert control.tick() is None
    assert not control.loop.status().leads
    assert [run.order.epoch for run in control.world.engine.lives] == [2]
    other.loop.stop()


def test_a_leader_that_stops_gives_the_lease_back_at_once(control: Control) -> None:
    control.tick()
    other = another(control)
    control.loop.stop()
    assert other.tick() is not None
    other.loop.stop()


def test_a_leader_that_stood_still_in_the_middle_can_neither_commit_nor_command(
    control: Control,
) -> None:
    other = another(control)
    control.tick()
    control.submit("j1", a_training())
    control.tick()
    control.submit("j2", a_training(where={"pools": ["cloud"]}))
    revisions: list[int] = []

    def stand_still(name: str) -> None:
        if name == "act" and not revisions:
            control.world.advance(control.pace.loop_lease_s)
            assert other.tick() is not None
            # the other stops what the first is about to start a second time
            control.world.engine.nodes["n1"].epoch = other.loop.status().epoch
            revisions.append(control.store.load(now=0.0).revision)

    control.crash_point = stand_still
    with pytest.raises(EpochPassed):
        control.tick()
    assert control.store.load(now=0.0).revision == revisions[0]
    assert {run.order.epoch for run in control.world.engine.lives} == {1}
    assert control.world.clouds["aws"].launches == 1
    other.loop.stop()


def test_a_leader_that_leads_again_reads_everything_anew(control: Control) -> None:
    control.tick()
    other = another(control)
    control.world.advance(control.pace.loop_lease_s)
    other.tick()
    control.tick()
    kept = control.loop.tick.world
    control.world.advance(other.pace.loop_lease_s)
    assert control.tick() is not None
    assert control.loop.status().epoch == 3
    assert control.loop.tick.world is not kept
    other.loop.stop()


class Trouble(MemoryStore):
    """A store that fails when told to, and says when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.asked_at: list[float] = []

    def load(self, *, now: float, since: int | None = None) -> World:
        if threading.current_thread().name == "loop":
            self.asked_at.append(time.monotonic())
            if self.failures > 0:
                self.failures -= 1
                raise OSError("the disk is full")
        return super().load(now=now, since=since)


def in_a_thread(control: Control, tick_s: float) -> tuple[Control, Trouble]:
    store = Trouble()
    made = Control(store, control.world, pace=replace(SIM_PACE, tick_s=tick_s))
    made.apply_pool({"kind": "local", "name": "rack"})
    return made, store


def test_a_failing_tick_is_repeated_ever_more_slowly_until_it_works(control: Control) -> None:
    made, store = in_a_thread(control, tick_s=0.1)
    store.failures = 3
    made.submit("j1", a_training())
    made.loop.start()
    assert until(lambda: made.loop.status().failing == 3)
    assert until(lambda: made.loop.status().failing == 0)
    gaps = [later - sooner for sooner, later in pairwise(store.asked_at[:4])]
    assert all(gap >= least for gap, least in zip(gaps, (0.19, 0.39, 0.79), strict=True))
    assert until(lambda: the_job(made, "j1").state is JobState.PLACED)
    assert made.loop.status().alive
    made.loop.stop()
    assert not made.loop.status().alive


def test_a_poke_does_not_wait_for_the_timer(control: Control) -> None:
    made, _ = in_a_thread(control, tick_s=60.0)
    made.loop.start()
    assert until(lambda: made.loop.status().last_tick_at is not None)
    made.submit("j1", a_training())
    made.loop.poke()
    assert until(lambda: the_job(made, "j1").state is JobState.PLACED)
    made.loop.stop()


def test_a_swarm_of_pokes_is_not_a_swarm_of_ticks(control: Control) -> None:
    made, _ = in_a_thread(control, tick_s=60.0)
    made.loop.start()
    assert until(lambda: made.loop.status().last_tick_at is not None)
    begun = time.monotonic()
    while time.monotonic() - begun < 0.5:
        made.loop.poke()
        time.sleep(0.001)
    assert len(made.loop.reports) <= 12  # at least 50 ms lie between two
    made.loop.stop()


def test_a_loop_that_is_deposed_in_its_thread_stands_by(control: Control) -> None:
    made, store = in_a_thread(control, tick_s=0.05)
    deposed = threading.Event()

    def depose(name: str) -> None:
        if name == "commit" and not deposed.is_set():
            made.world.clock.advance(made.pace.loop_lease_s)
            lease = store.acquire_loop("other", now=made.world.clock.now(), ttl_s=1e9)
            assert lease is not None
            deposed.set()

    made.crash_point = depose
    made.submit("j1", a_training())
    made.loop.start()
    assert deposed.wait(20)
    assert until(lambda: not made.loop.status().leads)
    assert made.loop.status().failing == 0
    assert the_job(made, "j1").state is JobState.PENDING
    made.loop.stop()
