"""The engine's server half over rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hybrid.agent.engine import AgentEngine, create, documents, master_port
from hybrid.agent.log_store import LogStore
from hybrid.agent.protocol import RunDocument, StopOrder
from hybrid.domain.ids import JobId, NodeId, RunId
from hybrid.domain.job import Checkpoint, StopCause
from hybrid.domain.job_spec import JobSpec, Resources
from hybrid.ports.engine import NodeReport
from hybrid.ports.errors import InvalidRequest
from hybrid.ports.store import EpochPassed
from tests.doubles.memory_mailbox import MemoryMailbox
from tests.doubles.node_server import POOL, an_order

SAVED = Checkpoint(seq=100_002, step=40, committed_at=5.0, size_bytes=9, commit_s=0.1)


def a_report(node: str, address: str = "") -> NodeReport:
    return NodeReport(
        id=NodeId(node),
        pool=POOL,
        hostname=f"{node}.rack",
        address=address,
        heard_at=0.0,
        run_lease_s=60.0,
    )


@pytest.fixture
def mailbox() -> MemoryMailbox:
    mailbox = MemoryMailbox()
    for node in ("n1", "n2"):
        mailbox.join(a_report(node), f"token of {node}", join_sha256=node, at=0.0)
    return mailbox


@pytest.fixture
def engine(mailbox: MemoryMailbox, tmp_path: Path) -> AgentEngine:
    return create(mailbox=mailbox, logs=LogStore(tmp_path), checkpoint_url="s3://bucket/ck")


def orders_of(mailbox: MemoryMailbox, node: str) -> list[RunDocument]:
    orders = mailbox.work(NodeId(node)).orders
    return [RunDocument.model_validate_json(order.document) for order in orders]


def test_starting_writes_one_order_per_rank_with_all_that_its_node_must_know(
    engine: AgentEngine, mailbox: MemoryMailbox
) -> None:
    spec = JobSpec(command=("train",), resources=Resources(nodes=2), env={"A": "1"})
    nodes = (a_report("n1", "10.0.0.1"), a_report("n2", "10.0.0.2"))
    engine.start(an_order(spec, attempt=2, checkpoint=SAVED, nodes=nodes, gpus=("GPU-a",)))
    (first,), (second,) = orders_of(mailbox, "n1"), orders_of(mailbox, "n2")
    assert (first.rank, second.rank, first.nodes) == (0, 1, 2)
    assert first.run_id == "job.2"
    assert first.spec == spec
    assert first.gpu_ids == ("GPU-a",)
    assert first.resume is not None
    assert (first.resume.seq, first.resume.step) == (100_002, 40)
    assert first.master_addr == second.master_addr == "10.0.0.1"
    assert first.master_port == second.master_port == master_port(RunId("job.2"))
    assert first.checkpoint_url == "s3://bucket/ck"


def test_without_an_address_the_master_goes_by_its_host_name() -> None:
    (document,) = documents(an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),)), "/ck")
    assert document.master_addr == "n1.rack"


def test_the_masters_port_follows_from_the_run_and_is_below_the_ephemeral_range() -> None:
    ports = {master_port(RunId(f"j{i}.1")) for i in range(500)}
    assert all(20_000 <= port < 30_000 for port in ports)
    assert len(ports) > 450
    assert master_port(RunId("j1.1")) == master_port(RunId("j1.1"))


def test_starting_again_changes_nothing(engine: AgentEngine, mailbox: MemoryMailbox) -> None:
    order = an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),))
    engine.start(order)
    before = mailbox.work(NodeId("n1"))
    engine.start(order)
    assert mailbox.work(NodeId("n1")) == before


def test_an_order_that_contradicts_itself_is_refused(engine: AgentEngine) -> None:
    good = an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),))
    other = an_order(JobSpec(command=("x",)), nodes=(a_report("n2"),))
    with pytest.raises(InvalidRequest, match="not those of its slots"):
        engine.start(replace(good, nodes=other.nodes))
    with pytest.raises(InvalidRequest, match="no checkpoint 7 to resume from"):
        engine.start(replace(good, run=replace(good.run, resume_seq=7)))


def test_a_stop_is_written_and_repeating_it_is_no_news(
    engine: AgentEngine, mailbox: MemoryMailbox
) -> None:
    run = an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),))
    engine.start(run)
    engine.stop(run.run.id, StopCause.RETURN, 30.0, 1)
    work = mailbox.work(NodeId("n1"))
    assert StopOrder.model_validate_json(work.orders[0].stop) == StopOrder(
        cause=StopCause.RETURN, grace_s=30.0
    )
    engine.stop(run.run.id, StopCause.RETURN, 30.0, 1)
    assert mailbox.work(NodeId("n1")) == work
    engine.stop(run.run.id, StopCause.CANCEL, -1.0, 1)
    stop = StopOrder.model_validate_json(mailbox.work(NodeId("n1")).orders[0].stop)
    assert stop == StopOrder(cause=StopCause.CANCEL, grace_s=0.0)


def test_an_acknowledged_run_has_no_orders_and_its_node_is_told(
    engine: AgentEngine, mailbox: MemoryMailbox
) -> None:
    order = an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),))
    engine.start(order)
    engine.acknowledge(order.run.id)
    work = mailbox.work(NodeId("n1"))
    assert (work.orders, work.acknowledged) == ((), ("job.1",))
    engine.stop(order.run.id, StopCause.CANCEL, 1.0, 1)  # nothing to stop, and no error


def test_a_former_leader_cannot_command(engine: AgentEngine, mailbox: MemoryMailbox) -> None:
    engine.cordon(NodeId("n1"), "drain", 5)
    with pytest.raises(EpochPassed):
        engine.uncordon(NodeId("n1"), 4)
    with pytest.raises(EpochPassed):
        engine.extend_lease(NodeId("n1"), 99.0, 4)
    with pytest.raises(EpochPassed):
        engine.start(an_order(JobSpec(command=("x",)), nodes=(a_report("n1"),), epoch=4))
    assert mailbox.work(NodeId("n1")).cordoned


def test_logs_are_read_from_the_servers_copy(engine: AgentEngine, tmp_path: Path) -> None:
    LogStore(tmp_path).append(JobId("j"), RunId("j.1"), 0, 0, b"hello", gap=False)
    assert b"".join(engine.logs(JobId("j"), RunId("j.1"), 0, offset=2)) == b"llo"


def test_nodes_and_ranks_are_those_of_the_mailbox(engine: AgentEngine) -> None:
    assert [node.id for node in engine.inventory()] == ["n1", "n2"]
    assert engine.list_runs() == ()
    assert engine.name == "agent"


def test_a_forgotten_node_is_not_listed_and_its_token_opens_nothing(
    engine: AgentEngine, mailbox: MemoryMailbox
) -> None:
    engine.forget(NodeId("n1"))
    assert [report.id for report in engine.inventory()] == ["n2"]
    assert mailbox.node_of("token of n1") is None
