"""Rows between the server and the nodes: levels, said more than once, applied once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.domain.job import Progress
from hybrid.ports.access import JoinToken
from hybrid.ports.engine import RankPhase
from hybrid.ports.errors import Gone
from hybrid.ports.mailbox import NodeOrder, NodeToken
from hybrid.ports.store import EpochPassed
from tests.contract.store.conftest import Place, WholeStore
from tests.doubles.build import NOW, a_node_report, a_rank, an_ended_rank, parted

NEEDS_EVERY_PORT = True

N1, N2 = NodeId("n1"), NodeId("n2")


def join(store: WholeStore, *nodes: str) -> None:
    for node in nodes:
        report = a_node_report(node)
        assert store.join(report, f"token-{node}", join_sha256=f"join-{node}", at=NOW)


def an_order(run: str = "j1.1", rank: int = 0, node: str = "n1", epoch: int = 0) -> NodeOrder:
    return NodeOrder(
        run_id=RunId(run),
        rank=rank,
        node_id=NodeId(node),
        epoch=epoch,
        document=f'{{"run": "{run}"}}',
    )


# --- joining -----------------------------------------------------------------------------------


def test_a_node_that_joined_is_known_by_its_token(store: WholeStore) -> None:
    report = a_node_report("n1", claim_id=ClaimId("c1"))
    assert store.join(report, "token", join_sha256="join", at=NOW)
    assert store.node_of("token") == NodeToken(
        node_id=N1, pool=PoolName("rack"), claim_id=ClaimId("c1")
    )
    assert store.node_of("another") is None
    assert store.nodes() == (report,)


def test_a_report_of_parted_gpus_is_read_as_it_was_sent(store: WholeStore) -> None:
    report = a_node_report("n1", **parted("n1"))
    assert store.join(report, "token", join_sha256="join", at=NOW)
    assert store.nodes() == (report,)


def test_a_join_token_lets_one_node_in_once(store: WholeStore) -> None:
    assert store.join(a_node_report("n1"), "token-1", join_sha256="join", at=NOW)
    assert not store.join(a_node_report("n2"), "token-2", join_sha256="join", at=NOW)
    assert not store.join(a_node_report("n2"), "token-1", join_sha256="join", at=NOW)
    assert store.node_of("token-2") is None
    assert [node.id for node in store.nodes()] == ["n1"]


def test_a_join_whose_answer_was_lost_may_be_repeated(store: WholeStore) -> None:
    for _ in range(3):
        assert store.join(a_node_report("n1"), "token", join_sha256="join", at=NOW)
    assert len(store.nodes()) == 1


def test_a_node_id_is_not_taken_over_with_another_join_token(store: WholeStore) -> None:
    join(store, "n1")
    assert not store.join(a_node_report("n1"), "thief", join_sha256="fresh", at=NOW)
    assert store.node_of("thief") is None
    assert store.join(a_node_report("n2"), "token-2", join_sha256="fresh", at=NOW)


def test_a_node_id_is_not_taken_over_for_another_pool_or_claim(store: WholeStore) -> None:
    join(store, "n1")
    for other in ({"pool": PoolName("cloud")}, {"claim_id": ClaimId("c9")}):
        report = a_node_report("n1", **other)
        assert not store.join(report, "token-n1", join_sha256="join-n1", at=NOW)


def test_a_kept_join_token_is_marked_used_by_joining(store: WholeStore) -> None:
    store.add_join_token(JoinToken(id="jt1", sha256="join", pool=PoolName("rack"), created_at=NOW))
    assert store.join(a_node_report("n1"), "token", join_sha256="join", at=NOW + 5)
    token = store.find_join_token("join")
    assert token is not None
    assert (token.used_by, token.used_at, token.valid(NOW + 6)) == ("n1", NOW + 5, False)


@pytest.mark.parametrize(
    "fields", [{"revoked": True}, {"expires_at": NOW}, {"pool": PoolName("cloud")}]
)
def test_a_join_token_that_is_not_good_opens_nothing(
    store: WholeStore, fields: dict[str, object]
) -> None:
    token = JoinToken(id="jt1", sha256="join", pool=PoolName("rack"), created_at=NOW - 60)
    store.add_join_token(replace(token, **fields))
    assert not store.join(a_node_report("n1"), "token", join_sha256="join", at=NOW)
    assert store.nodes() == ()


def test_of_many_who_join_at_once_with_one_token_one_gets_in(place: Place) -> None:
    stores = [place.open() for _ in range(2)]
    together = Barrier(8)

    def enter(i: int) -> bool:
        together.wait(timeout=30)
        report = a_node_report(f"n{i}")
        return stores[i % 2].join(report, f"token-{i}", join_sha256="join", at=NOW)

    with ThreadPoolExecutor(8) as threads:
        let_in = list(threads.map(enter, range(8)))
    assert let_in.count(True) == 1
    assert len(stores[0].nodes()) == 1


# --- heartbeats --------------------------------------------------------------------------------


def test_heartbeats_do_not_change_what_the_loop_loads(store: WholeStore) -> None:
    before = store.load(now=NOW)
    join(store, "n1")
    store.heard(a_node_report(), (a_rank(),), at=NOW + 1)
    assert store.load(now=NOW) == before


def test_a_heartbeat_replaces_what_the_node_said_before(store: WholeStore) -> None:
    join(store, "n1")
    report = a_node_report("n1", address="10.0.0.7", left=True, heard_at=NOW + 7)
    assert store.heard(report, (), at=NOW + 7) == ()
    assert store.nodes() == (report,)


def test_who_a_node_is_does_not_change_by_what_it_says(store: WholeStore) -> None:
    join(store, "n1")
    store.heard(a_node_report("n1", pool="cloud", claim_id="c1"), (), at=NOW + 1)
    (node,) = store.nodes()
    assert (node.pool, node.claim_id) == ("rack", None)


def test_a_heartbeat_that_was_overtaken_does_not_turn_time_back(store: WholeStore) -> None:
    join(store, "n1")
    store.heard(a_node_report("n1", address="new"), (an_ended_rank(),), at=NOW + 10)
    store.heard(a_node_report("n1", address="old"), (a_rank(),), at=NOW + 5)
    (node,) = store.nodes()
    assert (node.address, node.heard_at) == ("new", NOW + 10)
    assert [rank.phase for rank in store.ranks()] == [RankPhase.ENDED]


def test_nobody_speaks_for_a_node_that_has_not_joined(store: WholeStore) -> None:
    with pytest.raises(Gone):
        store.heard(a_node_report("n1"), (), at=NOW)


def test_ranks_are_kept_until_they_are_acknowledged(store: WholeStore) -> None:
    join(store, "n1")
    progress = Progress(step=5, total=10, at=NOW)
    store.put_orders((an_order(),))
    store.heard(a_node_report(), (a_rank(progress=progress),), at=NOW)
    assert store.ranks() == (a_rank(progress=progress),)
    ended = an_ended_rank(code=85, tail="\0 the end")
    store.heard(a_node_report(), (ended,), at=NOW + 1)
    store.heard(a_node_report(), (), at=NOW + 2)
    assert store.ranks() == (ended,)
    store.acknowledge(RunId("j1.1"))
    assert store.ranks() == ()
    assert store.heard(a_node_report(), (ended,), at=NOW + 3) == ("j1.1",)
    assert store.ranks() == ()


def test_a_rank_that_its_node_no_longer_knows_is_dropped_unless_it_had_ended(
    store: WholeStore,
) -> None:
    join(store, "n1")
    store.heard(a_node_report(), (a_rank("j1.1"), an_ended_rank("j2.1")), at=NOW)
    store.heard(a_node_report(), (), at=NOW + 1)
    assert [rank.run_id for rank in store.ranks()] == ["j2.1"]


def test_what_one_node_says_does_not_replace_what_another_said(store: WholeStore) -> None:
    join(store, "n1", "n2")
    store.heard(a_node_report("n1"), (a_rank(node="n1"),), at=NOW)
    store.heard(a_node_report("n2"), (an_ended_rank(node="n1"),), at=NOW)
    assert [(rank.node_id, rank.phase) for rank in store.ranks()] == [
        ("n1", RankPhase.RUNNING),
        ("n2", RankPhase.ENDED),
    ]


# --- work --------------------------------------------------------------------------------------


def test_orders_reach_their_nodes_rank_by_rank(store: WholeStore) -> None:
    join(store, "n1", "n2")
    store.put_orders((an_order(rank=0), an_order(rank=1, node="n2")))
    assert store.work(N1).orders == (an_order(rank=0),)
    assert store.work(N2).orders == (an_order(rank=1, node="n2"),)


def test_a_node_that_has_not_joined_has_no_work(store: WholeStore) -> None:
    work = store.work(N1)
    assert (work.revision, work.orders, work.acknowledged) == (0, (), ())


def test_an_order_that_is_there_stays_as_it_is(store: WholeStore) -> None:
    join(store, "n1")
    store.put_orders((an_order(),))
    work = store.work(N1)
    store.put_orders((replace(an_order(), document="changed"),))
    assert store.work(N1) == work


def test_orders_are_written_for_all_nodes_or_none(store: WholeStore) -> None:
    join(store, "n1")
    with pytest.raises(Gone):
        store.put_orders((an_order(rank=0), an_order(rank=1, node="n2")))
    assert store.work(N1).orders == ()


def test_a_stop_reaches_every_rank(store: WholeStore) -> None:
    join(store, "n1", "n2")
    store.put_orders((an_order(rank=0), an_order(rank=1, node="n2"), an_order("j2.1")))
    store.put_stop(RunId("j1.1"), "stop!", 0)
    assert {order.run_id: order.stop for order in store.work(N1).orders} == {
        "j1.1": "stop!",
        "j2.1": "",
    }
    assert [order.stop for order in store.work(N2).orders] == ["stop!"]
    store.put_stop(RunId("nobody.1"), "stop!", 0)


def test_an_acknowledged_run_is_over_for_its_nodes(store: WholeStore) -> None:
    join(store, "n1", "n2")
    store.put_orders((an_order(rank=0), an_order(rank=1, node="n2")))
    store.acknowledge(RunId("j1.1"))
    for node in (N1, N2):
        work = store.work(node)
        assert (work.orders, work.acknowledged) == ((), ("j1.1",))
    store.acknowledge(RunId("j1.1"))
    store.acknowledge(RunId("nobody.1"))
    assert store.work(N1).acknowledged == ("j1.1",)


def test_a_run_that_is_over_is_not_ordered_again(store: WholeStore) -> None:
    join(store, "n1")
    store.put_orders((an_order(),))
    store.acknowledge(RunId("j1.1"))
    store.put_orders((an_order(),))
    assert store.work(N1).orders == ()


def test_an_acknowledgement_goes_some_time_after_the_node_forgot_the_run(
    store: WholeStore,
) -> None:
    join(store, "n1")
    store.put_orders((an_order(),))
    store.heard(a_node_report(), (an_ended_rank(),), at=NOW)
    store.acknowledge(RunId("j1.1"))
    assert store.heard(a_node_report(), (an_ended_rank(),), at=NOW + 700) == ("j1.1",)
    assert store.heard(a_node_report(), (), at=NOW + 599) == ("j1.1",)
    assert store.work(N1).acknowledged == ("j1.1",)
    before = store.work(N1).revision
    store.heard(a_node_report(), (), at=NOW + 701)
    assert store.work(N1).acknowledged == ()
    assert store.work(N1).revision != before


def test_a_cordon_and_a_paid_lease_are_part_of_the_work(store: WholeStore) -> None:
    join(store, "n1")
    store.set_cordon(N1, True, 0)
    store.set_lease(N1, NOW + 1800, 0)
    work = store.work(N1)
    assert (work.cordoned, work.lease_until) == (True, NOW + 1800)
    store.set_cordon(N1, False, 0)
    assert not store.work(N1).cordoned


def test_a_command_to_a_forgotten_node_is_refused(store: WholeStore) -> None:
    for command in (
        lambda: store.set_cordon(N1, True, 0),
        lambda: store.set_lease(N1, NOW, 0),
        lambda: store.put_orders((an_order(),)),
    ):
        with pytest.raises(Gone):
            command()


def test_the_revision_changes_with_the_work_and_only_with_it(place: Place) -> None:
    store = place.open()
    join(store, "n1", "n2")
    seen = {store.work(N1).revision}
    other = store.work(N2)

    def changed() -> bool:
        revision = store.work(N1).revision
        fresh = revision not in seen
        seen.add(revision)
        return fresh

    place.rung.clear()
    for command, changes in (
        (lambda: store.put_orders((an_order(),)), True),
        (lambda: store.put_orders((an_order(),)), False),
        (lambda: store.heard(a_node_report(), (a_rank(),), at=NOW + 1), False),
        (lambda: store.put_stop(RunId("j1.1"), "stop", 0), True),
        (lambda: store.put_stop(RunId("j1.1"), "stop", 0), False),
        (lambda: store.set_cordon(N1, True, 0), True),
        (lambda: store.set_cordon(N1, True, 0), False),
        (lambda: store.set_lease(N1, NOW, 0), True),
        (lambda: store.set_lease(N1, NOW, 0), False),
        (lambda: store.set_lease(N1, NOW, 7), True),
        (lambda: store.acknowledge(RunId("j1.1")), True),
    ):
        command()
        assert changed() == changes
        assert place.rung == ([N1] if changes else [])
        place.rung.clear()
    assert store.work(N2) == other


def test_a_node_that_was_forgotten_and_joins_again_meets_no_old_number(store: WholeStore) -> None:
    join(store, "n1")
    store.put_orders((an_order(),))
    before = store.work(N1).revision
    store.forget(N1)
    assert store.node_of("token-n1") is None
    assert (store.nodes(), store.ranks(), store.work(N1).orders) == ((), (), ())
    assert store.join(a_node_report("n1"), "token-2", join_sha256="join-2", at=NOW + 60)
    work = store.work(N1)
    assert work.orders == ()
    assert work.revision > before


# --- who commands ------------------------------------------------------------------------------


def test_a_command_of_a_former_leader_is_refused(store: WholeStore) -> None:
    join(store, "n1")
    store.put_orders((an_order(epoch=3),))
    assert store.work(N1).epoch == 3
    for command in (
        lambda: store.put_orders((an_order("j2.1", epoch=2),)),
        lambda: store.put_stop(RunId("j1.1"), "stop", 2),
        lambda: store.set_cordon(N1, True, 2),
        lambda: store.set_lease(N1, NOW, 2),
    ):
        before = store.work(N1)
        with pytest.raises(EpochPassed):
            command()
        assert store.work(N1) == before


def test_a_former_leader_is_refused_before_the_new_one_has_commanded(store: WholeStore) -> None:
    join(store, "n1")
    store.acquire_loop("one", now=NOW, ttl_s=1)
    store.acquire_loop("two", now=NOW + 2, ttl_s=1)
    with pytest.raises(EpochPassed):
        store.put_orders((an_order(epoch=1),))
    store.put_orders((an_order(epoch=2),))
    assert len(store.work(N1).orders) == 1


def test_a_later_leader_takes_over_an_older_order(store: WholeStore) -> None:
    join(store, "n1")
    store.put_orders((an_order(epoch=1),))
    store.put_stop(RunId("j1.1"), "stop", 2)
    work = store.work(N1)
    assert (work.epoch, work.orders[0].stop) == (2, "stop")


def test_nodes_may_speak_all_at_once(place: Place) -> None:
    stores = [place.open() for _ in range(2)]
    join(stores[0], *(f"n{i}" for i in range(12)))

    def speak(i: int) -> None:
        for beat in range(10):
            report = a_node_report(f"n{i}", address=str(beat))
            rank = a_rank(f"j{i}.1", node=f"n{i}", progress=Progress(step=beat, total=9, at=NOW))
            stores[i % 2].heard(report, (rank,), at=NOW + beat)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(speak, range(12)))
    assert [node.heard_at for node in stores[0].nodes()] == [NOW + 9] * 12
    assert [rank.progress and rank.progress.step for rank in stores[0].ranks()] == [9] * 12


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_nobody_has_a_name_that_cannot_be_written(store: WholeStore, text: str) -> None:
    assert store.node_of(text) is None
    assert store.work(NodeId(text)).orders == ()
