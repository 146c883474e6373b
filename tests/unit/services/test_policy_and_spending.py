"""The policy in force, budgets, usage and the event log."""

from __future__ import annotations

import pytest

from hybrid.domain.claim import Bargain, ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.job import JobState
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.run import RunState
from hybrid.ports.store import Bundle, Note, Post
from hybrid.runtime.rule_judge import RuleJudge
from hybrid.services.access import Principal
from hybrid.services.budgets import Budgets
from hybrid.services.errors import NotFound, Refused, Stale
from hybrid.services.happenings import Happenings
from hybrid.services.policy import Policies
from hybrid.services.spending import Spending
from policies.rules import Rule
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_run,
    a_slot,
)
from tests.unit.services.conftest import Place

BUDGETS = """
budgets:
  - {name: all, limit_usd: 100}
  - {name: red, scope: team, subject: red, limit_usd: 10}
  - {name: blue, scope: team, subject: blue, limit_usd: 20}
  - {name: ann, scope: user, subject: ann, limit_usd: 5}
  - {name: one, scope: job, subject: j2, limit_usd: 1}
"""


@pytest.fixture
def policies(place: Place) -> Policies:
    return Policies(place.store, place.clock, place.poke)


@pytest.fixture
def budgets(place: Place) -> Budgets:
    return Budgets(place.store, place.live, place.clock)


@pytest.fixture
def spending(place: Place) -> Spending:
    return Spending(place.store, place.live, place.clock)


def test_a_policy_and_its_budgets_come_into_force_together(
    policies: Policies, budgets: Budgets, admin: Principal, place: Place
) -> None:
    stored = policies.replace(BUDGETS, over=0, by="root", why="first")
    assert (stored.version, stored.actor, stored.why, stored.document) == (
        1,
        "root",
        "first",
        BUDGETS,
    )
    assert [b.balance.name for b in budgets.listing(admin)] == ["all", "red", "blue", "ann", "one"]
    policies.replace("budgets: [{name: all, limit_usd: 7}]", over=1, by="root")
    assert [b.balance.name for b in budgets.listing(admin)] == ["all"]
    assert place.poke.count == 2
    assert [e.subject for _, e in place.store.events()] == ["policy:1", "policy:2"]


def test_a_policy_is_not_put_over_one_that_was_not_read(policies: Policies) -> None:
    policies.replace("scheduling: fifo", over=0, by="root")
    with pytest.raises(Stale, match="version 1 is in force, not 0"):
        policies.replace("scheduling: priority", over=0, by="root")
    assert policies.current()[1].scheduling.strategy == "fifo"


def test_what_is_no_policy_is_refused_with_the_place_of_each_fault(policies: Policies) -> None:
    with pytest.raises(Refused) as caught:
        policies.replace("aging: {per_hour: fast}\nbrust: {}\n", over=0, by="root")
    assert caught.value.code == "invalid_policy"
    assert [(f.path, f.hint) for f in caught.value.errors] == [
        ("aging.per_hour", "write it without quotes or units"),
        ("brust", "did you mean burst?"),
    ]
    assert policies.store.policy().version == 0


def test_a_check_shows_what_would_change_and_changes_nothing(policies: Policies) -> None:
    policies.replace("aging: {per_hour: 4}", over=0, by="root")
    check = policies.check("aging: {per_hour: 8}\nspot: {notice_margin: 9s}")
    assert check.version.version == 1
    assert [(c.path, c.before, c.after) for c in check.changes] == [
        ("aging.per_hour", 4.0, 8.0),
        ("spot.notice_margin", "5s", "9s"),
    ]
    assert policies.store.policy().version == 1


def test_the_history_says_who_put_what_in_force_when_and_why(
    policies: Policies, place: Place
) -> None:
    policies.replace("scheduling: fifo", over=0, by="ann", why="simple")
    place.clock.at += 60
    policies.replace("scheduling: priority", over=1, by="bob", why="urgent jobs")
    assert [(v.version, v.actor, v.at - NOW, v.why) for v in policies.history()] == [
        (2, "bob", 60.0, "urgent jobs"),
        (1, "ann", 0.0, "simple"),
    ]
    assert [v.version for v in policies.history(before=2)] == [1]
    assert [v.version for v in policies.history(limit=1)] == [2]
    assert policies.version(1).document == "scheduling: fifo"
    assert policies.version(0).document == ""
    with pytest.raises(NotFound, match="no version 3 of the policy; they go from 0 to 2"):
        policies.version(3)


def test_an_earlier_version_comes_into_force_as_a_new_one(
    policies: Policies, budgets: Budgets, admin: Principal
) -> None:
    policies.replace(BUDGETS, over=0, by="ann")
    policies.replace("budgets: [{name: all, limit_usd: 7}]", over=1, by="bob")
    back = policies.rollback(1, over=2, by="ann", why="too tight")
    assert (back.version, back.document, back.why) == (3, BUDGETS, "back to version 1: too tight")
    assert len(budgets.listing(admin)) == 5
    with pytest.raises(Stale):
        policies.rollback(1, over=2, by="ann")
    with pytest.raises(NotFound):
        policies.rollback(9, over=3, by="ann")
    assert policies.rollback(0, over=3, by="ann").document == ""
    assert budgets.listing(admin) == ()


def test_people_see_the_budgets_that_cover_them(
    policies: Policies, budgets: Budgets, place: Place, ann: Principal, bob: Principal
) -> None:
    policies.replace(BUDGETS, over=0, by="root")
    place.put(a_job("j2", team="blue"))
    assert [b.balance.name for b in budgets.listing(ann)] == ["all", "red", "ann"]
    assert [b.balance.name for b in budgets.listing(bob)] == ["all", "blue", "one"]


def _entry(kind: EntryKind, micros: int, team: str = "red", at: float = NOW) -> Post:
    return Post(
        LedgerEntry(
            id=f"{kind}:{team}:{micros}:{at}",
            kind=kind,
            claim_id=ClaimId("c1"),
            amount_micros=micros,
            at=at,
            team=team,
            user="ann",
            job_id=JobId("j1"),
        )
    )


def test_usage_adds_up_gpu_hours_at_home_and_away_and_money(
    policies: Policies, spending: Spending, place: Place, ann: Principal, admin: Principal
) -> None:
    policies.replace("budgets: [{name: all, limit_usd: 100}]", over=0, by="root")
    place.put(
        a_local_pool(),
        a_burst_pool("cloud"),
        a_node("n1", 2),
        a_node("n2"),
        a_job("j1", JobState.SUCCEEDED, ended_at=NOW + 3600, attempts=2),
        a_job("j2", JobState.RUNNING, team="blue", attempts=1),
        a_run(
            "j1", 1, RunState.ENDED, slots=(a_slot("n1", "n1-g0", "n1-g1"),), ended_at=NOW + 1800
        ),
        a_run("j2", 1, slots=(a_slot("n2", "n2-g0", share=0.5),)),
        a_claim("c1", node_id=None),
        a_run(
            "j1",
            2,
            RunState.ENDED,
            claim_ids=(ClaimId("c1"),),
            slots=(a_slot("n9", "g"),),
            assigned_at=NOW + 1800,
            ended_at=NOW + 3600,
        ),
    )
    changes = (
        _entry(EntryKind.HOLD, 5_000_000),
        _entry(EntryKind.CHARGE, 1_250_000),
        _entry(EntryKind.SETTLEMENT, -250_000),
        _entry(EntryKind.RELEASE, 4_000_000),
    )
    assert not place.store.commit([Bundle(id="money", changes=changes)], at=NOW).dropped
    place.clock.at = NOW + 7200
    report = spending.usage(admin)
    assert [
        (t.team, t.local_gpu_s, t.cloud_gpu_s, t.charged_micros, t.held_micros, t.jobs)
        for t in report.teams
    ] == [
        ("blue", 3600.0, 0.0, 0, 0, 1),
        ("red", 3600.0, 1800.0, 1_000_000, 1_000_000, 1),
    ]
    assert [t.team for t in spending.usage(ann).teams] == ["red"]
    late = spending.usage(admin, since=NOW + 2700).teams
    assert [(t.team, t.local_gpu_s, t.cloud_gpu_s, t.charged_micros) for t in late] == [
        ("blue", 2250.0, 0.0, 0),
        ("red", 0.0, 900.0, 0),
    ]
    assert spending.usage(admin) == report


def test_a_team_sees_home_and_cloud_in_one_number_and_what_bursting_saved(
    spending: Spending, place: Place, admin: Principal
) -> None:
    weighed = Bargain(waiting_micros=9_000_000, cloud_micros=5_000_000, paid_micros=2_000_000)
    place.put(
        a_local_pool(chargeback_per_gpu_hour=0.5),
        a_burst_pool("cloud"),
        a_node("n1", 2),
        a_job("j1", JobState.SUCCEEDED, ended_at=NOW + 3600, attempts=1),
        a_run("j1", 1, RunState.ENDED, slots=(a_slot("n1", "n1-g0"),), ended_at=NOW + 3600),
        # runs still: as expected; gone: with what was charged; without a place at home: not weighed
        a_claim("c1", requested_at=NOW, bargain=weighed),
        a_claim("c2", ClaimState.GONE, requested_at=NOW, bargain=weighed, charged_micros=3_500_000),
        a_claim("c3", requested_at=NOW),
        a_claim("c4", ClaimState.FAILED, requested_at=NOW, bargain=weighed, launched_at=None),
        a_claim("c5", requested_at=NOW - 90 * 86_400, bargain=weighed),
    )
    place.clock.at = NOW + 7200
    (team,) = spending.usage(admin).teams
    assert (team.local_micros, team.saved_micros) == (500_000, 4_000_000 + 2_500_000)
    assert (team.weighed, team.unweighed) == (2, 1)


def test_the_rate_of_energy_is_charged_where_no_chargeback_is_set(
    spending: Spending, place: Place, admin: Principal
) -> None:
    place.put(
        a_local_pool(rate_per_gpu_hour=0.2),
        a_job("j1", JobState.RUNNING, attempts=1),
        a_run("j1", 1, slots=(a_slot("n1", "n1-g0", share=0.5),)),
    )
    place.clock.at = NOW + 3600
    assert spending.usage(admin).teams[0].local_micros == 100_000


def _happened(place: Place, *job_ids: str) -> None:
    changes = tuple(
        Note(Event(kind=EventKind.JOB, subject=job_id or "x", what="w", at=NOW, job_id=job_id))
        for job_id in job_ids
    )
    assert not place.store.commit([Bundle(id="events", changes=changes)], at=NOW).dropped


def test_watchers_see_what_is_about_their_jobs_or_about_none(
    place: Place, ann: Principal, bob: Principal, admin: Principal
) -> None:
    place.put(a_job("j1"), a_job("j2", team="blue"))
    _happened(place, "j1", "", "j2", "nowhere")
    happenings = Happenings(place.store)

    def seen(asker: Principal) -> list[str]:
        return [event.job_id for _, event in happenings.after(asker, 0)[1]]

    assert seen(ann) == ["j1", ""]
    assert seen(bob) == ["", "j2"]
    assert seen(admin) == ["j1", "", "j2", "nowhere"]
    number, events = happenings.after(ann, 2)
    assert (number, events) == (happenings.last(), ())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 20])
def test_the_newest_event_is_found(place: Place, count: int) -> None:
    happenings = Happenings(place.store)
    if count:
        _happened(place, *["j"] * count)
    newest = max((seq for seq, _ in place.store.events()), default=0)
    assert happenings.last() == newest
    _happened(place, "j")
    assert happenings.last() == newest + 1


def test_a_policy_whose_rules_fail_is_refused(place: Place) -> None:
    def load(name: str) -> Rule:
        if name == "missing":
            raise LookupError("there is no rule of kind 'missing'")
        return lambda _job, _world, settings: str(1 // int(settings["divisor"]))

    policies = Policies(place.store, place.clock, place.poke, RuleJudge(load))
    good = "rules: [{name: divides, settings: {divisor: 1}}]"
    policies.replace(good, over=0, by="root")
    for text, words in (
        ("rules: [{name: divides, settings: {divisor: 0}}]", "raised ZeroDivisionError"),
        ("rules: [{name: divides}]", "raised KeyError: 'divisor'"),
        ("rules: [{name: missing}]", "cannot be had: there is no rule"),
    ):
        for refused in (policies.check, lambda t: policies.replace(t, over=1, by="root")):
            with pytest.raises(Refused, match=words) as caught:
                refused(text)
            assert (caught.value.code, caught.value.errors[0].path) == ("broken_rule", "rules[0]")
    assert place.store.policy().version == 1
