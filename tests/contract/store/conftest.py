"""One suite for every implementation of the store's ports.

An implementation is a :class:`Place`: somewhere that a store can be opened, closed and opened
again with what was committed still there. A new one is added to ``PLACES``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from hybrid.domain.ids import NodeId
from hybrid.ports.access import ArtifactIndex, TokenStore
from hybrid.ports.mailbox import NodeMailbox
from hybrid.ports.store import Store
from hybrid.simulation.memory_store import MemoryStore
from hybrid.store import SqlStore
from hybrid.store.tables import metadata
from tests.doubles.private_postgres import HOW_TO_GET, PrivatePostgres, find_binaries


class WholeStore(Store, NodeMailbox, TokenStore, ArtifactIndex, Protocol):
    """All ports of what is remembered, as one object has them."""


@dataclass
class Place:
    """Where a store's data lies. ``url`` names it for another process."""

    url: str
    rung: list[NodeId] = field(default_factory=list)
    _opened: ExitStack = field(default_factory=ExitStack)

    def open(self) -> SqlStore:
        """A store on the data, closed with the place if not before."""
        return self._opened.enter_context(SqlStore.open(self.url, work_changed=self.rung.append))

    def close(self) -> None:
        """Close whatever was opened."""
        self._opened.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the schema: copying it is faster than migrating."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    SqlStore.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """A server of this test process."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(HOW_TO_GET)
    server = PrivatePostgres(binaries)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_database(postgres: PrivatePostgres) -> str:
    """The URL of a database with the schema. It is emptied before every test: that takes
    milliseconds, a database of its own a quarter of a second."""
    url = postgres.create()
    SqlStore.open(url).close()
    return url


def _on_sqlite(request: pytest.FixtureRequest) -> Iterator[Place]:
    path = request.getfixturevalue("tmp_path") / "state.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    place = Place(f"sqlite:///{path}")
    yield place
    place.close()


def _on_postgres(request: pytest.FixtureRequest) -> Iterator[Place]:
    url = request.getfixturevalue("postgres_database")
    _empty(url)
    place = Place(url)
    yield place
    place.close()


def _empty(url: str) -> None:
    """Leave nothing but the row of a new installation, and nobody connected."""
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for table in reversed(metadata.sorted_tables):
            if table.name != "system":
                connection.execute(f"DELETE FROM {table.name}".encode())
        connection.execute(
            "UPDATE system SET revision = 0, epoch = 0, holder = '', lease_until = 0"
        )


class InMemory:
    """Where a store without a database lies: whoever opens it has the same one."""

    url = "memory:"

    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> MemoryStore:
        """The store."""
        return self._store


def _in_memory(_: pytest.FixtureRequest) -> Iterator[InMemory]:
    yield InMemory()


PLACES: dict[str, Callable[[pytest.FixtureRequest], Iterator[Place | InMemory]]] = {
    "sqlite": _on_sqlite,
    "postgres": _on_postgres,
    "memory": _in_memory,
}
EVERY_PORT = ("sqlite", "postgres")
"""Those that keep the mailbox and the access rows too; the others keep what the loop needs."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every implementation in turn. A module that says ``NEEDS_EVERY_PORT`` is about more than the
    loop's store."""
    if "place" in metafunc.fixturenames:
        whole = getattr(metafunc.module, "NEEDS_EVERY_PORT", False)
        metafunc.parametrize("place", sorted(EVERY_PORT if whole else PLACES), indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place | InMemory]:
    """Where the store under test lies."""
    yield from PLACES[request.param](request)


@pytest.fixture
def store(place: Place) -> WholeStore:
    """An empty store."""
    return place.open()
