"""Gangs in the made-up world: they begin together, and end each rank for itself."""

from __future__ import annotations

import pytest

from hybrid.domain.ids import NodeId
from hybrid.domain.job import Checkpoint, JobState, StopCause
from hybrid.domain.run import RunState
from hybrid.ports.engine import RankPhase, RankReport, RunOrder
from hybrid.ports.errors import Gone, OutcomeUnknown
from hybrid.ports.store import EpochPassed
from hybrid.simulation.clock import SimClock
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.running import KILLED
from hybrid.simulation.world import node_report
from tests.doubles.build import NOW, a_job, a_node, a_run, a_slot, a_spec

WORK_S = 600.0
SAVES = {"enabled": True, "interval": 60, "size": 1}


class Town:
    """An engine with two nodes, and its clock."""

    def __init__(self) -> None:
        self.clock = SimClock(NOW)
        self.engine = SimEngine("agent", self.clock, lambda _job: WORK_S, stop_s=2.0)
        for name in ("n1", "n2"):
            self.engine.join(
                node_report(NodeId(name), "rack", "a10g", 1, "none", run_lease_s=300)  # type: ignore[arg-type]
            )

    def go_on(self, seconds: float) -> None:
        """Let time pass, second by second."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.engine.work(self.clock.now())

    def ranks(self) -> list[RankReport]:
        """What is told, by rank."""
        return sorted(self.engine.list_runs(), key=lambda rank: rank.rank)

    def silence(self, name: str, silent: bool = True) -> None:
        """Nobody hears the node, and it hears nobody."""
        self.engine.nodes[NodeId(name)].silent = silent


@pytest.fixture
def town() -> Town:
    return Town()


def an_order(
    *nodes: str,
    saves: bool = True,
    attempt: int = 1,
    epoch: int = 1,
    speed: float = 1.0,
    saved: Checkpoint | None = None,
    walltime: float = 3600,
    assigned_at: float = NOW,
) -> RunOrder:
    spec = a_spec(checkpoint=SAVES if saves else {}, walltime=walltime)
    slots = tuple(a_slot(name, f"{name}-gpu0") for name in nodes)
    run = a_run(
        attempt=attempt,
        state=RunState.ASSIGNED,
        slots=slots,
        speed=speed,
        assigned_at=assigned_at,
        resume_seq=None if saved is None else saved.seq,
    )
    job = a_job(spec=spec, state=JobState.PLACED, checkpoint=saved)
    nodes_ = tuple(a_node(name) for name in nodes)
    return RunOrder(run=run, job=job, nodes=nodes_, epoch=epoch)


def test_a_run_takes_its_work_over_its_speed(town: Town) -> None:
    town.engine.start(an_order("n1", speed=2.0))
    town.go_on(299)
    assert [rank.phase for rank in town.ranks()] == [RankPhase.RUNNING]
    town.go_on(1)
    (rank,) = town.ranks()
    assert (rank.phase, rank.exit_code, rank.ended_at) == (RankPhase.ENDED, 0, NOW + 300)


def test_an_order_is_begun_once_however_often_it_comes(town: Town) -> None:
    order = an_order("n1")
    for _ in range(3):
        town.engine.start(order)
    town.go_on(600)
    town.engine.acknowledge(order.run.id)
    town.engine.start(order)
    town.go_on(10)
    assert len(town.engine.lives) == 1
    assert town.ranks() == []


def test_an_order_waits_for_a_node_that_cannot_hear_but_not_for_ever(town: Town) -> None:
    town.silence("n1")
    town.engine.start(an_order("n1"))
    town.go_on(149)
    assert town.ranks() == []
    town.silence("n1", False)
    town.go_on(1)
    assert [rank.started_at for rank in town.ranks()] == [NOW + 150]


def test_an_order_older_than_half_the_run_lease_is_begun_by_nobody(town: Town) -> None:
    town.silence("n1")
    town.engine.start(an_order("n1"))
    town.go_on(151)
    town.silence("n1", False)
    town.go_on(10)
    assert town.engine.lives == []


def test_a_gang_works_only_when_its_last_rank_has_begun(town: Town) -> None:
    town.silence("n2")
    town.engine.start(an_order("n1", "n2"))
    town.go_on(100)
    assert [rank.rank for rank in town.ranks()] == [0]
    assert town.engine.lives[0].done_s(town.clock.now()) == 0.0
    town.silence("n2", False)
    town.go_on(601)
    assert [(rank.phase, rank.exit_code) for rank in town.ranks()] == [(RankPhase.ENDED, 0)] * 2


def test_a_run_that_saves_goes_on_from_its_last_save(town: Town) -> None:
    saved = Checkpoint(
        seq=3, step=200, committed_at=NOW - 9, size_bytes=1, commit_s=1.0, work_s=200.0
    )
    town.engine.start(an_order("n1", attempt=2, saved=saved))
    town.go_on(60)
    (rank,) = town.ranks()
    assert rank.checkpoint is not None
    assert (rank.checkpoint.seq, rank.checkpoint.step) == (4, 260)
    town.go_on(340)
    assert [rank.exit_code for rank in town.ranks()] == [0]


@pytest.mark.parametrize(("saves", "code"), [(True, 85), (False, KILLED)])
def test_a_run_that_is_stopped_saves_if_it_can(town: Town, saves: bool, code: int) -> None:
    order = an_order("n1", saves=saves)
    town.engine.start(order)
    town.go_on(30)
    town.engine.stop(order.run.id, StopCause.PREEMPT, 20.0, 1)
    assert [rank.phase for rank in town.ranks()] == [RankPhase.STOPPING]
    town.go_on(2)
    (rank,) = town.ranks()
    assert (rank.phase, rank.exit_code, rank.cause) == (RankPhase.ENDED, code, StopCause.PREEMPT)
    assert (rank.checkpoint is not None) is saves


def test_a_second_stop_is_only_ever_harder_and_sooner(town: Town) -> None:
    order = an_order("n1")
    town.engine.start(order)
    town.engine.stop(order.run.id, StopCause.CANCEL, 1.0, 1)
    town.engine.stop(order.run.id, StopCause.RETURN, 20.0, 1)
    town.go_on(1)
    (rank,) = town.ranks()
    assert (rank.ended_at, rank.cause) == (NOW + 1, StopCause.CANCEL)


def test_a_silent_node_kills_its_run_at_the_end_of_the_run_lease_and_tells_it_later(
    town: Town,
) -> None:
    town.engine.start(an_order("n1", saves=False))
    town.go_on(10)
    town.silence("n1")
    town.go_on(400)
    (rank,) = town.ranks()
    assert (rank.phase, rank.ended_at) == (RankPhase.RUNNING, None)  # what was said last
    town.silence("n1", False)
    town.go_on(1)
    (rank,) = town.ranks()
    assert (rank.ended_at, rank.exit_code, rank.cause) == (NOW + 310, KILLED, StopCause.LEASE)


def test_half_a_gang_that_is_alone_waits_and_cannot_save(town: Town) -> None:
    order = an_order("n1", "n2")
    town.engine.start(order)
    town.go_on(30)
    town.engine.lose(NodeId("n2"))
    town.go_on(600)
    first, second = town.ranks()
    assert [first.phase, second.phase] == [RankPhase.RUNNING, RankPhase.RUNNING]
    assert first.checkpoint is None
    town.engine.stop(order.run.id, StopCause.NODE_LOST, 5.0, 1)
    town.go_on(5)
    first, second = town.ranks()
    assert (first.phase, first.exit_code) == (RankPhase.ENDED, KILLED)
    assert second.phase is RankPhase.RUNNING  # nobody is left to say otherwise


def test_a_run_past_its_walltime_is_killed(town: Town) -> None:
    town.engine.start(an_order("n1", walltime=601, speed=0.5))
    town.go_on(700)
    (rank,) = town.ranks()
    assert (rank.ended_at, rank.cause) == (NOW + 601, StopCause.TIMEOUT)


def test_a_stop_that_finds_an_order_still_lying_there_comes_with_it(town: Town) -> None:
    order = an_order("n1", saves=False)
    town.silence("n1")
    town.engine.start(order)
    town.engine.stop(order.run.id, StopCause.CANCEL, 9.0, 1)
    town.silence("n1", False)
    town.go_on(1)
    (rank,) = town.ranks()
    assert (rank.phase, rank.exit_code, rank.cause) == (RankPhase.ENDED, KILLED, StopCause.CANCEL)


def test_a_node_obeys_nobody_who_led_before(town: Town) -> None:
    town.engine.extend_lease(NodeId("n1"), NOW + 60, 3)
    with pytest.raises(EpochPassed):
        town.engine.extend_lease(NodeId("n1"), NOW + 90, 2)
    with pytest.raises(EpochPassed):
        town.engine.start(an_order("n1", epoch=2))
    assert town.engine.nodes[NodeId("n1")].lease_until == NOW + 60
    assert town.engine.lives == []


def test_who_is_deaf_answers_nothing_and_who_is_not_there_is_gone(town: Town) -> None:
    with pytest.raises(Gone):
        town.engine.cordon(NodeId("nobody"), "", 1)
    town.engine.deaf = True
    for call in (town.engine.inventory, town.engine.list_runs):
        with pytest.raises(OutcomeUnknown):
            call()
