"""Rows → port calls → receipts → rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, MachineId, NodeId
from hybrid.domain.job import JobState, StopCause
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run, RunState
from hybrid.domain.transitions import Step
from hybrid.ports.capacity import MachineState
from hybrid.ports.engine import RankPhase
from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    InvalidRequest,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
)
from hybrid.ports.observation import Observation
from hybrid.ports.store import Put, Remove, World
from hybrid.reconcile.effects import (
    AcknowledgeRun,
    Effect,
    ExtendLease,
    ForgetNode,
    LaunchMachine,
    SetCordon,
    StartRun,
    StopRun,
    TerminateMachine,
    due,
    retry_at,
)
from hybrid.reconcile.receipts import Receipt, apply_receipts
from hybrid.reconcile.rules import SyncRules
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_machine,
    a_node,
    a_node_report,
    a_rank,
    a_run,
    a_slot,
    a_spec,
    a_world,
    an_ended_rank,
    an_observation,
)
from tests.doubles.changes import notes, posts, puts

HEARD = an_observation(nodes=(a_node_report(),))


def calls(world: World, observation: Observation = HEARD, now: float = NOW) -> list[Effect]:
    return list(due(world, observation, now=now, epoch=7, rules=SyncRules()))


def answered(world: World, effect: Effect, **fields: Any) -> tuple[Any, ...]:
    return apply_receipts(world, (Receipt(effect=effect, at=NOW, **fields),))


# --- machines ---------------------------------------------------------------------------------

REQUESTED = a_claim(state=ClaimState.REQUESTED)


def test_a_requested_claim_is_launched_and_again_until_there_is_an_answer() -> None:
    world = a_world(REQUESTED)
    assert calls(world) == calls(world) == [LaunchMachine(claim=REQUESTED)]


def test_an_unanswered_launch_is_repeated_with_growing_pauses() -> None:
    tried = replace(REQUESTED, launch_attempts=3, last_attempt_at=NOW)
    assert calls(a_world(tried), now=NOW + 7.9) == []
    assert calls(a_world(tried), now=NOW + 8.0) == [LaunchMachine(claim=tried)]
    assert retry_at(NOW, 50) == NOW + 60


def test_a_launch_that_is_answered_boots() -> None:
    world = a_world(REQUESTED, a_burst_pool())
    bundles = answered(world, LaunchMachine(claim=REQUESTED), machine=a_machine())
    claim = puts(bundles, Claim)["c1"]
    assert (claim.state, claim.machine_id) == (ClaimState.BOOTING, "i-1")
    assert claim.boot_deadline_at == NOW + 900


@pytest.mark.parametrize("error", [CapacityUnavailable, QuotaExceeded, InvalidRequest])
def test_only_a_definite_refusal_fails_a_claim_and_gives_its_money_back(
    error: type[CapacityUnavailable],
) -> None:
    refusal = error("zone:aws/us-east-1a", "no such machine now")
    bundles = answered(a_world(REQUESTED), LaunchMachine(claim=REQUESTED), error=refusal)
    claim = puts(bundles, Claim)["c1"]
    assert (claim.state, claim.held_micros) == (ClaimState.FAILED, 0)
    assert [(e.kind, e.amount_micros) for e in posts(bundles)] == [(EntryKind.RELEASE, 900_000)]
    assert puts(bundles, Breaker)["zone:aws/us-east-1a"].trips == 1


def test_claims_refused_by_one_scope_in_one_pass_all_fail_and_open_one_breaker() -> None:
    claims = [a_claim(f"c{number}", ClaimState.REQUESTED) for number in range(3)]
    refusal = CapacityUnavailable("zone:aws/us-east-1a", "no such machine now")
    receipts = tuple(
        Receipt(effect=LaunchMachine(claim=claim), at=NOW, error=refusal) for claim in claims
    )
    bundles = apply_receipts(a_world(*claims), receipts)
    assert {claim.state for claim in puts(bundles, Claim).values()} == {ClaimState.FAILED}
    breakers = [
        change.entity.scope
        for bundle in bundles
        for change in bundle.changes
        if isinstance(change, Put) and isinstance(change.entity, Breaker)
    ]
    # a second writer of the row would be dropped, and its claim launched again
    assert breakers == ["zone:aws/us-east-1a"]


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (OutcomeUnknown("lost"), False),
        (RuntimeError("bug"), False),
        (RateLimited("provider:aws", "slow down", retry_after_s=90), True),
        (AuthFailed("provider:aws", "expired"), True),
    ],
)
def test_an_unknown_outcome_is_neither_failure_nor_success(error: Exception, opens: bool) -> None:
    bundles = answered(a_world(REQUESTED), LaunchMachine(claim=REQUESTED), error=error)
    claim = puts(bundles, Claim)["c1"]
    assert (claim.state, claim.launch_attempts) == (ClaimState.REQUESTED, 1)
    assert claim.held_micros == 900_000
    assert posts(bundles) == []
    assert bool(puts(bundles, Breaker)) is opens


def test_a_late_launch_answer_does_not_disturb_a_claim_that_moved_on() -> None:
    booting = a_claim(state=ClaimState.BOOTING)
    assert answered(a_world(booting), LaunchMachine(claim=REQUESTED), machine=a_machine()) == ()
    assert answered(a_world(), LaunchMachine(claim=REQUESTED), machine=a_machine()) == ()


def test_success_closes_the_breakers_on_its_way() -> None:
    scope = f"offer:{REQUESTED.offer.id}"
    closing = Breaker.opened(scope, "full", at=NOW - 300)
    still_open = Breaker.opened("zone:aws/us-east-1a", "full", at=NOW)
    world = a_world(REQUESTED, breakers={b.scope: b for b in (closing, still_open)})
    bundles = answered(world, LaunchMachine(claim=REQUESTED), machine=a_machine())
    removed = [c for b in bundles for c in b.changes if isinstance(c, Remove)]
    assert removed == [Remove("breaker", scope)]


@pytest.mark.parametrize(
    ("scope", "closes"),
    [
        ("provider:aws", True),
        ("account:aws", True),
        ("zone:aws/us-east-1a", True),
        ("quota:aws/us-east-1/g5.xlarge/spot", True),
        ("quota:aws/us-east-1/g/*", False),
        ("quota:aws/*/*/spot", True),
        ("quota:aws/us-east-1/*/on_demand", False),
        ("quota:aws/eu-west-1/*/*", False),
        ("quota:aws/us-east-1/p4d/spot", False),
        ("quota:aws/us-east-1/spot", False),
        ("zone:aws/us-east-1b", False),
        ("provider:gcp", False),
    ],
)
def test_success_closes_every_breaker_that_stood_before_its_offer(scope: str, closes: bool) -> None:
    world = a_world(REQUESTED, breakers={scope: Breaker.opened(scope, "full", at=NOW - 300)})
    bundles = answered(world, LaunchMachine(claim=REQUESTED), machine=a_machine())
    removed = [c for b in bundles for c in b.changes if isinstance(c, Remove)]
    assert removed == ([Remove("breaker", scope)] if closes else [])


def test_a_terminating_machine_is_ended_until_its_cloud_says_that_it_ends() -> None:
    claim = a_claim(state=ClaimState.TERMINATING, node_id=NodeId("n1"))
    assert calls(a_world(claim)) == [
        TerminateMachine(provider="aws", machine_id=claim.machine_id or "", claim=claim)  # type: ignore[arg-type]
    ]
    ending = an_observation(machines=(a_machine(state=MachineState.ENDING),))
    assert calls(a_world(claim), ending) == []
    without = a_claim(state=ClaimState.TERMINATING, machine_id=None)
    assert calls(a_world(without)) == []


def test_a_machine_that_never_joined_leaves_its_console_output() -> None:
    claim = a_claim(state=ClaimState.TERMINATING)
    (effect,) = calls(a_world(claim))
    assert isinstance(effect, TerminateMachine)
    assert effect.with_console
    kept = puts(answered(a_world(claim), effect, console="kernel panic"), Claim)["c1"]
    assert (kept.console, kept.terminate_attempts) == ("kernel panic", 1)


def test_an_orphan_is_ended_and_told_of() -> None:
    observation = an_observation(machines=(a_machine("c9", launched_at=NOW - 100),))
    (effect,) = calls(a_world(), observation)
    assert isinstance(effect, TerminateMachine)
    assert effect.claim is None
    assert [event.what for event in notes(answered(a_world(), effect))] == ["orphan ended"]
    assert answered(a_world(), effect, error=OutcomeUnknown("?")) == ()


def test_a_throttled_termination_opens_its_breaker() -> None:
    claim = a_claim(state=ClaimState.TERMINATING)
    (effect,) = calls(a_world(claim))
    bundles = answered(a_world(claim), effect, error=RateLimited("provider:aws", "slow"))
    assert list(puts(bundles, Breaker)) == ["provider:aws"]


def test_a_machine_is_told_of_its_lease_once() -> None:
    claim = a_claim(node_id=NodeId("n1"), lease_until=NOW + 900, lease_sent_until=NOW)
    world = a_world(claim, a_node())
    (effect,) = calls(world)
    assert effect == ExtendLease(
        node_id=NodeId("n1"), engine="agent", claim_id=ClaimId("c1"), until=NOW + 900
    )
    told = puts(answered(world, effect), Claim)["c1"]
    assert calls(a_world(told, a_node())) == []
    assert answered(world, effect, error=OutcomeUnknown("?")) == ()


# --- runs -------------------------------------------------------------------------------------


def test_an_assigned_run_is_started_and_its_receipt_ends_that() -> None:
    run = a_run(state=RunState.ASSIGNED)
    world = a_world(run, a_job(state=JobState.PLACED), a_node())
    (effect,) = calls(world)
    assert isinstance(effect, StartRun)
    assert (effect.order.epoch, effect.order.nodes[0].id) == (7, "n1")
    started = puts(answered(world, effect), Run)["j1.1"]
    assert started.state is RunState.STARTING
    again = puts(answered(world, effect, error=OutcomeUnknown("?")), Run)["j1.1"]
    assert (again.state, again.start_attempts) == (RunState.ASSIGNED, 1)


def test_a_run_without_its_node_or_its_job_is_not_started() -> None:
    run = a_run(state=RunState.ASSIGNED)
    assert calls(a_world(run, a_job(state=JobState.PLACED))) == []
    assert calls(a_world(run, a_node())) == []


def stopping(cause: StopCause = StopCause.PREEMPT, **fields: Any) -> World:
    run = a_run(state=RunState.STOPPING, stop_cause=cause, **fields)
    spec = a_spec(stop={"grace": "30s"})
    return a_world(run, a_job(state=JobState.STOPPING, spec=spec), a_node())


def test_a_stopping_run_is_stopped_until_its_ranks_say_so() -> None:
    running = an_observation(ranks=(a_rank(),))
    (effect,) = calls(stopping(), running)
    assert isinstance(effect, StopRun)
    assert (effect.cause, effect.grace_s, effect.order) == (StopCause.PREEMPT, 30.0, None)
    saying_so = a_rank(phase=RankPhase.STOPPING, cause=StopCause.PREEMPT)
    assert calls(stopping(), an_observation(ranks=(saying_so,))) == []


def test_a_harder_stop_is_told_although_the_rank_is_stopping_already() -> None:
    milder = a_rank(phase=RankPhase.STOPPING, cause=StopCause.RETURN)
    effects = calls(stopping(StopCause.CANCEL), an_observation(ranks=(milder,)))
    assert [e.cause for e in effects if isinstance(e, StopRun)] == [StopCause.CANCEL]


def test_a_notice_shorter_than_the_grace_is_the_grace() -> None:
    observation = an_observation(ranks=(a_rank(),))
    (effect,) = calls(stopping(stop_by=NOW + 12), observation)
    assert isinstance(effect, StopRun)
    assert effect.grace_s == 12.0
    (late,) = calls(stopping(stop_by=NOW + 12), observation, now=NOW + 20)
    assert isinstance(late, StopRun)
    assert late.grace_s == 0.0


def test_a_run_that_may_never_have_been_delivered_is_delivered_with_its_stop() -> None:
    world = stopping(history=(Step("assigned", NOW, ""), Step("stopping", NOW, "")))
    (effect,) = calls(world)
    assert isinstance(effect, StopRun)
    assert effect.order is not None


def test_the_stop_of_a_gang_is_not_repeated_for_a_rank_whose_machine_has_ended() -> None:
    gang = a_run(
        state=RunState.STOPPING,
        stop_cause=StopCause.NODE_LOST,
        slots=(a_slot("n1", "n1-g0"), a_slot("n2", "n2-g0")),
    )
    observation = an_observation(
        nodes=(a_node_report("n1", machine_id=MachineId("i-1")), a_node_report("n2")),
        ranks=(
            a_rank(),
            a_rank(rank=1, node="n2", phase=RankPhase.STOPPING, cause=StopCause.NODE_LOST),
        ),
        machines=(a_machine(state=MachineState.ENDED, ended_at=NOW),),
    )
    world = a_world(gang, a_job(state=JobState.STOPPING), a_node("n2"))
    assert calls(world, observation) == []


def test_nothing_is_stopped_through_an_unknown_engine() -> None:
    assert calls(stopping(), Observation(at=NOW, heard_since=0)) == []


def test_a_run_given_up_that_goes_on_is_stopped_at_once() -> None:
    (effect,) = calls(a_world(), an_observation(ranks=(a_rank("j9.3"),)))
    assert effect == StopRun(
        run_id="j9.3",
        engine="agent",
        cause=StopCause.NODE_LOST,
        grace_s=0.0,  # type: ignore[arg-type]
    )


def test_a_silent_node_is_told_of_a_stray_when_it_is_back() -> None:
    silent = an_observation(nodes=(a_node_report(heard_at=NOW - 21),), ranks=(a_rank("j9.3"),))
    assert calls(a_world(), silent) == []
    back = an_observation(nodes=(a_node_report(heard_at=NOW - 20),), ranks=(a_rank("j9.3"),))
    assert [type(effect) for effect in calls(a_world(), back)] == [StopRun]


def test_what_a_machine_said_before_it_went_is_forgotten_once_its_run_lease_is_over() -> None:
    ranks = (a_rank("j9.3"),)
    # (600 s of lease + 15 s to kill) and 1 % of drift
    for silence_s, effects in ((621.0, []), (621.2, ["acknowledge:j9.3"])):
        gone = a_node_report(heard_at=NOW - silence_s)
        observation = an_observation(nodes=(gone,), ranks=ranks)
        assert [effect.key for effect in calls(a_world(), observation)] == effects


def test_a_machine_that_has_ended_is_not_asked_to_stop_anything() -> None:
    observation = an_observation(
        nodes=(a_node_report(machine_id=MachineId("i-1")),),
        ranks=(a_rank("j9.3"),),
        machines=(a_machine(state=MachineState.ENDED, ended_at=NOW),),
    )
    assert [effect.key for effect in calls(a_world(), observation)] == ["acknowledge:j9.3"]


def test_an_end_is_acknowledged_only_after_it_has_been_applied() -> None:
    ended = an_observation(ranks=(an_ended_rank(),))
    (effect,) = calls(a_world(), ended)
    assert effect == AcknowledgeRun(run_id="j1.1", engine="agent")  # type: ignore[arg-type]
    live = a_world(a_run(), a_job(state=JobState.RUNNING), a_node())
    assert calls(live, ended) == []
    assert answered(a_world(), effect) == ()


# --- nodes ------------------------------------------------------------------------------------


def test_a_cordon_is_sent_once_and_lifted_once() -> None:
    cordoned = a_node(state=NodeState.CORDONED, cordon_cause="maintenance")
    (effect,) = calls(a_world(cordoned))
    assert effect == SetCordon(node=cordoned, cordoned=True)
    sent = puts(answered(a_world(cordoned), effect), Node)["n1"]
    assert calls(a_world(sent)) == []
    ready = replace(sent, state=NodeState.READY, cordon_cause="")
    assert calls(a_world(ready)) == [SetCordon(node=ready, cordoned=False)]
    assert answered(a_world(cordoned), effect, error=OutcomeUnknown("?")) == ()


def test_silence_is_no_cordon_that_anybody_is_told_of() -> None:
    assert calls(a_world(a_node(state=NodeState.CORDONED, cordon_cause="silent"))) == []


def test_calls_have_names_by_which_they_are_made_once_at_a_time() -> None:
    run = a_run(state=RunState.ASSIGNED)
    claims = (REQUESTED, a_claim("c2", state=ClaimState.TERMINATING))
    world = a_world(run, a_job(state=JobState.PLACED), a_node(), *claims)
    observation = an_observation(nodes=(a_node_report(),), ranks=(an_ended_rank("j8.1"),))
    keys = [effect.key for effect in calls(world, observation)]
    assert keys == ["launch:c1", "terminate:i-1", "start:j1.1", "acknowledge:j8.1"]


def test_a_machine_of_a_claim_that_is_over_is_forgotten_once_nothing_runs_on_it() -> None:
    report = a_node_report(claim_id=ClaimId("c1"))
    observation = an_observation(nodes=(report,))
    assert calls(a_world(), observation) == [ForgetNode(node_id=NodeId("n1"), engine="agent")]
    assert calls(a_world(a_claim(lease_sent_until=NOW + 9e9)), observation) == []
    assert calls(a_world(a_node()), observation) == []
    assert calls(a_world(a_run(), a_job(state=JobState.RUNNING)), observation) == []
    assert calls(a_world(), an_observation(nodes=(a_node_report(),))) == []
    assert calls(a_world(), Observation(at=NOW, heard_since=0)) == []
