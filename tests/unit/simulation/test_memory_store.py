"""What the store's suite cannot see: that it is cheap where simulations need it to be."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.ids import JobId
from hybrid.domain.ledger_entry import EntryKind
from hybrid.domain.reasons import Said, WaitingForGpus
from hybrid.ports.store import Bundle, Decide, Put
from hybrid.simulation.memory_store import MemoryStore
from tests.contract.store.test_load import a_decision
from tests.doubles.build import NOW, a_job
from tests.doubles.committing import a_budget, change, post, put, set_budgets


def test_what_changed_since_is_found_without_walking_over_the_rest() -> None:
    store = MemoryStore()
    put(store, *(a_job(f"j{i}", version=0) for i in range(500)))
    seen = store.load(now=NOW).revision
    rows = store._rows.changed
    for i in (7, 300):
        job = store.job(JobId(f"j{i}"))
        assert job is not None
        put(store, replace(job, reason="touched"))
    assert list(store.load(now=NOW, since=seen).jobs) == ["j300", "j7"]
    # the newest changes stand last, so that looking for them ends at the first old one
    assert list(rows)[-2:] == [("job", "j7"), ("job", "j300")]
    assert len(rows) == 500


def test_a_row_is_the_value_that_was_written_and_not_a_copy() -> None:
    store = MemoryStore()
    spec = a_job().spec
    put(store, a_job("j1", version=0, spec=spec))
    job = store.job(JobId("j1"))
    assert job is not None
    assert job.spec is spec
    assert store.load(now=NOW).jobs[JobId("j1")] is job


def test_a_world_that_was_loaded_stays_as_it_was() -> None:
    store = MemoryStore()
    put(store, a_job("j1", version=0))
    before = store.load(now=NOW)
    put(store, a_job("j2", version=0))
    assert list(before.jobs) == ["j1"]


def test_a_decision_that_is_loaded_still_has_its_reason_and_one_that_is_asked_for_its_words() -> (
    None
):
    store = MemoryStore()
    why = WaitingForGpus("rack", 600.0, 3)
    put(store, a_job("j1", version=0))
    change(store, Decide(replace(a_decision("j1"), reason=why)))
    told = store.decision(JobId("j1"))
    assert told is not None
    assert told.reason == Said("waiting_for_gpus", str(why))
    assert told.same_as(store.load(now=NOW).decisions[JobId("j1")])


def test_a_balance_that_is_not_what_the_ledger_says_is_found() -> None:
    store = MemoryStore()
    set_budgets(store, a_budget(limit_usd=1))
    change(store, post("c1", 300_000, EntryKind.CHARGE))
    assert store.verify_balances(now=NOW) == ()
    (kept,) = store._rows.balances
    store._rows.balances = (replace(kept, charged_micros=1),)
    (wrong,) = store.verify_balances(now=NOW)
    assert (wrong.kept_charged_micros, wrong.true_charged_micros) == (1, 300_000)


def test_two_stores_share_nothing() -> None:
    one, two = MemoryStore("one"), MemoryStore("two")
    one.commit([Bundle(id="b", changes=(Put(a_job("j1", version=0)),))], at=NOW)
    assert two.job(JobId("j1")) is None
    assert (one.load(now=NOW).installation, two.load(now=NOW).installation) == ("one", "two")
