"""Bundles: each whole or not at all, and only the one at fault is dropped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId, NodeId, OfferId, RunId
from hybrid.domain.job import JobState
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.node import Node, NodeState
from hybrid.domain.plan import Alternative, CostTerm, Decision, RowRef, Verdict
from hybrid.domain.reasons import OverBudget, Said, WaitingForGpus
from hybrid.domain.run import Run, RunState
from hybrid.domain.sightings import Sightings
from hybrid.ports.store import (
    Bundle,
    Decide,
    DropCause,
    EpochPassed,
    Learn,
    Note,
    Put,
    Remember,
    Remove,
    SetPolicy,
)
from hybrid.store.documents import dump, load
from tests.contract.store.conftest import Place, WholeStore
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_run,
    a_slot,
    parted,
)
from tests.doubles.committing import change, drops, post, put, set_budgets


def a_placement(store: WholeStore, job_id: str, *gpus: str, node: str = "n1", share: float = 1.0):
    """The bundle that places a stored pending job."""
    job = store.job(JobId(job_id))
    assert job is not None
    run = a_run(
        job_id,
        job.attempts + 1,
        RunState.ASSIGNED,
        version=0,
        slots=(a_slot(node, *gpus, share=share),),
    )
    placed = job.to(JobState.PLACED, at=NOW, attempts=job.attempts + 1)
    return Bundle(id=f"place:{job_id}", changes=(Put(placed), Put(run)))


def submit(store: WholeStore, *ids: str) -> None:
    put(store, *(a_job(id_, version=0) for id_ in ids))


def a_decision(job_id: str = "j1", sentence: str = "waits", **fields: object) -> Decision:
    return Decision(
        job_id=JobId(job_id),
        at=NOW,
        verdict=Verdict.WAIT,
        sentence=sentence,
        chosen="pool:rack",
        policy_version=3,
        **fields,
    )


# --- versions ----------------------------------------------------------------------------------


def test_a_new_row_gets_version_one_and_the_commit_a_new_revision(store: WholeStore) -> None:
    before = store.load(now=NOW).revision
    done = put(store, a_job("j1", version=0))
    assert (done.applied, done.dropped) == (("b",), ())
    assert done.revision == store.load(now=NOW).revision == before + 1
    assert store.job(JobId("j1")) == a_job("j1", version=1)


def test_a_row_that_exists_cannot_be_written_as_new(store: WholeStore) -> None:
    submit(store, "j1")
    done = store.commit([Bundle(id="again", changes=(Put(a_job("j1", version=0)),))], at=NOW)
    assert drops(done) == {"again": DropCause.MOVED}


def test_a_row_that_does_not_exist_cannot_be_written_as_read(store: WholeStore) -> None:
    done = store.commit([Bundle(id="b", changes=(Put(a_job("j1", version=4)),))], at=NOW)
    assert drops(done) == {"b": DropCause.MOVED}
    assert store.job(JobId("j1")) is None


def test_only_the_bundle_whose_row_has_moved_is_dropped(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    stale, fresh = a_placement(store, "j1", "g0"), a_placement(store, "j2", "g1")
    job = store.job(JobId("j1"))
    assert job is not None
    put(store, replace(job, cancel_requested=True))
    done = store.commit([stale, fresh], at=NOW)
    assert done.applied == ("place:j2",)
    assert drops(done) == {"place:j1": DropCause.MOVED}
    assert store.runs_of(JobId("j1")) == ()
    assert [run.id for run in store.runs_of(JobId("j2"))] == ["j2.1"]


def test_a_cancelled_job_loses_only_its_own_bundle(store: WholeStore) -> None:
    submit(store, "j1", "j2", "j3")
    plan = [a_placement(store, id_, f"g{id_}") for id_ in ("j1", "j2", "j3")]
    cancelled = store.job(JobId("j2"))
    assert cancelled is not None
    put(store, cancelled.to(JobState.CANCELLED, at=NOW))
    done = store.commit(plan, at=NOW)
    assert (done.applied, drops(done)) == (
        ("place:j1", "place:j3"),
        {"place:j2": DropCause.MOVED},
    )


def test_a_new_submission_invalidates_nothing(store: WholeStore) -> None:
    submit(store, "j1")
    plan = [a_placement(store, "j1", "g0")]
    submit(store, "j2")
    assert store.commit(plan, at=NOW).dropped == ()


def test_a_bundle_falls_when_a_row_it_only_read_has_moved(store: WholeStore) -> None:
    submit(store, "j1")
    put(store, a_node("n1", version=0))
    ref = RowRef(kind="node", id="n1", version=1)
    plan = replace(a_placement(store, "j1", "g0"), rests_on=(ref,))
    node = store.node(NodeId("n1"))
    assert node is not None
    put(store, node.to(NodeState.CORDONED, at=NOW))
    done = store.commit([plan], at=NOW)
    assert drops(done) == {"place:j1": DropCause.MOVED}
    assert "node n1 is at version 2, not 1" in done.dropped[0].words


def test_a_row_that_another_bundle_of_the_same_commit_writes_has_not_moved(
    store: WholeStore,
) -> None:
    submit(store, "j1")
    put(store, a_node("n1", version=0))
    node = store.node(NodeId("n1"))
    assert node is not None
    cordon = Bundle(id="cordon", changes=(Put(node.to(NodeState.CORDONED, at=NOW)),))
    ref = RowRef(kind="node", id="n1", version=1)
    plan = replace(a_placement(store, "j1", "g0"), rests_on=(ref,))
    assert store.commit([cordon, plan], at=NOW).applied == ("cordon", "place:j1")


@pytest.mark.parametrize("kind", ["job", "run", "claim", "node", "pool", "breaker", "sightings"])
def test_resting_on_the_absence_of_a_row_holds_while_it_is_absent(
    store: WholeStore, kind: str
) -> None:
    ref = RowRef(kind=kind, id="nobody", version=0)
    bundle = Bundle(id="b", changes=(Put(a_job("j1", version=0)),), rests_on=(ref,))
    assert store.commit([bundle], at=NOW).applied == ("b",)


def test_resting_on_the_policy_falls_when_there_is_a_newer_one(store: WholeStore) -> None:
    ref = RowRef(kind="policy", id="", version=0)
    bundle = Bundle(id="b", changes=(Put(a_job("j1", version=0)),), rests_on=(ref,))
    change(store, SetPolicy("{}", version=0, actor="ann", at=NOW))
    assert drops(store.commit([bundle], at=NOW)) == {"b": DropCause.MOVED}


def test_resting_on_a_kind_that_does_not_exist_is_an_error(store: WholeStore) -> None:
    ref = RowRef(kind="planet", id="mars", version=1)
    with pytest.raises(ValueError, match="planet"):
        store.commit([Bundle(id="b", changes=(), rests_on=(ref,))], at=NOW)


def test_the_second_of_two_bundles_that_write_one_row_is_dropped(store: WholeStore) -> None:
    submit(store, "j1")
    job = store.job(JobId("j1"))
    assert job is not None
    one = Bundle(id="one", changes=(Put(replace(job, reason="one")),))
    two = Bundle(id="two", changes=(Put(replace(job, reason="two")),))
    done = store.commit([one, two], at=NOW)
    assert (done.applied, drops(done)) == (("one",), {"two": DropCause.MOVED})
    kept = store.job(JobId("j1"))
    assert kept is not None
    assert (kept.reason, kept.version) == ("one", 2)


def test_one_bundle_may_write_a_row_twice_in_steps(store: WholeStore) -> None:
    job = a_job("j1", version=0)
    change(store, Put(job), Put(replace(job, reason="later", version=1)))
    kept = store.job(JobId("j1"))
    assert kept is not None
    assert (kept.reason, kept.version) == ("later", 2)


def test_a_node_that_was_gone_may_come_back_under_its_name(store: WholeStore) -> None:
    put(store, a_node("n1", version=0))
    node = store.node(NodeId("n1"))
    assert node is not None
    put(store, node.to(NodeState.GONE, at=NOW))
    done = put(store, a_node("n1", version=0, joined_at=NOW + 5))
    back = store.node(NodeId("n1"))
    assert back is not None
    assert done.applied == ("b",)
    assert (back.state, back.joined_at, back.version) == (NodeState.READY, NOW + 5, 3)


def test_a_pool_that_was_removed_may_come_back_under_its_name(store: WholeStore) -> None:
    put(store, replace(a_local_pool(), version=0))
    put(store, replace(a_local_pool(), version=1, removed=True))
    assert store.load(now=NOW).pools == {}
    put(store, replace(a_local_pool(description="again"), version=0))
    (pool,) = store.load(now=NOW).pools.values()
    assert (pool.spec.description, pool.version) == ("again", 3)


def test_a_job_that_has_ended_cannot_be_submitted_again_under_its_id(store: WholeStore) -> None:
    submit(store, "j1")
    job = store.job(JobId("j1"))
    assert job is not None
    put(store, job.to(JobState.CANCELLED, at=NOW))
    done = store.commit([Bundle(id="b", changes=(Put(a_job("j1", version=0)),))], at=NOW)
    assert drops(done) == {"b": DropCause.MOVED}


def test_a_removed_breaker_is_gone_and_may_open_again(store: WholeStore) -> None:
    breaker = Breaker.opened("zone:a", "no capacity", at=NOW)
    put(store, breaker)
    assert store.load(now=NOW).breakers == {"zone:a": replace(breaker, version=1)}
    change(store, Remove("breaker", "zone:a"))
    assert store.load(now=NOW).breakers == {}
    put(store, breaker)
    assert list(store.load(now=NOW).breakers) == ["zone:a"]


def test_a_breaker_may_be_removed_and_opened_in_one_commit(store: WholeStore) -> None:
    put(store, Breaker.opened("zone:a", "first", at=NOW))
    again = Breaker.opened("zone:a", "second", at=NOW + 1)
    change(store, Remove("breaker", "zone:a"), Put(again))
    assert store.load(now=NOW).breakers["zone:a"].cause == "second"


def test_only_breakers_are_removed(store: WholeStore) -> None:
    with pytest.raises(ValueError, match="only breakers"):
        store.commit([Bundle(id="b", changes=(Remove("job", "j1"),))], at=NOW)


# --- one live run, one holder ------------------------------------------------------------------


def test_a_job_cannot_have_two_live_runs(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    store.commit([a_placement(store, "j1", "g0")], at=NOW)
    second = a_run("j1", 2, RunState.ASSIGNED, version=0, slots=(a_slot("n1", "g7"),))
    done = store.commit(
        [Bundle(id="second", changes=(Put(second),)), a_placement(store, "j2", "g1")], at=NOW
    )
    assert (done.applied, drops(done)) == (("place:j2",), {"second": DropCause.CONFLICT})
    assert [run.id for run in store.runs_of(JobId("j1"))] == ["j1.1"]


def test_a_second_run_may_follow_the_end_of_the_first_in_one_commit(store: WholeStore) -> None:
    submit(store, "j1")
    store.commit([a_placement(store, "j1", "g0")], at=NOW)
    (first,) = store.runs_of(JobId("j1"))
    second = a_run("j1", 2, RunState.ASSIGNED, version=0, slots=(a_slot("n1", "g0"),))
    change(store, Put(second), Put(first.to(RunState.ENDED, at=NOW)))
    assert [run.live for run in store.runs_of(JobId("j1"))] == [False, True]


def test_a_whole_gpu_has_one_holder(store: WholeStore) -> None:
    submit(store, "j1", "j2", "j3")
    done = store.commit(
        [
            a_placement(store, "j1", "g0", "g1"),
            a_placement(store, "j2", "g1", "g2"),
            a_placement(store, "j3", "g2"),
        ],
        at=NOW,
    )
    assert done.applied == ("place:j1", "place:j3")
    assert drops(done) == {"place:j2": DropCause.CONFLICT}
    assert store.runs_of(JobId("j2")) == ()
    job = store.job(JobId("j2"))
    assert job is not None
    assert job.state is JobState.PENDING


def test_gpus_of_the_same_name_on_two_nodes_are_two(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    done = store.commit(
        [a_placement(store, "j1", "g0"), a_placement(store, "j2", "g0", node="n2")], at=NOW
    )
    assert done.dropped == ()


def test_a_gpu_is_free_again_when_its_run_has_ended(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    store.commit([a_placement(store, "j1", "g0")], at=NOW)
    (run,) = store.runs_of(JobId("j1"))
    put(store, run.to(RunState.STOPPING, at=NOW))
    assert store.commit([a_placement(store, "j2", "g0")], at=NOW).applied == ()
    (run,) = store.runs_of(JobId("j1"))
    put(store, run.to(RunState.ENDED, at=NOW))
    assert store.commit([a_placement(store, "j2", "g0")], at=NOW).applied == ("place:j2",)


def test_shares_of_a_gpu_come_to_one_at_most(store: WholeStore) -> None:
    submit(store, "j1", "j2", "j3")
    done = store.commit(
        [
            a_placement(store, "j1", "g0", share=0.5),
            a_placement(store, "j2", "g0", share=0.5),
            a_placement(store, "j3", "g0", share=0.01),
        ],
        at=NOW,
    )
    assert (done.applied, drops(done)) == (
        ("place:j1", "place:j2"),
        {"place:j3": DropCause.CONFLICT},
    )


def test_three_thirds_are_a_whole(store: WholeStore) -> None:
    submit(store, "j1", "j2", "j3")
    thirds = [a_placement(store, id_, "g0", share=1 / 3) for id_ in ("j1", "j2", "j3")]
    assert store.commit(thirds, at=NOW).dropped == ()


def test_a_shared_gpu_is_not_given_whole(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    done = store.commit(
        [a_placement(store, "j1", "g0", share=0.25), a_placement(store, "j2", "g0")], at=NOW
    )
    assert drops(done) == {"place:j2": DropCause.CONFLICT}


def test_a_run_of_a_job_that_is_not_there_is_refused_alone(store: WholeStore) -> None:
    submit(store, "j1")
    orphan = Bundle(id="orphan", changes=(Put(a_run("nobody", version=0)),))
    done = store.commit([orphan, a_placement(store, "j1", "g3")], at=NOW)
    assert (done.applied, drops(done)) == (("place:j1",), {"orphan": DropCause.CONFLICT})


def test_a_job_and_its_run_may_come_in_one_bundle_in_any_order(store: WholeStore) -> None:
    change(store, Put(a_run("j1", version=0)), Decide(a_decision()), Put(a_job("j1", version=0)))
    assert store.decision(JobId("j1")) is not None


# --- all or none -------------------------------------------------------------------------------


def test_a_dropped_bundle_leaves_nothing_of_itself(store: WholeStore) -> None:
    set_budgets(store)
    revision = store.load(now=NOW).revision
    bundle = Bundle(
        id="b",
        changes=(
            Put(a_job("j1", version=0)),
            Note(Event(kind=EventKind.JOB, subject="j1", what="submitted", at=NOW, job_id="j1")),
            Decide(a_decision()),
            Learn(Learned(boot_s={"cloud": Estimate(90.0, 1)})),
            Remember("red", "key", "sha", JobId("j1"), NOW, NOW + 60),
            SetPolicy("{}", version=0, actor="ann", at=NOW),
            post("h1", 1),  # no budget covers it
        ),
    )
    done = store.commit([bundle], at=NOW)
    assert drops(done) == {"b": DropCause.OVER_BUDGET}
    assert done.revision == store.load(now=NOW).revision == revision
    assert store.job(JobId("j1")) is None
    assert store.events() == ()
    assert store.decision(JobId("j1")) is None
    assert store.load(now=NOW).learned == Learned()
    assert store.remembered("red", "key", now=NOW) is None
    assert store.policy().version == 0


def test_the_rest_is_kept_when_it_is_accepted(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    asked: list[frozenset[str]] = []

    def accept(dropped: frozenset[str]) -> bool:
        asked.append(dropped)
        return True

    stale = Bundle(id="stale", changes=(Put(a_job("j1", version=9)),))
    done = store.commit([stale, a_placement(store, "j2", "g0")], at=NOW, accept=accept)
    assert asked == [frozenset({"stale"})]
    assert done.applied == ("place:j2",)


def test_nothing_is_written_when_the_rest_is_not_accepted(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    revision = store.load(now=NOW).revision
    stale = Bundle(id="stale", changes=(Put(a_job("j1", version=9)),))
    done = store.commit(
        [stale, a_placement(store, "j2", "g0")], at=NOW, accept=lambda dropped: False
    )
    assert done.applied == ()
    assert drops(done) == {"stale": DropCause.MOVED, "place:j2": DropCause.LINT}
    assert store.load(now=NOW).revision == done.revision == revision
    assert store.runs_of(JobId("j2")) == ()


def test_nobody_is_asked_when_everything_goes_through(store: WholeStore) -> None:
    submit(store, "j1")

    def accept(dropped: frozenset[str]) -> bool:
        raise AssertionError(dropped)

    assert store.commit([a_placement(store, "j1", "g0")], at=NOW, accept=accept).dropped == ()


def test_an_error_in_the_middle_leaves_nothing(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    before = store.load(now=NOW)

    def accept(dropped: frozenset[str]) -> bool:
        raise RuntimeError("the process is in trouble")

    stale = Bundle(id="stale", changes=(Put(a_job("j1", version=9)),))
    with pytest.raises(RuntimeError, match="in trouble"):
        store.commit([a_placement(store, "j2", "g0"), stale], at=NOW, accept=accept)
    assert store.load(now=NOW) == before


def test_a_commit_of_nothing_changes_nothing(store: WholeStore) -> None:
    revision = store.load(now=NOW).revision
    done = store.commit([], at=NOW)
    assert (done.applied, done.dropped, done.revision) == ((), (), revision)
    assert store.load(now=NOW).revision == revision


# --- who leads ---------------------------------------------------------------------------------


def test_a_former_leader_cannot_commit(store: WholeStore) -> None:
    first = store.acquire_loop("one", now=NOW, ttl_s=10)
    second = store.acquire_loop("two", now=NOW + 11, ttl_s=10)
    assert first is not None
    assert second is not None
    assert store.loop_epoch() == second.epoch
    bundle = Bundle(id="b", changes=(Put(a_job("j1", version=0)),))
    with pytest.raises(EpochPassed):
        store.commit([bundle], at=NOW, epoch=first.epoch)
    assert store.job(JobId("j1")) is None
    assert store.commit([bundle], at=NOW, epoch=second.epoch).applied == ("b",)


def test_who_does_not_lead_learns_it_even_with_nothing_to_write(store: WholeStore) -> None:
    store.acquire_loop("one", now=NOW, ttl_s=10)
    with pytest.raises(EpochPassed):
        store.commit([], at=NOW, epoch=0)


def test_the_lease_is_renewed_by_its_holder_under_the_same_epoch(store: WholeStore) -> None:
    first = store.acquire_loop("one", now=NOW, ttl_s=10)
    again = store.acquire_loop("one", now=NOW + 5, ttl_s=10)
    assert first is not None
    assert again is not None
    assert (again.holder, again.epoch, again.until) == ("one", first.epoch, NOW + 15)


def test_the_lease_is_not_taken_while_it_lasts(store: WholeStore) -> None:
    store.acquire_loop("one", now=NOW, ttl_s=10)
    assert store.acquire_loop("two", now=NOW + 9.9, ttl_s=10) is None
    taken = store.acquire_loop("two", now=NOW + 10, ttl_s=10)
    assert taken is not None
    assert taken.epoch == 2


def test_a_lease_given_back_is_free_at_once_under_a_new_epoch(store: WholeStore) -> None:
    first = store.acquire_loop("one", now=NOW, ttl_s=10)
    store.release_loop("two")
    assert store.acquire_loop("two", now=NOW, ttl_s=10) is None
    store.release_loop("one")
    second = store.acquire_loop("two", now=NOW, ttl_s=10)
    assert first is not None
    assert second is not None
    assert second.epoch == first.epoch + 1


# --- what comes back ---------------------------------------------------------------------------


def test_everything_written_is_read_back_the_same_by_another_process(place: Place) -> None:
    store = place.open()
    job = a_job("j1", version=0)
    job = replace(
        job,
        spec=job.spec.model_copy(
            update={"walltime": 0.0004, "env": {"A": "nul \0, é, \n"}, "expected_runtime": None}
        ),
        reason="½ a pair: \ud800",
    )
    entities = (
        job,
        a_run("j1", version=0),
        a_claim("c1", version=0),
        a_node("n1", 2, version=0),
        replace(a_burst_pool(), version=0),
        Breaker.opened("zone:a", "no capacity", at=NOW),
        Sightings(
            offer_id=OfferId("o"), changes=((1.5, True), (2.5, False), (3.5, None)), seen_at=3.5
        ),
    )
    put(store, *entities)
    learned = Learned(speed={("bert", "h100"): Estimate(2.5, 3)}, interruptions={"o": 2})
    change(store, Learn(learned))
    written = {
        type(e).__name__: replace(e, version=1, **({"reason": "½ a pair: ?"} if e is job else {}))
        for e in entities
    }
    other = place.open()
    world = other.load(now=NOW)
    assert world.jobs == {"j1": written["Job"]}
    assert world.runs == {"j1.1": written["Run"]}
    assert world.claims == {"c1": written["Claim"]}
    assert world.nodes == {"n1": written["Node"]}
    assert world.pools == {"cloud": written["Pool"]}
    assert world.breakers == {"zone:a": written["Breaker"]}
    assert world.learned == learned
    assert world.sightings == {"o": written["Sightings"]}
    assert world.installation == store.load(now=NOW).installation != ""


def test_parts_of_gpus_come_back_as_they_were_written(place: Place, store: WholeStore) -> None:
    node = replace(a_node("n1", version=0), **parted("n1"))
    slot = replace(a_slot("n1", "MIG-n1-1"), share=0.25, gpu_memory_gib=9.5, replicas=4)
    put(store, a_job("j1", version=0), a_run("j1", version=0, slots=(slot,)), node)
    world = place.open().load(now=NOW)
    assert world.nodes[NodeId("n1")] == replace(node, version=1)
    assert world.runs[RunId("j1.1")].slots == (slot,)


def test_what_was_written_before_gpus_had_parts_is_read() -> None:
    node, run = a_node("n1", 1), a_run("j1")
    for kind, value, fields in (
        (Node, node, ("mig", "parted")),
        (Run, run, ("gpu_memory_gib", "replicas")),
    ):
        old = json.loads(dump(value))
        for name in fields:
            for part in (old, *old.get("gpus", ()), *old.get("slots", ())):
                part.pop(name, None)
        assert load(kind, json.dumps(old)) == value


def test_a_decision_says_later_what_it_said_when_it_was_made(store: WholeStore) -> None:
    submit(store, "j1")
    why = WaitingForGpus("rack", 600.0, 3)
    refused = OverBudget("org", 5_000_000, 1_000_000)
    decision = a_decision(
        reason=why,
        alternatives=(
            Alternative(
                option="offer:1",
                label="a spot machine",
                refused=refused,
                members=4,
                speed="speed 2",
            ),
            Alternative(
                option="pool:rack",
                label="rack",
                start_p50_at=NOW,
                terms=(CostTerm(name="energy", micros=12),),
            ),
        ),
    )
    change(store, Decide(decision))
    read = store.decision(JobId("j1"))
    assert read is not None
    assert read.reason == Said("waiting_for_gpus", str(why))
    assert read.alternatives[0].refused == Said("over_budget", str(refused))
    assert read.alternatives[1] == decision.alternatives[1]
    assert read.same_as(decision)
    change(store, Decide(replace(read, sentence="still waits")))
    again = store.decision(JobId("j1"))
    assert again == replace(read, sentence="still waits")


def test_a_decision_is_replaced_not_added_to(store: WholeStore) -> None:
    submit(store, "j1", "j2")
    change(store, Decide(a_decision("j1", "one")), Decide(a_decision("j2", "two")))
    change(store, Decide(a_decision("j1", "three")))
    found = store.load(now=NOW).decisions
    assert {id_: d.sentence for id_, d in found.items()} == {"j1": "three", "j2": "two"}


# --- policy and idempotency --------------------------------------------------------------------


def test_a_policy_replaces_the_version_it_was_written_over(store: WholeStore) -> None:
    assert (store.policy().version, store.policy().document) == (0, "")
    change(store, SetPolicy("one", version=0, actor="ann", at=NOW, why="first"))
    change(store, SetPolicy("two", version=1, actor="bob", at=NOW + 1))
    late = SetPolicy("late", version=1, actor="eve", at=NOW + 2)
    done = store.commit([Bundle(id="late", changes=(late,))], at=NOW)
    assert drops(done) == {"late": DropCause.MOVED}
    policy = store.policy()
    assert (policy.version, policy.document, policy.actor, policy.at) == (2, "two", "bob", NOW + 1)
    assert store.load(now=NOW).policy_version == 2


def test_the_second_use_of_an_idempotency_key_is_dropped(store: WholeStore) -> None:
    key = Remember("red", "key", "sha", JobId("j1"), NOW, NOW + 60)
    change(store, Put(a_job("j1", version=0)), key)
    again = Bundle(
        id="again",
        changes=(Put(a_job("j2", version=0)), replace(key, job_id=JobId("j2"), at=NOW + 59)),
    )
    done = store.commit([again], at=NOW + 59)
    assert drops(done) == {"again": DropCause.DUPLICATE}
    assert store.job(JobId("j2")) is None
    found = store.remembered("red", "key", now=NOW + 59)
    assert found is not None
    assert (found.job_id, found.body_sha256) == ("j1", "sha")


def test_a_key_used_twice_in_one_commit_counts_once(store: WholeStore) -> None:
    key = Remember("red", "key", "sha", JobId("j1"), NOW, NOW + 60)
    one = Bundle(id="one", changes=(Put(a_job("j1", version=0)), key))
    two = Bundle(id="two", changes=(Put(a_job("j2", version=0)), key))
    assert drops(store.commit([one, two], at=NOW)) == {"two": DropCause.DUPLICATE}


def test_an_idempotency_key_is_of_one_team_and_expires(store: WholeStore) -> None:
    key = Remember("red", "key", "sha", JobId("j1"), NOW, NOW + 60)
    change(store, key)
    assert store.remembered("blue", "key", now=NOW) is None
    assert store.remembered("red", "key", now=NOW + 60) is None
    change(store, replace(key, team="blue"))
    change(store, replace(key, job_id=JobId("j9"), at=NOW + 60, expires_at=NOW + 120))
    found = store.remembered("red", "key", now=NOW + 61)
    assert found is not None
    assert found.job_id == "j9"


def test_claims_and_ended_rows_are_still_found(store: WholeStore) -> None:
    put(store, a_claim("c1", ClaimState.TERMINATING, version=0))
    (claim,) = store.claims()
    put(store, claim.to(ClaimState.GONE, at=NOW))
    assert store.load(now=NOW).claims == {}
    found = store.claim(claim.id)
    assert found is not None
    assert found.state is ClaimState.GONE
