"""Clouds' listings and nodes' reports → claims, nodes, money."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, MachineId, NodeId, PoolName
from hybrid.domain.job import Job, JobState
from hybrid.domain.learned import Learned
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run
from hybrid.domain.transitions import Step
from hybrid.ports.capacity import Machine, MachineState, Notice, NoticeKind
from hybrid.ports.observation import Known, MachineFacts, Observation, Unknown
from hybrid.ports.store import Learn, Post, Put, Remove, World
from hybrid.reconcile.effects import LaunchMachine
from hybrid.reconcile.heard import recorded
from hybrid.reconcile.machines import orphans
from hybrid.reconcile.receipts import Receipt, apply_receipts
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_machine,
    a_node,
    a_node_report,
    a_run,
    a_world,
    an_observation,
    an_offer,
)
from tests.doubles.changes import posts, puts

RULES = SyncRules()
IDLE = {"idle_since": NOW - 10}


def claim_after(claim: Claim, observation: Observation, *more: Node | Run | Job) -> Claim:
    bundles = sync(a_world(claim, a_burst_pool(), *more), observation, RULES)
    return puts(bundles, Claim).get(str(claim.id), claim)


def burst_node(**fields: object) -> Node:
    return a_node("n1", pool=PoolName("cloud"), claim_id=ClaimId("c1"), **fields)


def test_a_machine_whose_launch_answer_was_lost_is_adopted_by_its_claim() -> None:
    requested = a_claim(state=ClaimState.REQUESTED)
    claim = claim_after(requested, an_observation(machines=(a_machine(),)))
    assert (claim.state, claim.machine_id) == (ClaimState.BOOTING, "i-1")
    assert claim.launched_at == NOW - 60
    assert claim.boot_deadline_at == NOW - 60 + 900


def test_a_claim_is_ready_when_its_machine_has_joined() -> None:
    report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"))
    bundles = sync(
        a_world(a_claim(state=ClaimState.BOOTING), a_burst_pool()),
        an_observation(nodes=(report,)),
        RULES,
    )
    claim = puts(bundles, Claim)["c1"]
    assert (claim.state, claim.node_id, claim.idle_since) == (ClaimState.READY, "n1", NOW)
    assert puts(bundles, Node)["n1"].state is NodeState.READY
    assert len([b for b in bundles if b.id == "claim:c1"]) == 1


def test_a_machine_that_joins_before_its_launch_is_answered_waits_for_its_name() -> None:
    report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"))
    claim = claim_after(a_claim(state=ClaimState.REQUESTED), an_observation(nodes=(report,)))
    assert (claim.state, claim.node_id) == (ClaimState.REQUESTED, "n1")


def test_a_machine_of_a_claim_that_is_over_does_not_become_a_node() -> None:
    report = a_node_report(claim_id=ClaimId("c1"))
    world = a_world(a_claim(state=ClaimState.TERMINATING))
    assert puts(sync(world, an_observation(nodes=(report,)), RULES), Node) == {}
    assert puts(sync(a_world(), an_observation(nodes=(report,)), RULES), Node) == {}


def test_one_listing_without_the_machine_is_not_enough() -> None:
    claim = a_claim(**IDLE)
    first = claim_after(claim, an_observation(machines=(), at=NOW + 100))
    assert (first.state, first.absent_since) == (ClaimState.READY, NOW + 100)
    soon = claim_after(first, an_observation(machines=(), at=NOW + 130))
    assert soon.state is ClaimState.READY
    later = claim_after(first, an_observation(machines=(), at=NOW + 161))
    assert (later.state, later.ended_at) == (ClaimState.GONE, NOW + 100)


def test_a_machine_that_shows_again_was_never_absent() -> None:
    claim = a_claim(absent_since=NOW, **IDLE)
    seen = claim_after(claim, an_observation(machines=(a_machine(),)))
    assert seen.absent_since is None


def test_a_young_machine_that_is_not_listed_yet_is_not_missed() -> None:
    claim = a_claim(launched_at=NOW - 5, **IDLE)
    assert claim_after(claim, an_observation(machines=())) == claim


def test_a_listing_that_failed_concludes_nothing() -> None:
    observation = Observation(
        at=NOW + 1e5, heard_since=0, machines={"aws": Unknown("throttled", NOW)}
    )
    assert sync(a_world(a_claim(**IDLE)), observation, RULES) == ()


def test_an_ended_machine_takes_its_node_and_run_along_and_is_settled() -> None:
    ended = a_machine(state=MachineState.ENDED, ended_at=NOW + 30, end_reason="taken")
    run = a_run(claim_ids=(ClaimId("c1"),), pool=PoolName("cloud"))
    world = a_world(
        a_claim(node_id=NodeId("n1")),
        a_burst_pool(),
        burst_node(),
        run,
        a_job(state=JobState.RUNNING),
    )
    bundles = sync(world, an_observation(machines=(ended,), nodes=(), at=NOW + 40), RULES)
    claim = puts(bundles, Claim)["c1"]
    assert claim.state is ClaimState.GONE
    assert [step.state for step in claim.history[-2:]] == ["lost", "gone"]
    assert puts(bundles, Node)["n1"].state is NodeState.GONE
    assert puts(bundles, Run)["j1.1"].live is False
    assert puts(bundles, Job)["j1"].state is JobState.PENDING
    money = {entry.kind: entry.amount_micros for entry in posts(bundles)}
    assert money == {EntryKind.CHARGE: 25_000, EntryKind.RELEASE: 900_000}


def test_an_ending_machine_is_lost_but_not_settled_before_it_has_ended() -> None:
    claim = claim_after(
        a_claim(**IDLE), an_observation(machines=(a_machine(state=MachineState.ENDING),))
    )
    assert (claim.state, claim.held_micros) == (ClaimState.LOST, 900_000)


def test_a_terminating_claim_without_a_machine_waits_out_the_call_and_two_listings() -> None:
    claim = a_claim(
        state=ClaimState.TERMINATING, machine_id=None, launched_at=None, last_attempt_at=NOW
    )
    early = claim_after(claim, an_observation(machines=(), at=NOW + 119))
    assert early.absent_since is None
    first = claim_after(claim, an_observation(machines=(), at=NOW + 121))
    assert (first.state, first.absent_since) == (ClaimState.TERMINATING, NOW + 121)
    gone = claim_after(first, an_observation(machines=(), at=NOW + 182))
    assert gone.state is ClaimState.GONE


def test_a_terminating_claim_that_was_never_launched_is_settled_too() -> None:
    steps = (Step("requested", NOW - 10), Step("terminating", NOW))
    claim = a_claim(state=ClaimState.TERMINATING, machine_id=None, launched_at=None, history=steps)
    early = claim_after(claim, an_observation(machines=(), at=NOW + 119))
    assert early.absent_since is None
    first = claim_after(claim, an_observation(machines=(), at=NOW + 120))
    assert claim_after(first, an_observation(machines=(), at=NOW + 180)).state is ClaimState.GONE


def test_a_terminating_claim_whose_machine_shows_late_learns_its_name() -> None:
    claim = a_claim(state=ClaimState.TERMINATING, machine_id=None, launched_at=None)
    found = claim_after(claim, an_observation(machines=(a_machine(),)))
    assert (found.state, found.machine_id) == (ClaimState.TERMINATING, "i-1")


def test_a_claim_never_charged_for_a_machine_that_never_was() -> None:
    claim = a_claim(
        state=ClaimState.TERMINATING,
        machine_id=None,
        launched_at=None,
        last_attempt_at=NOW - 1000,
        absent_since=NOW - 100,
        history=(),
        requested_at=NOW - 1000,
    )
    bundles = sync(a_world(claim), an_observation(machines=()), RULES)
    assert [entry.kind for entry in posts(bundles)] == [EntryKind.RELEASE]


def test_a_requested_claim_is_settled_by_repeating_its_request_and_not_by_absence() -> None:
    claim = a_claim(state=ClaimState.REQUESTED)
    assert claim_after(claim, an_observation(machines=(), at=NOW + 1e5)) == claim


def test_a_machine_that_never_joins_is_ended_and_its_offer_rests() -> None:
    claim = a_claim(state=ClaimState.BOOTING, boot_deadline_at=NOW - 1)
    bundles = sync(a_world(claim), an_observation(machines=(a_machine(),)), RULES)
    assert puts(bundles, Claim)["c1"].state is ClaimState.TERMINATING
    assert list(puts(bundles, Breaker)) == [f"offer:{claim.offer.id}"]


def after_boots(
    *failed: Claim, world: World | None = None, at: float = NOW, **machine: Any
) -> tuple[dict[str, Breaker], Learned]:
    """Breakers and counts after a pass in which these claims' machines never joined."""
    world = world or a_world()
    bundles = sync(
        replace(world, claims={claim.id: claim for claim in failed}),
        an_observation(
            at=at,
            machines=tuple(
                a_machine(str(claim.id), str(claim.machine_id), **machine) for claim in failed
            ),
        ),
        RULES,
    )
    learned = [c.learned for b in bundles for c in b.changes if isinstance(c, Learn)]
    return puts(bundles, Breaker), learned[-1] if learned else world.learned


def booting(number: int, machine_type: str = "g5.xlarge", **fields: Any) -> Claim:
    return a_claim(
        f"c{number}",
        ClaimState.BOOTING,
        machine_id=MachineId(f"i-{number}"),
        boot_deadline_at=NOW - 1,
        offer=an_offer(machine_type=machine_type),
        **fields,
    )


def test_machines_in_a_row_that_never_join_close_their_type_and_their_pools_image() -> None:
    two, learned = after_boots(booting(1), booting(2))
    assert [b for b in two.values() if b.of_boots] == []
    assert learned.boot_failures == {"boot:cloud": 2, "boot:cloud/g5.xlarge": 2}
    three, _ = after_boots(booting(3), world=a_world(learned=learned))
    wait_s = {b.scope: b.open_until - NOW for b in three.values() if b.of_boots}
    assert wait_s == {"boot:cloud": 300, "boot:cloud/g5.xlarge": 300}
    assert three["boot:cloud"].cause == "3 machines in a row never joined"


def test_of_two_types_that_never_join_the_image_is_to_blame_and_neither_type() -> None:
    found, _ = after_boots(booting(1), booting(2, "g6.xlarge"), booting(3, "g5.2xlarge"))
    assert [b.scope for b in found.values() if b.of_boots] == ["boot:cloud"]


def test_a_machine_that_ends_while_it_boots_has_never_joined_unless_its_cloud_took_it() -> None:
    claims = [replace(booting(n), boot_deadline_at=NOW + 900) for n in (1, 2, 3)]
    ended = {"state": MachineState.ENDED, "ended_at": NOW}
    found, _ = after_boots(*claims, **ended)
    assert "boot:cloud" in found
    found, learned = after_boots(*claims, **ended, interrupted=True)
    assert (found, learned.boot_failures) == ({}, {})


def test_each_further_failure_doubles_the_wait_up_to_half_an_hour() -> None:
    waits = []
    learned = Learned(boot_failures={"boot:cloud": 2})
    at, breaker = NOW, None
    for number in range(6):
        world = a_world(learned=learned, breakers={breaker.scope: breaker} if breaker else {})
        found, learned = after_boots(booting(number), world=world, at=at)
        breaker = found["boot:cloud"]
        waits.append(breaker.open_until - at)
        at = breaker.open_until + 1
    assert waits == [300, 600, 1200, 1800, 1800, 1800]


def test_a_machine_that_joins_clears_its_type_and_image_and_one_that_is_had_does_not() -> None:
    scopes = ("boot:cloud", "boot:cloud/g5.xlarge", "boot:cloud/p5")
    breakers = {s: replace(Breaker.opened(s, "never joined", at=NOW - 900)) for s in scopes}
    failures = dict.fromkeys(scopes, 3)
    claim = a_claim(state=ClaimState.BOOTING)
    world = a_world(
        claim, a_burst_pool(), breakers=breakers, learned=Learned(boot_failures=failures)
    )
    report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"))
    bundles = sync(world, an_observation(nodes=(report,)), RULES)
    changes = [change for bundle in bundles for change in bundle.changes]
    assert [c.id for c in changes if isinstance(c, Remove)] == list(scopes[:2])
    (learned,) = (c.learned for c in changes if isinstance(c, Learn))
    assert learned.boot_failures == {"boot:cloud/p5": 3}
    asked = a_claim(state=ClaimState.REQUESTED, requested_at=NOW)
    receipt = Receipt(effect=LaunchMachine(claim=asked), at=NOW, machine=a_machine())
    had = apply_receipts(replace(world, claims={asked.id: asked}), (receipt,))
    assert not [c for b in had for c in b.changes if isinstance(c, Remove)]


def test_an_interruption_notice_cordons_the_claim_and_a_rebalance_hint_does_not() -> None:
    def notice(kind: NoticeKind) -> Observation:
        told = Notice(machine_id=MachineId("i-1"), kind=kind, at=NOW + 120)
        return an_observation(machines=(a_machine(),), notices=(told,))

    claim = claim_after(a_claim(**IDLE), notice(NoticeKind.INTERRUPTION))
    assert (claim.state, claim.notice_at) == (ClaimState.CORDONED, NOW + 120)
    assert claim_after(claim, notice(NoticeKind.INTERRUPTION)) == claim
    hinted = claim_after(a_claim(**IDLE), notice(NoticeKind.REBALANCE))
    assert (hinted.state, hinted.notice_at) == (ClaimState.READY, None)
    assert hinted.rebalance_at == NOW + 120
    assert claim_after(hinted, notice(NoticeKind.REBALANCE)) == hinted


def test_a_notice_heard_by_the_machine_itself_counts_too() -> None:
    report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"), notice_at=NOW + 5)
    claim = claim_after(
        a_claim(node_id=NodeId("n1"), **IDLE), an_observation(nodes=(report,)), burst_node()
    )
    assert (claim.state, claim.notice_at) == (ClaimState.CORDONED, NOW + 5)


def test_a_hint_heard_by_the_machine_itself_is_kept_as_one_from_its_cloud() -> None:
    report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"), rebalance_at=NOW - 5)
    claim = claim_after(
        a_claim(node_id=NodeId("n1"), **IDLE), an_observation(nodes=(report,)), burst_node()
    )
    assert (claim.state, claim.rebalance_at) == (ClaimState.READY, NOW - 5)


def test_of_two_words_about_one_end_the_sooner_stands_whichever_comes_first() -> None:
    def from_queue(at: float) -> Observation:
        notice = Notice(machine_id=MachineId("i-1"), kind=NoticeKind.INTERRUPTION, at=at)
        return an_observation(machines=(a_machine(),), notices=(notice,))

    def from_machine(at: float) -> Observation:
        report = a_node_report(claim_id=ClaimId("c1"), pool=PoolName("cloud"), notice_at=at)
        return an_observation(nodes=(report,))

    early, late = NOW + 100, NOW + 118
    held = a_claim(node_id=NodeId("n1"), **IDLE)
    for first, second in ((from_queue, from_machine), (from_machine, from_queue)):
        once = claim_after(held, first(late), burst_node())
        assert once.notice_at == late
        assert claim_after(once, second(late + 0.5), burst_node()) == once
        assert claim_after(once, second(early), burst_node()).notice_at == early
        sooner = claim_after(held, first(early), burst_node())
        assert claim_after(sooner, second(late), burst_node()) == sooner


def test_a_notice_is_recorded_when_the_store_holds_it_or_it_is_nobodys() -> None:
    ours, foreign = (
        Notice(machine_id=MachineId(name), kind=NoticeKind.INTERRUPTION, at=NOW + 120)
        for name in ("i-1", "i-foreign")
    )
    hint = replace(ours, kind=NoticeKind.REBALANCE)

    def left(claims: tuple[Claim, ...], at: float = NOW, *machines: Machine) -> set[Notice]:
        told = (ours, foreign, hint)
        observation = an_observation(at=at, machines=machines, notices=told)
        return set(told) - set(recorded(a_world(*claims), observation).get("aws", ()))

    assert left((a_claim(),)) == {ours, hint}
    assert left((a_claim(notice_at=NOW + 120),)) == {hint}
    assert left((a_claim(notice_at=NOW + 120, rebalance_at=NOW),)) == set()
    # a launch that is unanswered may have made any of them
    nameless = a_claim("c2", ClaimState.REQUESTED)
    assert left((a_claim(), nameless)) == {ours, hint, foreign}
    assert left((nameless,), NOW + 421) == set()
    # listed as ours, adopted by no claim yet
    assert left((), NOW, a_machine()) == {ours, hint}


def test_a_silent_node_takes_no_new_runs_until_it_is_heard_again() -> None:
    world = a_world(a_node(), a_local_pool())
    silent = an_observation(nodes=(a_node_report(),), at=NOW + 30)
    node = puts(sync(world, silent, RULES), Node)["n1"]
    assert (node.state, node.cordon_cause) == (NodeState.CORDONED, "silent")
    heard = an_observation(nodes=(a_node_report(heard_at=NOW + 40),), at=NOW + 41)
    node = puts(sync(a_world(node), heard, RULES), Node)["n1"]
    assert (node.state, node.cordon_cause) == (NodeState.READY, "")


def test_a_lost_node_comes_back_by_a_heartbeat_and_not_by_our_restart() -> None:
    lost = a_node(state=NodeState.LOST)
    restarted = an_observation(nodes=(a_node_report(),), at=NOW + 9001, heard_since=NOW + 9000)
    assert sync(a_world(lost), restarted, RULES) == ()
    heard = an_observation(nodes=(a_node_report(heard_at=NOW + 9001),), at=NOW + 9001)
    assert puts(sync(a_world(lost), heard, RULES), Node)["n1"].state is NodeState.READY


def test_a_node_that_was_to_take_no_runs_still_takes_none_when_it_comes_back() -> None:
    lost = a_node(state=NodeState.LOST, cordon_cause="emptied by olga", drain_by=NOW + 60)
    heard = an_observation(nodes=(a_node_report(heard_at=NOW),))
    node = puts(sync(a_world(lost), heard, RULES), Node)["n1"]
    assert (node.state, node.cordon_cause) == (NodeState.CORDONED, "emptied by olga")
    assert node.drain_by == NOW + 60
    assert node.to(NodeState.READY, at=NOW).drain_by is None


def test_an_operators_cordon_outlasts_silence() -> None:
    node = a_node(state=NodeState.CORDONED, cordon_cause="maintenance")
    heard = an_observation(nodes=(a_node_report(heard_at=NOW),))
    assert sync(a_world(node), heard, RULES) == ()


def test_a_node_that_says_goodbye_is_gone_and_one_unknown_stays_unknown() -> None:
    leaving = an_observation(nodes=(a_node_report(left=True),))
    assert puts(sync(a_world(a_node()), leaving, RULES), Node)["n1"].state is NodeState.GONE
    assert sync(a_world(), leaving, RULES) == ()


def test_a_changed_inventory_is_written_down() -> None:
    report = a_node_report(memory_gib=256)
    node = puts(sync(a_world(a_node()), an_observation(nodes=(report,)), RULES), Node)["n1"]
    assert node.memory_gib == 256


def test_a_claim_is_idle_from_when_nothing_runs_on_it() -> None:
    claim = a_claim(node_id=NodeId("n1"))
    assert claim_after(claim, an_observation()).idle_since == NOW
    run = a_run(claim_ids=(ClaimId("c1"),))
    busy = replace(claim, idle_since=NOW - 5)
    assert claim_after(busy, an_observation(), run).idle_since is None


def test_only_old_machines_of_ours_without_a_live_claim_are_orphans() -> None:
    def found(*machines: object) -> tuple[str, ...]:
        facts = MachineFacts(machines)  # type: ignore[arg-type]
        return tuple(m.id for m in orphans(facts, {ClaimId("c1"): a_claim()}, NOW, RULES))

    old = NOW - 61
    assert found(a_machine(launched_at=old)) == ()
    assert found(a_machine("c9", launched_at=old)) == ("i-1",)
    assert found(a_machine(None, launched_at=old)) == ("i-1",)
    assert found(a_machine("c9", launched_at=NOW - 59)) == ()
    assert found(a_machine("c9", launched_at=old, state=MachineState.ENDED)) == ()
    assert found(a_machine("c1", "i-2", launched_at=old)) == ("i-2",)


def test_a_node_whose_agent_is_ending_gets_nothing_new_until_it_is_back() -> None:
    closing = an_observation(nodes=(a_node_report(closing=True),))
    node = puts(sync(a_world(a_node()), closing, RULES), Node)["n1"]
    assert (node.state, node.cordon_cause) == (NodeState.CORDONED, "closing")
    assert sync(a_world(node), closing, RULES) == ()
    back = an_observation(nodes=(a_node_report(),))
    assert puts(sync(a_world(node), back, RULES), Node)["n1"].state is NodeState.READY


# --- prices ------------------------------------------------------------------------------------


def _priced(micros: int, at: float) -> Any:
    offers = {"aws": Known((an_offer(price_micros_per_hour=micros),), at)}
    return an_observation(at=at, machines=(a_machine(),), offers=offers)


def test_a_price_that_changes_under_a_machine_is_paid_from_then_on() -> None:
    """A dollar an hour for half an hour, two for the next, by the price that is observed."""
    offer = an_offer(price_follows_market=True)
    claim = a_claim("c1", offer=offer, launched_at=NOW, held_micros=3_000_000)
    world = a_world(claim, a_burst_pool())
    for minutes, micros in ((10, 1_000_000), (30, 2_000_000), (40, 2_000_000)):
        at = NOW + minutes * 60
        for bundle in sync(world, _priced(micros, at), RULES):
            claims = [
                c.entity
                for c in bundle.changes
                if isinstance(c, Put) and isinstance(c.entity, Claim)
            ]
            world = replace(world, claims={**world.claims, **{c.id: c for c in claims}})
    (claim,) = world.claims.values()
    assert [(s.at - NOW, s.micros_per_hour) for s in claim.price_steps] == [(1800.0, 2_000_000)]
    gone = a_machine(state=MachineState.ENDED, launched_at=NOW, ended_at=NOW + 3600)
    done = sync(world, an_observation(at=NOW + 3700, machines=(gone,)), RULES)
    charges = [
        change.entry.amount_micros
        for bundle in done
        for change in bundle.changes
        if isinstance(change, Post) and change.entry.kind is EntryKind.CHARGE
    ]
    assert charges == [500_000 + 1_000_000]


def test_the_price_of_a_machine_that_keeps_its_own_is_not_followed() -> None:
    world = a_world(a_claim("c1", launched_at=NOW), a_burst_pool())
    assert not [
        change
        for bundle in sync(world, _priced(9_000_000, NOW + 60), RULES)
        for change in bundle.changes
        if isinstance(change, Put)
        and isinstance(change.entity, Claim)
        and change.entity.price_steps
    ]
