"""Reads what bundles of changes would write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from hybrid.domain.event import Event
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.ports.store import Bundle, Note, Post, Put

E = TypeVar("E")


def puts(bundles: Iterable[Bundle], kind: type[E]) -> dict[str, E]:
    """The last written entity of a kind, by id."""
    found: dict[str, E] = {}
    for bundle in bundles:
        for change in bundle.changes:
            if isinstance(change, Put) and isinstance(change.entity, kind):
                entity = change.entity
                names = (getattr(entity, name, None) for name in ("id", "scope", "offer_id"))
                found[next(str(name) for name in names if name)] = entity
    return found


def posts(bundles: Iterable[Bundle]) -> list[LedgerEntry]:
    """The ledger entries."""
    return [c.entry for bundle in bundles for c in bundle.changes if isinstance(c, Post)]


def notes(bundles: Iterable[Bundle]) -> list[Event]:
    """The events."""
    return [c.event for bundle in bundles for c in bundle.changes if isinstance(c, Note)]
