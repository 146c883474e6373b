"""What is said when a database is busy."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hybrid.domain.ids import JobId
from hybrid.store import SqlStore, StoreUnavailable
from hybrid.store import database as database_module
from tests.doubles.build import NOW, a_job
from tests.doubles.committing import put


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for others for a moment only."""
    monkeypatch.setattr(database_module, "BUSY_S", 0.05)
    monkeypatch.setattr(database_module, "TRIES", 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.mark.usefixtures("impatient")
def test_a_database_that_stays_locked_is_unavailable_and_nothing_is_written(path: Path) -> None:
    with SqlStore.open(f"sqlite:///{path}") as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked") as caught:
                put(store, a_job("j1", version=0))
            assert "\n" not in str(caught.value)
            assert store.job(JobId("j1")) is None  # readers do not wait for writers
            other.execute("ROLLBACK")
        put(store, a_job("j1", version=0))


def test_a_write_waits_for_another_process_and_then_goes_through(path: Path) -> None:

    with SqlStore.open(f"sqlite:///{path}") as store:
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            timer = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
            timer.start()
            put(store, a_job("j1", version=0))
            timer.join()
        assert store.load(now=NOW).revision == 1
