"""Each invariant is found broken by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, GpuId, JobId, NodeId, RunId
from hybrid.domain.job import StopCause
from hybrid.domain.node import NodeState
from hybrid.domain.plan import (
    Action,
    ActionBundle,
    CordonClaim,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    RenewLease,
    Stop,
)
from hybrid.domain.reasons import Said
from hybrid.domain.run import Run
from hybrid.domain.snapshot import Snapshot, UnknownSource
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from tests.scenarios.world import build

WORLD: dict[str, Any] = {
    "nodes": {"n1": {"gpus": 2, "cpus": 4, "memory": 16}, "n2": {"gpus": 2}},
    "pools": {
        "home": {},
        "cloud": {"kind": "burst", "ceilings": {"machines": 3, "usd_per_hour": 20}},
    },
    "offers": {"od": {"pool": "cloud", "type": "m", "price": 4}},
    "claims": {"c1": {"offer": "od", "job": "away"}},
    "policy": {"budgets": [{"name": "all", "limit_usd": 20}]},
    "jobs": {
        "here": {"run": "1h", "at": "n1:0"},
        "away": {"run": "1h", "at": "n-c1"},
        "one": {"run": "1h"},
        "two": {"run": "1h"},
        "gang": {"run": "1h", "nodes": 2, "gpus": 2},
        "faraway": {"run": "9h", "value": 100, "models": ["h100"]},
    },
}


REPLICAS = {"replicas": 4}


def world(**changes: Any) -> Snapshot:
    snapshot, _ = build(WORLD)
    return replace(snapshot, **changes)


def codes(snapshot: Snapshot, *actions: Action) -> list[str]:
    bundles = [ActionBundle(id=f"b{i}", actions=(a,)) for i, a in enumerate(actions)]
    return [finding.code for finding in lint(snapshot, bundles)]


def placed(job: str, **changes: Any) -> Run:
    """A correct run of the job, as the planner makes it."""
    alone = {**WORLD, "jobs": {name: WORLD["jobs"][name] for name in ("here", "away", "one")}}
    snapshot, policy = build(alone)
    actions = plan(snapshot, policy, 1).actions
    run = next(a.run for a in actions if isinstance(a, Place) and a.run.job_id == job)
    return replace(run, **changes)


def opened(job: str = "two", rank: int = 0) -> OpenClaim:
    """A correct claim for the job."""
    other = {**WORLD, "jobs": {"two": {"run": "9h", "value": 90}}, "nodes": {}, "claims": {}}
    snapshot, policy = build(other)
    action = next(a for a in plan(snapshot, policy, 1).actions if isinstance(a, OpenClaim))
    id_ = ClaimId(f"c-{job}-1-{rank}-0")
    return OpenClaim(
        claim=replace(action.claim, id=id_, job_id=JobId(job)),
        hold=replace(action.hold, claim_id=id_, id=f"hold:{id_}:0", job_id=JobId(job)),
    )


def moved(run: Run, **changes: Any) -> Run:
    return replace(run, slots=tuple(replace(slot, **changes) for slot in run.slots))


def test_a_clean_plan_has_no_findings() -> None:
    assert codes(world(), Place(run=placed("one")), opened()) == []


def test_a_whole_plan_may_be_linted_as_it_is() -> None:
    snapshot, policy = build(WORLD)
    assert lint(snapshot, plan(snapshot, policy, 1)) == ()


def test_a_gpu_is_given_once() -> None:
    run = placed("one")
    other = replace(run, id=RunId("two.1"), job_id=JobId("two"))
    assert codes(world(), Place(run=run), Place(run=other)) == ["gpu_twice"]


def test_a_gpu_that_is_held_is_not_given() -> None:
    taken = moved(placed("one"), node_id=NodeId("n1"), gpu_ids=(GpuId("GPU-n1-0"),))
    assert codes(world(), Place(run=taken)) == ["gpu_twice"]


def test_a_node_gives_no_more_cores_and_memory_than_it_has() -> None:
    big = moved(placed("one"), node_id=NodeId("n1"), gpu_ids=(GpuId("GPU-n1-1"),))
    assert codes(world(), Place(run=moved(big, cpus=4))) == ["cpus"]
    assert codes(world(), Place(run=moved(big, memory_gib=16))) == ["memory"]


def test_a_device_promises_no_more_memory_than_it_has() -> None:
    half = moved(placed("one"), gpu_ids=(GpuId("GPU-n2-0"),), node_id=NodeId("n2"), share=0.5)
    other = replace(half, id=RunId("two.1"), job_id=JobId("two"))
    fits = [Place(run=moved(run, gpu_memory_gib=40.0)) for run in (half, other)]
    assert codes(world(), *fits) == []
    over = Place(run=moved(other, gpu_memory_gib=40.1))
    assert codes(world(), fits[0], over) == ["gpu_memory"]


def test_a_time_sliced_gpu_is_given_in_replicas_and_no_other_is() -> None:
    run = moved(placed("one"), gpu_ids=(GpuId("GPU-n2-0"),), node_id=NodeId("n2"))
    replica = moved(run, share=0.25, replicas=4)
    assert codes(world(), Place(run=replica)) == ["not_a_replica"]
    sliced, _ = build({**WORLD, "pools": {**WORLD["pools"], "home": {"time_slicing": REPLICAS}}})
    assert codes(sliced, Place(run=replica)) == []
    assert codes(sliced, Place(run=run)) == ["not_a_replica"]
    assert codes(sliced, Place(run=moved(replica, share=0.3))) == ["not_a_replica"]
    cpu_job = moved(run, gpu_ids=())
    assert "not_a_replica" not in codes(sliced, Place(run=cpu_job))


def test_a_gang_is_placed_whole_and_each_rank_on_its_own_node() -> None:
    snapshot = world(runs={})
    slots = tuple(
        replace(
            placed("one").slots[0],
            node_id=NodeId(n),
            gpu_ids=(GpuId(f"GPU-{n}-0"), GpuId(f"GPU-{n}-1")),
        )
        for n in ("n1", "n2")
    )
    run = placed("one", id=RunId("gang.1"), job_id=JobId("gang"), slots=slots)
    assert codes(snapshot, Place(run=run)) == []
    assert codes(snapshot, Place(run=replace(run, slots=slots[:1]))) == ["gang_in_part"]
    twice = replace(run, slots=(slots[0], replace(slots[0], gpu_ids=())))
    assert codes(snapshot, Place(run=twice)) == ["gang_on_one_node", "slot_in_part"]


def test_a_job_has_one_run_and_one_fate() -> None:
    run = placed("one")
    again = replace(run, id=RunId("here.2"), job_id=JobId("here"), attempt=2)
    assert codes(world(), Place(run=again)) == ["not_pending", "second_run"]
    fails = FailJob(job_id=JobId("one"), reason=Said("x", "x"))
    assert codes(world(), Place(run=run), fails) == ["twice"]
    asks = opened("one")
    assert codes(world(), Place(run=run), asks) == ["both"]
    assert codes(world(), Place(run=replace(run, attempt=3))) == ["attempt"]


def test_nothing_is_decided_for_what_is_not_there() -> None:
    ghost = placed("one", job_id=JobId("ghost"), id=RunId("ghost.1"))
    assert codes(world(), Place(run=ghost)) == ["unknown_job"]
    assert codes(world(), FailJob(job_id=JobId("ghost"), reason=Said("x", "x"))) == ["unknown_job"]
    stop = Stop(run_id=RunId("ghost.1"), cause=StopCause.CANCEL, words="")
    assert codes(world(), stop) == ["unknown_run"]
    assert codes(world(), EndClaim(claim_id=ClaimId("ghost"), words="")) == ["unknown_claim"]
    assert codes(world(), CordonClaim(claim_id=ClaimId("ghost"), words="")) == ["unknown_claim"]
    renewal = RenewLease(claim_id=ClaimId("ghost"), until=9e9, hold=opened().hold)
    assert codes(world(), renewal) == ["unknown_claim"]


def test_no_run_on_a_node_that_takes_none() -> None:
    run = placed("one")
    node_id = run.slots[0].node_id
    before = world()
    cordoned = replace(before.nodes[node_id], state=NodeState.CORDONED)
    snapshot = replace(before, nodes={**before.nodes, node_id: cordoned})
    assert codes(snapshot, Place(run=run)) == ["node_not_ready"]
    unheard = world(unknown=(UnknownSource("engine:agent", "timeout"),))
    assert codes(unheard, Place(run=run)) == ["engine_unknown"]
    broken = moved(run, gpu_ids=(GpuId("GPU-elsewhere"),))
    assert codes(world(), Place(run=broken)) == ["no_such_gpu"]


def test_no_run_on_a_machine_about_to_go_and_none_without_naming_its_claim() -> None:
    run = moved(placed("one"), node_id=NodeId("n-c1"), gpu_ids=(GpuId("GPU-n-c1-0"),))
    named = replace(run, claim_ids=(ClaimId("c1"),))
    free = world(runs={})
    assert codes(free, Place(run=named)) == []
    assert codes(free, Place(run=run)) == ["claim_unnamed"]
    leaving = replace(free.claims[ClaimId("c1")], notice_at=free.now + 60)
    snapshot = replace(free, claims={leaving.id: leaving})
    assert codes(snapshot, Place(run=named)) == ["claim_not_ready"]


def test_no_machine_ends_under_a_run() -> None:
    end = EndClaim(claim_id=ClaimId("c1"), words="idle")
    assert codes(world(), end) == ["ended_under_run"]
    assert codes(world(runs={}), end) == []


def test_no_cap_is_passed() -> None:
    action = opened()
    much = replace(action, hold=replace(action.hold, amount_micros=19_500_000))
    assert codes(world(), much) == ["cap_passed"]
    assert codes(world(balances=()), action) == ["no_budget"]
    free = replace(action, hold=replace(action.hold, amount_micros=0))
    assert codes(world(), free) == ["no_hold"]


def test_a_hold_is_for_its_claim() -> None:
    action = opened()
    wrong = replace(action, hold=replace(action.hold, claim_id=ClaimId("other")))
    assert codes(world(), wrong) == ["wrong_hold"]


def test_a_claim_is_new_has_a_lease_and_a_provider_that_is_heard_of() -> None:
    action = opened()
    old = replace(action, claim=replace(action.claim, id=ClaimId("c1")))
    assert codes(world(), old) == ["claim_exists", "wrong_hold"]
    over = replace(action, claim=replace(action.claim, lease_until=0.0))
    assert codes(world(), over) == ["no_lease"]
    unheard = world(unknown=(UnknownSource("provider:aws", "timeout"),))
    assert codes(unheard, action) == ["provider_unknown"]


def test_no_pool_grows_beyond_its_ceilings() -> None:
    three = [opened("one"), opened("two"), opened("faraway")]
    assert codes(world(), *three) == ["ceiling"]
    dear = opened()
    offer = replace(dear.claim.offer, price_ceiling_micros_per_hour=17_000_000)
    dear = replace(dear, claim=replace(dear.claim, offer=offer))
    assert codes(world(), dear) == ["ceiling"]
    assert codes(world(pools={}), opened()) == ["no_such_pool"]


def test_machines_for_a_gang_are_asked_for_together() -> None:
    first, second = opened("gang", 0), opened("gang", 1)
    assert codes(world(), first) == ["gang_in_part"]
    assert codes(world(), first, second) == ["gang_torn"]
    whole = ActionBundle(id="b", actions=(first, second))
    assert lint(world(), [whole]) == ()
    assert codes(world(), opened("here")) == ["not_pending"]


MOVING: dict[str, Any] = {
    "nodes": {},
    "pools": {"cloud": {"kind": "burst"}},
    "offers": {"spot": {"pool": "cloud", "type": "p4d", "market": "spot", "price": 1}},
    "policy": {"budgets": [{"name": "all", "limit_usd": 100}]},
    "claims": {"c1": {"offer": "spot", "job": "away", "state": "cordoned", "notice_in": "90s"}},
    "jobs": {"away": {"run": "3h", "at": "n-c1", "saves": True}},
}


def test_a_runs_next_machine_is_asked_for_while_it_is_being_stopped() -> None:
    snapshot, policy = build(MOVING)
    made = plan(snapshot, policy, 1)
    (bundle,) = made.bundles
    assert [type(action) for action in bundle.actions] == [Stop, OpenClaim]
    assert lint(snapshot, made.bundles) == ()
    stopped = [a for a in bundle.actions if isinstance(a, Stop)]
    assert [stop.cause for stop in stopped] == [StopCause.INTERRUPTION]
    # a run that is stopped to make room is given nothing before it is over
    preempted = replace(stopped[0], cause=StopCause.PREEMPT)
    asked = [a for a in bundle.actions if isinstance(a, OpenClaim)]
    found = lint(snapshot, (ActionBundle(id="b", actions=(preempted, *asked)),))
    assert "not_pending" in [finding.code for finding in found]


def test_a_finding_reads_as_a_sentence() -> None:
    bundle = ActionBundle(id="b", actions=(EndClaim(claim_id=ClaimId("c1"), words=""),))
    assert str(lint(world(), [bundle])[0]) == "ended_under_run c1: away.1 runs on it"


def test_a_claim_that_is_over_counts_against_no_ceiling() -> None:
    snapshot = world(runs={})
    gone = replace(snapshot.claims[ClaimId("c1")], state=ClaimState.GONE)
    three = [opened("one"), opened("two"), opened("faraway")]
    assert codes(replace(snapshot, claims={gone.id: gone}), *three) == []
