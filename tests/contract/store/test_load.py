"""What the loop starts from, and that what changed since adds up to the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import CLAIM_TRANSITIONS, ClaimState
from hybrid.domain.ids import JobId, OfferId
from hybrid.domain.job import JOB_TRANSITIONS, JobState
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.node import NODE_TRANSITIONS, NodeState
from hybrid.domain.plan import Decision, Verdict
from hybrid.domain.run import RUN_TRANSITIONS, RunState
from hybrid.domain.sightings import Sightings
from hybrid.ports.store import Bundle, Change, Decide, Learn, Put, Remove, SetPolicy, World
from hybrid.reconcile.views import merged
from tests.contract.store.conftest import Place, WholeStore
from tests.doubles.build import NOW, a_claim, a_job, a_local_pool, a_node, a_run, a_slot
from tests.doubles.committing import a_budget, change, post, put, set_budgets


def a_decision(job_id: str, at: float = NOW) -> Decision:
    return Decision(
        job_id=JobId(job_id),
        at=at,
        verdict=Verdict.WAIT,
        sentence="waits",
        chosen="",
        policy_version=0,
    )


def test_a_full_load_has_what_is_live_and_nothing_else(store: WholeStore) -> None:
    put(
        store,
        a_job("j1", version=0),
        a_job("j2", JobState.CANCELLED, version=0),
        a_run("j1", 1, RunState.ENDED, version=0),
        a_run("j1", 2, version=0),
        a_claim("c1", version=0),
        a_claim("c2", ClaimState.GONE, version=0),
        a_claim("c3", ClaimState.FAILED, version=0),
        a_node("n1", version=0),
        a_node("n2", version=0, state=NodeState.GONE),
        replace(a_local_pool("here"), version=0),
        replace(a_local_pool("gone"), version=0, removed=True),
    )
    change(store, Decide(a_decision("j1")), Decide(a_decision("j2")))
    world = store.load(now=NOW)
    found: tuple[dict[Any, Any], ...] = (
        dict(world.jobs),
        dict(world.runs),
        dict(world.claims),
        dict(world.nodes),
        dict(world.pools),
        dict(world.decisions),
    )
    assert [list(rows) for rows in found] == [["j1"], ["j1.2"], ["c1"], ["n1"], ["here"], ["j1"]]


def test_what_changed_since_includes_what_ended(store: WholeStore) -> None:
    put(store, a_job("j1", version=0), a_job("j2", version=0))
    before = store.load(now=NOW)
    job = store.job(JobId("j1"))
    assert job is not None
    put(store, job.to(JobState.CANCELLED, at=NOW))
    since = store.load(now=NOW, since=before.revision)
    assert {id_: job.state for id_, job in since.jobs.items()} == {"j1": JobState.CANCELLED}
    assert since.revision == before.revision + 1


def test_nothing_has_changed_since_the_last_revision(store: WholeStore) -> None:
    put(store, a_job("j1", version=0), Breaker.opened("zone:a", "none", at=NOW))
    set_budgets(store, a_budget())
    world = store.load(now=NOW)
    since = store.load(now=NOW, since=world.revision)
    assert (since.jobs, since.revision) == ({}, world.revision)
    assert since.breakers == world.breakers
    assert since.balances == world.balances


def test_balances_move_into_a_new_period_without_a_commit(store: WholeStore) -> None:
    from hybrid.domain.ledger_entry import EntryKind

    set_budgets(store, a_budget(period="rolling", rolling_days=1))
    change(store, post("c", 5, EntryKind.CHARGE))
    world = store.load(now=NOW)
    later = store.load(now=NOW + 90_000, since=world.revision)
    assert [b.charged_micros for b in world.balances] == [5]
    assert [b.charged_micros for b in later.balances] == [0]


class Walk:
    """Random bundles over a small world, some of them bound to be dropped."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.serial = 0

    def bundles(self, world: World) -> list[Bundle]:
        return [
            Bundle(id=f"b{i}", changes=tuple(self._changes(world)))
            for i in range(self.dice.randrange(1, 5))
        ]

    def _changes(self, world: World) -> list[Change]:
        return [
            self.dice.choice(
                (
                    self._submit,
                    self._job,
                    self._place,
                    self._run,
                    self._claim,
                    self._node,
                    self._pool,
                    self._breaker,
                    self._sightings,
                    self._decide,
                    self._money,
                    self._rest,
                )
            )(world)
            for _ in range(self.dice.randrange(1, 4))
        ]

    def _new(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}{self.serial}"

    def _submit(self, world: World) -> Change:
        return Put(a_job(self._new("j"), version=0))

    def _job(self, world: World) -> Change:
        if not world.jobs:
            return self._submit(world)
        job = self.dice.choice(list(world.jobs.values()))
        states = sorted(JOB_TRANSITIONS.allowed[job.state])
        stale = self.dice.random() < 0.1
        return Put(replace(job.to(self.dice.choice(states), at=NOW), version=job.version - stale))

    def _place(self, world: World) -> Change:
        if not world.jobs:
            return self._submit(world)
        job = self.dice.choice(list(world.jobs.values()))
        gpu = f"g{self.dice.randrange(6)}"
        run = a_run(job.id, self.serial, RunState.ASSIGNED, version=0, slots=(a_slot("n1", gpu),))
        self.serial += 1
        return Put(run)

    def _run(self, world: World) -> Change:
        if not world.runs:
            return self._place(world)
        run = self.dice.choice(list(world.runs.values()))
        return Put(run.to(self.dice.choice(sorted(RUN_TRANSITIONS.allowed[run.state])), at=NOW))

    def _claim(self, world: World) -> Change:
        if not world.claims or self.dice.random() < 0.3:
            return Put(a_claim(self._new("c"), ClaimState.REQUESTED, version=0))
        claim = self.dice.choice(list(world.claims.values()))
        states = sorted(CLAIM_TRANSITIONS.allowed[claim.state])
        return Put(claim.to(self.dice.choice(states), at=NOW))

    def _node(self, world: World) -> Change:
        name = f"n{self.dice.randrange(3)}"
        node = next((node for id_, node in world.nodes.items() if id_ == name), None)
        if node is None:
            return Put(a_node(name, version=0))
        return Put(node.to(self.dice.choice(sorted(NODE_TRANSITIONS.allowed[node.state])), at=NOW))

    def _pool(self, world: World) -> Change:
        name = f"p{self.dice.randrange(3)}"
        pool = next((pool for id_, pool in world.pools.items() if id_ == name), None)
        if pool is None:
            return Put(replace(a_local_pool(name), version=0))
        return Put(replace(pool, removed=self.dice.random() < 0.5))

    def _breaker(self, world: World) -> Change:
        scope = f"zone:{self.dice.randrange(3)}"
        breaker = world.breakers.get(scope)
        if breaker is None:
            return Put(Breaker.opened(scope, "none", at=NOW))
        if self.dice.random() < 0.5:
            return Remove("breaker", scope)
        return Put(breaker.tripped("again", at=NOW + 1000))

    def _sightings(self, world: World) -> Change:
        offer_id = OfferId(f"o{self.dice.randrange(3)}")
        seen = world.sightings.get(offer_id, Sightings(offer_id=offer_id))
        self.serial += 1
        return Put(seen.saw(self.dice.random() < 0.5, NOW + self.serial))

    def _decide(self, world: World) -> Change:
        if not world.jobs:
            return self._submit(world)
        return Decide(a_decision(self.dice.choice(list(world.jobs)), at=NOW + self.serial))

    def _money(self, world: World) -> Change:
        return post(self._new("e"), self.dice.randrange(400_000))

    def _rest(self, world: World) -> Change:
        if self.dice.random() < 0.5:
            return SetPolicy("{}", version=world.policy_version, actor="ann", at=NOW)
        return Learn(Learned(boot_s={"cloud": Estimate(float(self.serial), 1)}))


@pytest.mark.parametrize("seed", range(3))
def test_what_changed_since_adds_up_to_a_full_load(place: Place, seed: int) -> None:
    store, walk = place.open(), Walk(seed)
    set_budgets(store, a_budget(limit_usd=2))
    world = lagging = store.load(now=NOW)
    applied = dropped = 0
    for step in range(30):
        done = store.commit(walk.bundles(world), at=NOW)
        applied, dropped = applied + len(done.applied), dropped + len(done.dropped)
        full = store.load(now=NOW)
        assert merged(world, store.load(now=NOW, since=world.revision)) == full
        world = full
        if step % 7 == 6:  # several revisions at once
            lagging = merged(lagging, store.load(now=NOW, since=lagging.revision))
            assert lagging == full
    assert applied > 20
    assert dropped > 5
