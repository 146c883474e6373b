"""Short words for committing to a store in tests."""

from __future__ import annotations

from typing import Any

from hybrid.domain.budget import Budget
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.ports.store import (
    Bundle,
    Change,
    Committed,
    DropCause,
    Entity,
    Post,
    Put,
    SetBudgets,
    Store,
)
from tests.doubles.build import NOW


def put(store: Store, *entities: Entity, at: float = NOW) -> Committed:
    """Write entities, all or none; they must go through."""
    return change(store, *(Put(entity) for entity in entities), at=at)


def change(store: Store, *changes: Change, at: float = NOW) -> Committed:
    """Make changes, all or none; they must go through."""
    done = store.commit([Bundle(id="b", changes=changes)], at=at)
    assert done.dropped == ()
    return done


def drops(done: Committed) -> dict[str, DropCause]:
    """Which bundles were dropped, and why."""
    return {drop.bundle_id: drop.cause for drop in done.dropped}


def a_budget(name: str = "org", limit_usd: float = 1, **fields: Any) -> Budget:
    """A lifetime budget of everybody."""
    return Budget(name=name, limit_usd=limit_usd, **{"period": "lifetime", **fields})


def set_budgets(store: Store, *budgets: Budget, at: float = NOW) -> None:
    """Let these budgets apply."""
    change(store, SetBudgets(budgets), at=at)


def an_entry(id_: str, micros: int, kind: EntryKind = EntryKind.HOLD, **fields: Any) -> LedgerEntry:
    """A line about claim ``c1`` of team ``red``."""
    defaults: dict[str, Any] = {
        "claim_id": ClaimId("c1"),
        "at": NOW,
        "team": "red",
        "user": "ann",
        "job_id": JobId("j1"),
    }
    return LedgerEntry(id=id_, kind=kind, amount_micros=micros, **{**defaults, **fields})


def post(id_: str, micros: int, kind: EntryKind = EntryKind.HOLD, **fields: Any) -> Post:
    """The change that appends such a line."""
    return Post(an_entry(id_, micros, kind, **fields))


def holding(id_: str, micros: int, **fields: Any) -> Bundle:
    """A bundle that holds money, named like its entry."""
    return Bundle(id=id_, changes=(post(id_, micros, **fields),))
