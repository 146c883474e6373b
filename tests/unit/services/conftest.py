"""A real store on a file of its own, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hybrid.ports.access import Role
from hybrid.ports.store import Bundle, Change, Put
from hybrid.services.access import Principal
from hybrid.services.live import Live
from hybrid.store import SqlStore
from tests.doubles.build import NOW


@dataclass
class HandClock:
    """Time as the test sets it."""

    at: float = NOW

    def now(self) -> float:
        """The time set."""
        return self.at


@dataclass
class Pokes:
    """Counts how often the loop was woken."""

    count: int = 0

    def __call__(self) -> None:
        self.count += 1


@dataclass
class Place:
    """A store with what services over it need."""

    store: SqlStore
    clock: HandClock = field(default_factory=HandClock)
    poke: Pokes = field(default_factory=Pokes)

    @property
    def live(self) -> Live:
        """A fresh view of the live rows."""
        return Live(self.store, self.clock)

    def put(self, *entities: Any) -> None:
        """Write new rows, whatever version the builders gave them."""
        from dataclasses import replace

        changes: tuple[Change, ...] = tuple(Put(replace(each, version=0)) for each in entities)
        done = self.store.commit([Bundle(id="given", changes=changes)], at=self.clock.now())
        assert done.dropped == ()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with SqlStore.open(f"sqlite:///{tmp_path}/hybrid.db") as store:
        yield Place(store)


@pytest.fixture
def admin() -> Principal:
    return Principal(name="root", role=Role.ADMIN)


@pytest.fixture
def ann() -> Principal:
    """A submitter of team red."""
    return Principal(name="ann", role=Role.SUBMITTER, teams=("red",))


@pytest.fixture
def bob() -> Principal:
    """A submitter of team blue."""
    return Principal(name="bob", role=Role.SUBMITTER, teams=("blue",))
