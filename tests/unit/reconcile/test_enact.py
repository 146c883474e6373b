"""A plan's actions → changes; the world after them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, JobId, NodeId, RunId
from hybrid.domain.job import Job, JobState, StopCause
from hybrid.domain.learned import Learned, Usage
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.node import Node, NodeState
from hybrid.domain.plan import (
    Action,
    ActionBundle,
    CordonClaim,
    CordonNode,
    Decision,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    RowRef,
    Stop,
    Verdict,
)
from hybrid.domain.reasons import NoBudget
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import UnknownSource
from hybrid.ports.observation import Observation, Unknown
from hybrid.ports.store import Bundle, Decide, World
from hybrid.reconcile.enact import enact
from hybrid.reconcile.views import merged, snapshot_of
from tests.doubles.build import (
    NOW,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_node_report,
    a_rank,
    a_run,
    a_slot,
    a_world,
    an_observation,
)
from tests.doubles.changes import posts, puts


def a_decision(job: str = "j1", verdict: Verdict = Verdict.PLACE, chosen: str = "") -> Decision:
    return Decision(
        job_id=JobId(job),
        at=NOW,
        verdict=verdict,
        sentence="because",
        chosen=chosen,
        policy_version=0,
    )


def a_hold(amount: int = 500) -> LedgerEntry:
    return LedgerEntry(
        id="hold:c1:0",
        kind=EntryKind.HOLD,
        claim_id=ClaimId("c1"),
        amount_micros=amount,
        at=NOW,
        team="red",
        user="ann",
        job_id=JobId("j1"),
    )


def enacted(world: World, *actions: Action, decisions: tuple[Decision, ...] = ()) -> list[Bundle]:
    bundles = (ActionBundle(id="b1", actions=actions),) if actions else ()
    plan = Plan(at=NOW, revision=1, bundles=bundles, decisions=decisions)
    return list(enact(plan, world, lambda claim: f"request of {claim.id}"))


def test_placing_makes_the_run_and_moves_the_job_and_rests_on_node_and_claim() -> None:
    run = a_run(state=RunState.ASSIGNED, version=0, claim_ids=(ClaimId("c1"),))
    node, claim = a_node(version=4), a_claim(version=5)
    (bundle,) = enacted(a_world(a_job(), node, claim), Place(run=run))
    job = puts([bundle], Job)["j1"]
    assert (job.state, job.attempts) == (JobState.PLACED, 1)
    assert puts([bundle], Run)["j1.1"].history[0].state == "assigned"
    assert set(bundle.rests_on) == {
        RowRef(kind="node", id="n1", version=4),
        RowRef(kind="claim", id="c1", version=5),
    }


def test_stopping_carries_its_cause_on_run_and_job() -> None:
    stop = Stop(run_id=RunId("j1.1"), cause=StopCause.RETURN, words="home is free", by=NOW + 9)
    bundles = enacted(a_world(a_run(), a_job(state=JobState.RUNNING)), stop)
    run, job = puts(bundles, Run)["j1.1"], puts(bundles, Job)["j1"]
    assert (run.state, run.stop_cause, run.stop_by) == (
        RunState.STOPPING,
        StopCause.RETURN,
        NOW + 9,
    )
    assert (job.state, job.stop_cause) == (JobState.STOPPING, StopCause.RETURN)


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        (StopCause.RETURN, StopCause.CANCEL, StopCause.CANCEL),
        (StopCause.CANCEL, StopCause.RETURN, StopCause.CANCEL),
        (None, StopCause.DRAIN, StopCause.DRAIN),
    ],
)
def test_of_two_causes_the_harder_wins_and_the_time_only_shrinks(
    first: StopCause | None, second: StopCause, wins: StopCause
) -> None:
    run = a_run(state=RunState.STOPPING, stop_cause=first, stop_by=NOW + 20)
    world = a_world(run, a_job(state=JobState.STOPPING))
    stop = Stop(run_id=run.id, cause=second, words="", by=NOW + 50)
    stopped = puts(enacted(world, stop), Run)["j1.1"]
    assert (stopped.stop_cause, stopped.stop_by) == (wins, NOW + 20)


def test_what_is_not_there_any_more_changes_nothing() -> None:
    world = a_world()
    run = a_run(state=RunState.ASSIGNED)
    claim_id = ClaimId("c1")
    actions: tuple[Action, ...] = (
        Place(run=run),
        Stop(run_id=run.id, cause=StopCause.CANCEL, words=""),
        OpenClaim(claim=a_claim(), hold=a_hold()),
        RenewLease(claim_id=claim_id, until=NOW, hold=a_hold()),
        CordonClaim(claim_id=claim_id, words=""),
        EndClaim(claim_id=claim_id, words=""),
        CordonNode(node_id=NodeId("n1"), words=""),
        FailJob(job_id=JobId("j1"), reason=NoBudget("red")),
    )
    for action in actions:
        assert enacted(world, action) == []


def test_a_claim_is_written_with_its_request_and_its_hold() -> None:
    claim = a_claim(state=ClaimState.REQUESTED, request="", version=0)
    bundles = enacted(a_world(a_job()), OpenClaim(claim=claim, hold=a_hold(777)))
    made = puts(bundles, Claim)["c1"]
    assert (made.request, made.held_micros) == ("request of c1", 777)
    assert posts(bundles) == [a_hold(777)]
    assert puts(bundles, Job)["j1"].claims_opened == 1


def test_a_gangs_claims_are_one_bundle_and_count_each() -> None:
    first = OpenClaim(claim=a_claim("c1", state=ClaimState.REQUESTED), hold=a_hold())
    second = OpenClaim(claim=a_claim("c2", state=ClaimState.REQUESTED), hold=a_hold())
    (bundle,) = enacted(a_world(a_job()), first, second)
    assert puts([bundle], Job)["j1"].claims_opened == 2


def test_renewing_adds_to_what_is_held() -> None:
    renew = RenewLease(claim_id=ClaimId("c1"), until=NOW + 99, hold=a_hold(100))
    claim = puts(enacted(a_world(a_claim()), renew), Claim)["c1"]
    assert (claim.lease_until, claim.held_micros) == (NOW + 99, 900_100)


def test_cordoning_and_ending_claims_and_nodes() -> None:
    world = a_world(a_claim(), a_node())
    cordon = CordonClaim(claim_id=ClaimId("c1"), words="notice")
    assert puts(enacted(world, cordon), Claim)["c1"].state is ClaimState.CORDONED
    end = EndClaim(claim_id=ClaimId("c1"), words="idle")
    ended = puts(enacted(world, end), Claim)["c1"]
    assert (ended.state, ended.cause) == (ClaimState.TERMINATING, "idle")
    assert enacted(a_world(ended), end) == []
    node = puts(enacted(world, CordonNode(node_id=NodeId("n1"), words="hot")), Node)["n1"]
    assert (node.state, node.cordon_cause) == (NodeState.CORDONED, "hot")


@pytest.mark.parametrize(("cancelled", "state"), [(True, "cancelled"), (False, "failed")])
def test_a_refused_job_ends_with_its_reason(cancelled: bool, state: str) -> None:
    fail = FailJob(job_id=JobId("j1"), reason=NoBudget("red"), cancelled=cancelled)
    job = puts(enacted(a_world(a_job()), fail), Job)["j1"]
    assert (job.state, job.reason) == (state, str(NoBudget("red")))


def test_a_decision_travels_with_its_actions_and_only_when_it_changed() -> None:
    world = a_world(
        a_job("j1"),
        a_job("j2"),
        a_job("j3"),
        a_node(),
        decisions={JobId("j3"): a_decision("j3", Verdict.WAIT)},
    )
    run = a_run(state=RunState.ASSIGNED, version=0)
    decisions = (
        a_decision("j1"),
        a_decision("j2", Verdict.WAIT),
        a_decision("j3", Verdict.WAIT),
    )
    placed, rest = enacted(world, Place(run=run), decisions=decisions)
    assert [c.decision.job_id for c in placed.changes if isinstance(c, Decide)] == ["j1"]
    assert rest.id == "decisions"
    assert [c.decision.job_id for c in rest.changes if isinstance(c, Decide)] == ["j2"]


# --- views ------------------------------------------------------------------------------------


def test_a_delta_adds_replaces_and_drops_what_ended() -> None:
    world = a_world(a_job("j1"), a_job("j2"), a_run(), a_node(), a_claim(), a_local_pool())
    delta = replace(
        a_world(
            a_job("j2", state=JobState.FAILED),
            a_job("j3"),
            a_run(state=RunState.ENDED),
            a_node(state=NodeState.GONE),
            a_claim(state=ClaimState.GONE),
        ),
        revision=2,
    )
    after = merged(world, delta)
    assert (sorted(after.jobs), after.runs, after.nodes, after.claims) == (["j1", "j3"], {}, {}, {})
    assert list(after.pools) == ["rack"]
    assert merged(world, world).jobs is world.jobs


def test_decisions_of_ended_jobs_do_not_pile_up() -> None:
    old = {JobId(f"j{i}"): a_decision(f"j{i}") for i in range(200)}
    world = a_world(a_job("j1"), decisions=old)
    delta = replace(a_world(a_job("j2"), decisions={JobId("j2"): a_decision("j2")}), revision=2)
    assert set(merged(world, delta).decisions) == {"j1", "j2"}


def test_the_snapshot_names_what_is_unknown_and_how_far_the_slowest_rank_is() -> None:
    from hybrid.domain.job import Progress

    ranks = (
        a_rank(progress=Progress(step=8, total=10, at=NOW)),
        a_rank(rank=1, progress=Progress(step=5, total=10, at=NOW)),
        a_rank(rank=2),
    )
    observation = an_observation(
        nodes=(a_node_report(),),
        ranks=ranks,
        offers={"aws": Unknown("throttled", NOW)},
    )
    snapshot = snapshot_of(
        a_world(),
        observation,
        now=NOW,
        epoch=1,
        evaluation_budget=10,
        usage_half_life_s=3600,
    )
    assert snapshot.progress[RunId("j1.1")].step == 5
    assert snapshot.unknown == (UnknownSource("offers:aws", "throttled"),)
    assert not snapshot.knows("offers:aws")
    assert snapshot.knows("engine:agent")


def test_usage_counts_ended_runs_decayed_and_live_ones_so_far() -> None:
    run = a_run(slots=(a_slot("n1", "g0", "g1"),), assigned_at=NOW - 10)
    learned = Learned(usage={"red": Usage(100.0, NOW - 3600), "blue": Usage(8.0, NOW)})
    world = a_world(run, a_job(state=JobState.RUNNING), learned=learned)
    snapshot = snapshot_of(
        world,
        Observation(at=NOW, heard_since=0),
        now=NOW,
        epoch=1,
        evaluation_budget=10,
        usage_half_life_s=3600,
    )
    assert snapshot.usage_gpu_s == {"red": 50.0 + 20.0, "blue": 8.0}
