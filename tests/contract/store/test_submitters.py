"""Many submitters at once against one budget: exactly what fits is held, and launched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import JobId
from hybrid.domain.job_spec import Market
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.money import to_usd
from hybrid.planning.claims import machine_hold_micros
from hybrid.ports.store import Bundle, DropCause, Post, Put
from hybrid.simulation.drive import Control
from tests.contract.store.conftest import Place, WholeStore
from tests.doubles.build import NOW, a_burst_pool, a_claim, a_job, an_offer
from tests.doubles.committing import a_budget, an_entry, drops, set_budgets
from tests.doubles.sim import CLOUD, KIND, a_training, a_world

SUBMITTERS, FIT = 200, 10
HOLD = 700_000


def test_of_two_hundred_claims_at_once_exactly_those_that_fit_are_opened(place: Place) -> None:
    """Every writer on its own, and no loop that would put them in a row."""
    store = place.open()
    set_budgets(store, a_budget(limit_usd=float(to_usd(FIT * HOLD + HOLD - 1))))
    together = Barrier(SUBMITTERS)

    def open_claim(number: int) -> bool:
        together.wait(60)
        claim = a_claim(f"c{number}", ClaimState.REQUESTED, version=0, held_micros=HOLD)
        hold = an_entry(f"hold:{claim.id}:0", HOLD, claim_id=claim.id)
        done = store.commit([Bundle(id=claim.id, changes=(Put(claim), Post(hold)))], at=NOW)
        assert set(drops(done).values()) <= {DropCause.OVER_BUDGET}
        return bool(done.applied)

    with ThreadPoolExecutor(SUBMITTERS) as threads:
        opened = list(threads.map(open_claim, range(SUBMITTERS)))
    assert sum(opened) == FIT
    assert len(store.claims()) == FIT
    (balance,) = store.balances(now=NOW)
    assert (balance.charged_micros, balance.held_micros) == (0, FIT * HOLD)
    assert store.verify_balances(now=NOW) == ()


def test_of_two_hundred_jobs_submitted_at_once_exactly_those_that_fit_get_machines(
    store: WholeStore,
) -> None:
    """Two hundred people and the real loop; the cloud has room for all of them."""
    world = a_world()
    cloud = world.clouds["aws"]
    control = Control(store, world)
    spec = a_training(20, value_per_hour=500)
    pool = a_burst_pool("cloud", **{k: v for k, v in CLOUD.items() if k not in ("kind", "name")})
    offer = an_offer(
        market=Market.ON_DEMAND,
        price_micros_per_hour=cloud.prices[KIND, Market.ON_DEMAND],
        price_ceiling_micros_per_hour=cloud.prices[KIND, Market.ON_DEMAND],
    )
    hold = machine_hold_micros(a_job(spec=spec), offer, pool.spec)  # type: ignore[arg-type]
    limit = to_usd(FIT * hold + hold - 1)
    control.apply_policy(f"budgets: [{{name: all, limit_usd: {limit}, period: lifetime}}]")
    ceilings = {"machines": 1000, "usd_per_hour": 100_000}
    control.apply_pool({**CLOUD, "markets": ["on_demand"], "ceilings": ceilings})
    together = Barrier(SUBMITTERS + 1)

    def submit(number: int) -> JobId:
        together.wait(60)
        return control.submit(f"j{number}", spec, user=f"user-{number % 20}")

    with ThreadPoolExecutor(SUBMITTERS) as threads:
        submitted = [threads.submit(submit, number) for number in range(SUBMITTERS)]
        together.wait(60)
        while not all(each.done() for each in submitted):
            control.tick()  # while they submit
    for _ in range(5):
        control.tick()
    control.loop.stop()
    assert {each.result() for each in submitted} == set(store.load(now=world.clock.now()).jobs)
    assert (cloud.launches, len(store.claims())) == (FIT, FIT)
    (balance,) = store.balances(now=world.clock.now())
    assert balance.held_micros == FIT * hold
    assert Decimal(balance.budget.limit_usd) == limit
    holds = [e for e in store.entries() if e.kind is EntryKind.HOLD]
    assert len({e.claim_id for e in holds}) == FIT
    reasons = {
        decision.reason.said_code  # type: ignore[union-attr]
        for job_id in map(JobId, (f"j{n}" for n in range(SUBMITTERS)))
        if (decision := store.decision(job_id)) is not None
        and decision.reason is not None
        and decision.verdict == "wait"
    }
    assert reasons == {"over_budget"}
