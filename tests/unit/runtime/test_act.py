"""Calls that are due, and the receipts they bring back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import MachineId, NodeId, RunId
from hybrid.domain.job import JobState, StopCause
from hybrid.domain.job_spec import Market
from hybrid.domain.node import NodeState
from hybrid.domain.run import RunState
from hybrid.ports.capacity import BootInfo
from hybrid.ports.engine import RunOrder
from hybrid.ports.errors import CapacityUnavailable, Gone, OutcomeUnknown
from hybrid.reconcile.effects import (
    AcknowledgeRun,
    ExtendLease,
    LaunchMachine,
    SetCordon,
    StartRun,
    StopRun,
    TerminateMachine,
)
from hybrid.runtime.act import Actor
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.world import node_report
from tests.doubles.build import NOW, a_burst_pool, a_claim, a_job, a_node, a_run, a_slot

ZONE, KIND = "us-east-1a", "g5.xlarge"


class Ports:
    """One engine with one node, one cloud, and who acts on them."""

    def __init__(self) -> None:
        self.clock = SimClock(NOW)
        self.cloud = SimCloud("aws", self.clock, {(KIND, market): 1_000_000 for market in Market})
        self.engine = SimEngine("agent", self.clock, lambda _job: 600.0)
        self.engine.join(node_report(NodeId("n1"), "rack", "a10g", 1, "none", run_lease_s=600))  # type: ignore[arg-type]
        self.told: list[str] = []
        self.actor = Actor(
            {"agent": self.engine},
            {"aws": self.cloud},
            self.clock,
            self._join_token,
            deadline_s=10,
        )

    def _join_token(self, claim_id: str) -> str:
        self.told.append(claim_id)
        return f"join-{claim_id}"

    def launch(self) -> LaunchMachine:
        """The launch of claim ``c1``."""
        claim = a_claim("c1", ClaimState.REQUESTED)
        pool = a_burst_pool().spec
        boot = BootInfo(installation="i", server_url="http://s", checkpoint_url="file:///c")
        request = self.cloud.prepare(claim, pool, boot)  # type: ignore[arg-type]
        return LaunchMachine(claim=a_claim("c1", ClaimState.REQUESTED, request=request))


def an_order(epoch: int = 1) -> RunOrder:
    run = a_run(state=RunState.ASSIGNED, slots=(a_slot("n1", "n1-gpu0"),))
    return RunOrder(run=run, job=a_job(state=JobState.PLACED), nodes=(a_node(),), epoch=epoch)


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    yield made
    made.actor.close()


def test_a_launch_brings_back_its_machine(ports: Ports) -> None:
    (receipt,) = ports.actor.act([ports.launch()], epoch=1)
    assert receipt.error is None
    assert receipt.machine is not None
    assert (receipt.machine.claim_id, receipt.at) == ("c1", NOW)
    assert ports.told == ["c1"]


def test_a_refusal_is_in_the_receipt_as_it_was_raised(ports: Ports) -> None:
    ports.cloud.trouble.empty.add((ZONE, KIND, Market.SPOT))
    (receipt,) = ports.actor.act([ports.launch()], epoch=1)
    assert isinstance(receipt.error, CapacityUnavailable)
    assert receipt.error.scope == "offer:cloud/us-east-1a/g5.xlarge/spot"


def test_a_lost_answer_is_unknown_and_the_repeat_finds_the_same_machine(ports: Ports) -> None:
    ports.cloud.trouble.lose = 1
    (first,) = ports.actor.act([ports.launch()], epoch=1)
    (second,) = ports.actor.act([ports.launch()], epoch=1)
    assert isinstance(first.error, OutcomeUnknown)
    assert second.machine is not None
    assert ports.cloud.launches == 1


def test_a_machine_is_ended_and_what_its_console_said_is_kept(ports: Ports) -> None:
    (launched,) = ports.actor.act([ports.launch()], epoch=1)
    assert launched.machine is not None
    effect = TerminateMachine(
        provider="aws", machine_id=launched.machine.id, claim=a_claim(), with_console=True
    )
    (receipt,) = ports.actor.act([effect], epoch=1)
    assert receipt.error is None
    assert "g5.xlarge" in receipt.console
    assert ports.cloud.running == ()


def test_a_console_that_cannot_be_had_keeps_no_machine_alive(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: MachineId) -> str:
        raise OutcomeUnknown("no console yet")

    monkeypatch.setattr(ports.cloud, "console", nothing)
    (launched,) = ports.actor.act([ports.launch()], epoch=1)
    assert launched.machine is not None
    effect = TerminateMachine(
        provider="aws", machine_id=launched.machine.id, claim=a_claim(), with_console=True
    )
    (receipt,) = ports.actor.act([effect], epoch=1)
    assert (receipt.error, receipt.console) == (None, "")
    assert ports.cloud.running == ()


def test_ending_what_is_gone_is_a_success_and_starting_on_it_is_not(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: MachineId) -> None:
        raise Gone("no such machine")

    monkeypatch.setattr(ports.cloud, "terminate", gone)
    end = TerminateMachine(provider="aws", machine_id=MachineId("m-9"), claim=None)
    order = an_order()
    ports.engine.nodes.clear()
    ended, started = ports.actor.act([end, StartRun(order=order)], epoch=1)
    assert ended.error is None
    assert isinstance(started.error, Gone)


def test_a_run_is_started_stopped_and_forgotten(ports: Ports) -> None:
    order = an_order()
    run_id = order.run.id
    ports.actor.act([StartRun(order=order)], epoch=1)
    (rank,) = ports.engine.list_runs()
    assert rank.run_id == run_id
    stop = StopRun(run_id=run_id, engine="agent", cause=StopCause.CANCEL, grace_s=5)
    ports.actor.act([stop], epoch=1)
    ports.clock.advance(5)
    ports.engine.work(ports.clock.now())
    (rank,) = ports.engine.list_runs()
    assert (rank.phase, rank.cause) == ("ended", StopCause.CANCEL)
    ports.actor.act([AcknowledgeRun(run_id=run_id, engine="agent")], epoch=1)
    assert ports.engine.list_runs() == ()


def test_a_stop_brings_first_what_may_never_have_come(ports: Ports) -> None:
    order = an_order()
    stop = StopRun(
        run_id=order.run.id, engine="agent", cause=StopCause.CANCEL, grace_s=0, order=order
    )
    ports.actor.act([stop], epoch=1)
    ports.engine.work(ports.clock.now())
    (rank,) = ports.engine.list_runs()
    assert rank.phase == "ended"


def test_commands_to_nodes_carry_the_epoch(ports: Ports) -> None:
    node = a_node(state=NodeState.CORDONED, cordon_cause="work")
    lease = ExtendLease(node_id=NodeId("n1"), engine="agent", claim_id=a_claim().id, until=NOW + 9)
    (extended,) = ports.actor.act([lease], epoch=5)
    assert extended.error is None
    assert ports.engine.nodes[NodeId("n1")].lease_until == NOW + 9
    for effect in (SetCordon(node=node, cordoned=True), SetCordon(node=node, cordoned=False)):
        (receipt,) = ports.actor.act([effect], epoch=4)
        assert "obeys epoch 5" in str(receipt.error)
        (receipt,) = ports.actor.act([effect], epoch=5)
        assert receipt.error is None


def test_what_no_port_is_configured_for_stays_due(ports: Ports) -> None:
    order = an_order()
    elsewhere = (
        TerminateMachine(provider="gcp", machine_id=MachineId("m-1"), claim=None),
        AcknowledgeRun(run_id=RunId("j1.1"), engine="slurm"),
    )
    receipts = ports.actor.act([*elsewhere, StartRun(order=order)], epoch=1)
    assert [receipt.effect.key for receipt in receipts] == ["start:j1.1"]


def test_a_call_that_does_not_answer_is_unknown(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    let_go = threading.Event()
    monkeypatch.setattr(ports.cloud, "terminate", lambda _: let_go.wait(20))
    hasty = Actor({}, {"aws": ports.cloud}, ports.clock, str, deadline_s=0.1)
    effect = TerminateMachine(provider="aws", machine_id=MachineId("m-1"), claim=None)
    (receipt,) = hasty.act([effect], epoch=1)
    let_go.set()
    assert isinstance(receipt.error, OutcomeUnknown)
    assert "no answer within" in str(receipt.error)
    hasty.close()


def test_who_leads_no_more_asks_for_no_machine(ports: Ports) -> None:
    epoch = [1]
    actor = Actor(
        {}, {"aws": ports.cloud}, ports.clock, str, deadline_s=10, loop_epoch=lambda: epoch[0]
    )
    epoch[0] = 2  # another process took over after this one had planned
    (receipt,) = actor.act([ports.launch()], epoch=1)
    assert isinstance(receipt.error, OutcomeUnknown)
    assert ports.cloud.machines == {}
    (receipt,) = actor.act([ports.launch()], epoch=2)
    assert receipt.machine is not None
    actor.close()
