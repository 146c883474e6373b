"""Who may say what to the server, and what is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrid.agent.bell import Bell
from hybrid.agent.desk import (
    DeskTerms,
    NodeDesk,
    ProtocolRefusal,
    job_of_run,
    node_id_of_claim,
    sha256_of,
)
from hybrid.agent.engine import AgentEngine
from hybrid.agent.log_store import BadName, LogStore
from hybrid.agent.protocol import (
    HeartbeatRequest,
    Inventory,
    JoinRequest,
    WireGpu,
    WireProgress,
    WireRank,
    WireReading,
)
from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.ports.engine import RankPhase
from hybrid.ports.mailbox import NodeToken
from tests.doubles.build import parted
from tests.doubles.memory_mailbox import MemoryMailbox
from tests.doubles.node_server import POOL, Tokens, an_order

TOKEN = "the node's own"
INVENTORY = Inventory(hostname="box", cpus=8, memory_gib=64, boot_id="b1")


class SetClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at


class Office:
    """A desk with everything around it."""

    def __init__(self, folder: Path) -> None:
        self.mailbox = MemoryMailbox()
        self.gate = Tokens()
        self.clock = SetClock()
        self.logs = LogStore(folder)
        self.pokes = 0
        self.desk = NodeDesk(
            self.mailbox,
            self.gate,
            self.logs,
            self.clock,
            bell=Bell(),
            terms=DeskTerms(run_lease_s=60.0),
            changed=self._poke,
        )
        self.engine = AgentEngine(self.mailbox, self.logs, checkpoint_url="/ckpt")

    def _poke(self) -> None:
        self.pokes += 1

    def join(self, node: str = "n1", token: str = TOKEN, join: str = "join-1") -> NodeToken:
        self.gate.known.setdefault(join, (POOL, None))
        self.desk.join(a_request(node, token), join)
        return self.desk.authenticate(token, node)

    def order(self, job: str, node: str = "n1") -> str:
        report = next(each for each in self.mailbox.nodes() if each.id == node)
        order = an_order(JobSpec(command=("true",)), job=job, nodes=(report,))
        self.engine.start(order)
        return order.run.id


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def a_request(node: str = "n1", token: str = TOKEN, **fields: object) -> JoinRequest:
    defaults: dict[str, object] = {
        "node_id": node,
        "pool": "rack",
        "token_sha256": sha256_of(token),
        "inventory": INVENTORY,
    }
    return JoinRequest.model_validate({**defaults, **fields})


def a_beat(*ranks: WireRank, **fields: object) -> HeartbeatRequest:
    defaults: dict[str, object] = {"sent_boottime_s": 5.0, "inventory": INVENTORY, "ranks": ranks}
    return HeartbeatRequest.model_validate({**defaults, **fields})


def a_rank(run: str, phase: RankPhase = RankPhase.RUNNING, **fields: object) -> WireRank:
    return WireRank.model_validate({"run_id": run, "rank": 0, "phase": phase, **fields})


def refusal_of(office: Office, request: JoinRequest, token: str) -> tuple[int, str]:
    with pytest.raises(ProtocolRefusal) as caught:
        office.desk.join(request, token)
    return caught.value.status, caught.value.code


# --- joining -----------------------------------------------------------------------------------


def test_joining_makes_a_node_of_the_tokens_pool(office: Office) -> None:
    answer = office.desk.join(a_request(), "join-1")
    assert (answer.node_id, answer.pool, answer.claim_id) == ("n1", "rack", None)
    assert (answer.run_lease_s, answer.server_at) == (60.0, 1_000.0)
    (node,) = office.mailbox.nodes()
    assert (node.id, node.hostname, node.cpus, node.run_lease_s) == ("n1", "box", 8, 60.0)
    assert office.pokes == 1


def test_joining_again_with_the_same_token_is_the_same_join(office: Office) -> None:
    assert office.desk.join(a_request(), "join-1") == office.desk.join(a_request(), "join-1")
    assert len(office.mailbox.nodes()) == 1


def test_a_used_join_token_and_a_taken_node_id_are_refused(office: Office) -> None:
    office.join()
    assert refusal_of(office, a_request("n2", "other"), "join-1") == (409, "join_token_used")
    office.gate.known["join-2"] = (POOL, None)
    assert refusal_of(office, a_request("n1", "other"), "join-2") == (409, "join_token_used")


def test_a_missing_an_unknown_and_a_foreign_join_token_are_refused(office: Office) -> None:
    assert refusal_of(office, a_request(), "") == (401, "join_token_missing")
    assert refusal_of(office, a_request(), "guess") == (401, "join_unknown_token")
    office.gate.known["other"] = (PoolName("other"), None)
    assert refusal_of(office, a_request(), "other") == (401, "join_wrong_pool")


def test_the_machine_of_a_claim_gets_the_claims_node_id_whatever_it_proposes(
    office: Office,
) -> None:
    office.gate.known["c"] = (POOL, ClaimId("c-j-1-0-0"))
    answer = office.desk.join(a_request("n1", claim_id="c-j-1-0-0"), "c")
    assert answer.node_id == node_id_of_claim("c-j-1-0-0") == "n-c-j-1-0-0"
    assert office.mailbox.nodes()[0].claim_id == "c-j-1-0-0"


def test_an_owned_machine_cannot_take_the_node_id_of_a_claim(office: Office) -> None:
    assert refusal_of(office, a_request("n-c-j-1-0-0"), "join-1") == (403, "node_id_reserved")


# --- speaking ----------------------------------------------------------------------------------


def test_a_node_speaks_for_itself_only(office: Office) -> None:
    office.join()
    office.join("n2", "another", "join-2")
    for token, node, status in (("", "n1", 401), ("wrong", "n1", 401), ("another", "n1", 403)):
        with pytest.raises(ProtocolRefusal) as caught:
            office.desk.authenticate(token, node)
        assert caught.value.status == status


def test_a_heartbeat_is_kept_with_the_time_of_its_receipt_and_the_longer_lease(
    office: Office,
) -> None:
    who = office.join()
    office.clock.at = 2_000.0
    beat = a_beat(run_lease_s=600.0, notice_at=2_100.0, rebalance_at=1_900.0)
    answer = office.desk.heartbeat(who, beat)
    assert (answer.sent_boottime_s, answer.run_lease_s, answer.server_at) == (5.0, 60.0, 2_000.0)
    (node,) = office.mailbox.nodes()
    assert (node.heard_at, node.run_lease_s, node.notice_at) == (2_000.0, 600.0, 2_100.0)
    assert node.rebalance_at == 1_900.0


def test_a_node_cannot_say_that_it_belongs_to_another_pool_or_claim(office: Office) -> None:
    who = office.join()
    office.desk.heartbeat(who, a_beat())
    assert (office.mailbox.nodes()[0].pool, office.mailbox.nodes()[0].claim_id) == ("rack", None)


def test_reports_of_runs_that_the_node_was_not_given_are_not_believed(office: Office) -> None:
    office.join()
    thief = office.join("n2", "another", "join-2")
    run = office.order("j1", "n1")
    answer = office.desk.heartbeat(thief, a_beat(a_rank(run, RankPhase.ENDED, exit_code=0)))
    assert office.mailbox.ranks() == ()
    assert answer.acknowledged == (run,)  # it may forget what is none of its business


def test_the_end_of_a_run_is_acknowledged_once_it_has_been_applied(office: Office) -> None:
    who = office.join()
    run = office.order("j1")
    ended = a_beat(a_rank(run, RankPhase.ENDED, exit_code=3, tail="boom"))
    assert office.desk.heartbeat(who, ended).acknowledged == ()
    (rank,) = office.mailbox.ranks()
    assert (rank.node_id, rank.exit_code, rank.tail) == ("n1", 3, "boom")
    office.engine.acknowledge(rank.run_id)
    assert office.desk.heartbeat(who, ended).acknowledged == (run,)


def test_news_poke_the_loop_and_silence_and_progress_do_not(office: Office) -> None:
    who = office.join()
    run = office.order("j1")
    office.pokes = 0
    office.desk.heartbeat(who, a_beat(a_rank(run)))
    assert office.pokes == 1
    step = WireProgress(step=4, total=9, at=1.0)
    office.desk.heartbeat(who, a_beat(a_rank(run, progress=step)))
    assert office.pokes == 1
    office.desk.heartbeat(who, a_beat(a_rank(run, RankPhase.STOPPING, cause=StopCause.DRAIN)))
    office.desk.heartbeat(who, a_beat(notice_at=1_500.0))
    assert office.pokes == 3


def test_a_node_that_was_forgotten_is_told_so(office: Office) -> None:
    who = office.join()
    office.mailbox.forget(NodeId("n1"))
    with pytest.raises(ProtocolRefusal) as caught:
        office.desk.heartbeat(who, a_beat())
    assert (caught.value.status, caught.value.code) == (401, "node_forgotten")


def test_leaving_marks_the_node_and_wakes_the_loop(office: Office) -> None:
    who = office.join()
    office.pokes = 0
    office.desk.leave(who)
    assert office.mailbox.nodes()[0].left
    assert office.pokes == 1


def test_the_last_readings_of_each_node_are_kept_with_their_time(office: Office) -> None:
    who = office.join()
    reading = WireReading(gpu_id="GPU-0", utilization=0.5, power_w=300.0)
    office.desk.heartbeat(who, a_beat(telemetry=(reading,)))
    at, (kept,) = office.desk.telemetry()[NodeId("n1")]
    assert (at, kept.gpu_id, kept.utilization, kept.power_w) == (1_000.0, "GPU-0", 0.5, 300.0)
    office.desk.leave(who)
    assert office.desk.telemetry() == {}


# --- listening ---------------------------------------------------------------------------------


def test_work_names_orders_stops_and_what_is_left_of_the_claims_lease(office: Office) -> None:
    who = office.join()
    run = office.order("j1")
    office.engine.stop(RunId(run), StopCause.PREEMPT, 12.0, 1)
    office.engine.extend_lease(NodeId("n1"), 1_090.0, 1)
    office.engine.cordon(NodeId("n1"), "maintenance", 1)
    office.clock.at = 1_030.0
    work = office.desk.work(who)
    (order,) = work.orders
    assert (order.run_id, order.rank, order.epoch) == (run, 0, 1)
    assert order.document.spec == JobSpec(command=("true",))
    assert order.document.checkpoint_url == "/ckpt"
    assert order.stop is not None
    assert (order.stop.cause, order.stop.grace_s) == (StopCause.PREEMPT, 12.0)
    assert (work.epoch, work.cordoned, work.lease_remaining_s) == (1, True, 60.0)
    office.engine.uncordon(NodeId("n1"), 1)
    assert not office.desk.work(who).cordoned


def test_output_is_taken_only_for_runs_of_the_node(office: Office) -> None:
    who = office.join()
    run = office.order("j1")
    assert office.desk.take_log(who, run, 0, 0, b"hi\n", gap=False).offset == 3
    for other, rank in (("j2.1", 0), (run, 1)):
        with pytest.raises(ProtocolRefusal) as caught:
            office.desk.take_log(who, other, rank, 0, b"hi\n", gap=False)
        assert (caught.value.status, caught.value.code) == (404, "no_such_run")


def test_a_full_disk_of_the_server_is_told_as_such(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = office.join()
    run = office.order("j1")

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(office.logs, "append", full)
    with pytest.raises(ProtocolRefusal) as caught:
        office.desk.take_log(who, run, 0, 0, b"hi", gap=False)
    assert (caught.value.status, caught.value.code) == (507, "log_not_kept")


def test_the_job_of_a_run_is_read_from_its_id() -> None:
    assert job_of_run("j-7.b.12") == "j-7.b"
    for text in ("j1", "j1.", ".1", "j1.x"):
        with pytest.raises(BadName):
            job_of_run(text)


def test_a_matrix_of_links_fits_its_gpus() -> None:
    gpu = WireGpu(id="GPU-0", index=0, model="h100", memory_gib=80)
    with pytest.raises(ValueError, match="links_gbps has 2 rows, and there are 1 gpus"):
        Inventory(hostname="box", gpus=(gpu,), links_gbps=((0.0, 1.0), (1.0, 0.0)))
    with pytest.raises(ValueError, match="two gpus have one id"):
        Inventory(hostname="box", gpus=(gpu, gpu))


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (((0.0, 1.0, 1.0), (1.0, 0.0, 1.0)), "link between g0 and device 2: there is no device 2"),
        (((0.0, 1.0), (1.0,)), "link between g1 and g1: is missing"),
        (((0.0, -1.0), (-1.0, 0.0)), "link between g0 and g1: -1 is negative"),
    ],
)
def test_links_that_cannot_be_are_refused_with_the_pair_named(
    links: tuple[tuple[float, ...], ...], words: str
) -> None:
    gpus = tuple(WireGpu(id=f"g{i}", index=i, model="l4", memory_gib=22) for i in range(2))
    with pytest.raises(ValueError, match=words):
        Inventory(hostname="box", gpus=gpus, links_gbps=links)


def test_parted_gpus_travel_as_they_are_and_older_agents_tell_none() -> None:
    told = parted("n1")
    sent = Inventory(
        hostname="box",
        gpus=tuple(WireGpu.of(gpu) for gpu in told["gpus"]),
        parted=told["parted"],
    )
    heard = Inventory.model_validate_json(sent.model_dump_json())
    assert tuple(gpu.to_domain() for gpu in heard.gpus) == told["gpus"]
    assert heard.parted == told["parted"]
    older = json.loads(sent.model_dump_json())
    del older["parted"]
    for gpu in older["gpus"]:
        del gpu["mig"]
    heard = Inventory.model_validate(older)
    assert heard.parted == ()
    assert [gpu.to_domain().mig for gpu in heard.gpus] == [None, None]


def test_an_order_that_lay_too_long_is_not_to_be_begun_any_more(office: Office) -> None:
    who = office.join()
    office.order("j1")
    (order,) = office.desk.work(who).orders
    begin = []
    for age_s in (0.0, 30.0, 30.1):  # half of the run lease of 60 s
        office.clock.at = order.document.assigned_at + age_s
        (order,) = office.desk.work(who).orders
        begin.append(order.begin)
    assert begin == [True, True, False]
