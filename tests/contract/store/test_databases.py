"""What only a database can be: empty, foreign, newer, damaged, killed, copied."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from hybrid.domain.ids import JobId
from hybrid.store import (
    BackupDamaged,
    BackupElsewhere,
    DatabaseTooNew,
    SqlStore,
    StoreUnavailable,
    WrongDatabase,
    check_backup,
)
from hybrid.store.database import Database
from hybrid.store.migrations import HEAD, REVISIONS
from hybrid.store.schema import MIGRATIONS
from hybrid.store.tables import metadata
from tests.contract.store.conftest import Place
from tests.doubles.build import NOW, a_job
from tests.doubles.committing import put
from tests.doubles.private_postgres import PrivatePostgres

NEEDS_EVERY_PORT = True


@pytest.fixture(params=["postgres", "sqlite"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    server: PrivatePostgres = request.getfixturevalue("postgres")
    url = server.create()
    yield url
    server.drop(url)


def engine_of(url: str):
    return create_engine(Database(url).url)


# --- the schema --------------------------------------------------------------------------------


def test_an_empty_database_is_brought_to_exactly_the_schema_of_the_tables(empty_url: str) -> None:
    with SqlStore.open(empty_url) as store:
        assert store.load(now=NOW).revision == 0
    engine = engine_of(empty_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == HEAD
    engine.dispose()


def test_the_known_revisions_are_those_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    found = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS


def test_opening_again_changes_nothing(empty_url: str) -> None:
    with SqlStore.open(empty_url) as store:
        put(store, a_job("j1", version=0))
        first = store.load(now=NOW)
    with SqlStore.open(empty_url) as store:
        assert store.load(now=NOW) == first


def test_two_processes_may_open_a_new_database_at_once(empty_url: str) -> None:
    program = (
        "import sys; from hybrid.store import SqlStore\n"
        "with SqlStore.open(sys.argv[1]) as store: print(store.load(now=0).installation)"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", program, empty_url], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = {racer.communicate(timeout=60)[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0]
    assert len(said) == 1


def test_a_database_newer_than_the_program_is_refused_untouched(empty_url: str) -> None:
    SqlStore.open(empty_url).close()
    engine = engine_of(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match="newer than this program") as caught:
        SqlStore.open(empty_url)
    assert "\n" not in str(caught.value)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    engine.dispose()
    assert found == "9999"


def test_a_database_with_tables_of_others_is_refused(empty_url: str) -> None:
    engine = engine_of(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (id INTEGER)"))
    engine.dispose()
    with pytest.raises(WrongDatabase, match="not ours"):
        SqlStore.open(empty_url)


# --- what cannot be opened ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://localhost/x", "sqlite://", "sqlite:///:memory:"]
)
def test_a_url_that_names_no_database_of_a_kind_we_know_is_refused(url: str) -> None:
    with pytest.raises(WrongDatabase):
        SqlStore.open(url)


def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be looked at twice\n" * 100)
    before = path.read_bytes()
    with pytest.raises(WrongDatabase, match="not a database"):
        SqlStore.open(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        SqlStore.open(f"sqlite:///{tmp_path / 'nowhere' / 'state.db'}")


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(WrongDatabase, match="not a file"):
        SqlStore.open(f"sqlite:///{tmp_path}")


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        SqlStore.open("postgresql://me:secret@127.0.0.1:1/x")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_that_went_away_is_unavailable_and_found_again(
    postgres: PrivatePostgres, place: Place
) -> None:
    if not place.url.startswith("postgresql"):
        assert place.open().load(now=NOW).revision == 0
        return
    store = place.open()
    put(store, a_job("j1", version=0))
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert store.job(JobId("j1")) == a_job("j1", version=1)


def test_a_damaged_file_is_unavailable_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SqlStore.open(f"sqlite:///{path}") as store:
        put(store, *(a_job(f"j{i}", version=0) for i in range(200)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4)
        file.write(os.urandom(size // 2))
    with (
        pytest.raises((StoreUnavailable, WrongDatabase)),
        SqlStore.open(f"sqlite:///{path}") as store,
    ):
        store.load(now=NOW)


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SqlStore.open(f"sqlite:///{path}") as store:
        put(store, a_job("j1", version=0))
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert files["state.db"] == 0o600
    assert set(files.values()) == {0o600}


# --- crashes -----------------------------------------------------------------------------------

_WRITER = """
import sys
from hybrid.store import SqlStore
from tests.doubles.build import NOW, a_job
from tests.doubles.committing import put
with SqlStore.open(sys.argv[1]) as store:
    for i in range(100_000):
        put(store, *(a_job(f"j{i}-{k}", version=0) for k in range(3)))
        print(i, flush=True)
"""


def test_nothing_committed_is_lost_when_the_writer_is_killed(place: Place) -> None:
    place.open().close()
    root = Path(__file__).parents[3]
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, place.url],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    said += [int(line) for line in writer.stdout.read().split()]
    writer.stdout.close()
    assert writer.wait(10) == -signal.SIGKILL
    store = place.open()
    jobs = store.load(now=NOW).jobs
    groups = {id_.split("-")[0] for id_ in jobs}
    assert {f"j{i}" for i in said} <= groups
    assert len(jobs) == 3 * len(groups), "a bundle was written in part"
    assert len(groups) - len(said) in (0, 1)  # at most the one whose answer was on its way
    put(store, a_job("after", version=0))


def test_a_reader_sees_the_rows_of_one_moment_while_another_writes(place: Place) -> None:
    store, other = place.open(), place.open()
    put(store, *(a_job(f"j{i}", version=0) for i in range(5)))
    deadline = time.monotonic() + 1.0
    step = 0
    while time.monotonic() < deadline and step < 60:
        step += 1
        jobs = store.load(now=NOW).jobs.values()
        put(store, *(replace(job, reason=str(step)) for job in jobs))
        seen = {job.reason for job in other.load(now=NOW).jobs.values()}
        assert seen == {str(step)}


# --- backups -----------------------------------------------------------------------------------


def test_a_backup_taken_while_it_is_written_to_is_whole(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    with SqlStore.open(f"sqlite:///{path}") as store:
        put(store, *(a_job(f"j{i}", version=0) for i in range(300)))
        root = Path(__file__).parents[3]
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, f"sqlite:///{path}"],
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        store.backup(copy)
        writer.kill()
        writer.stdout.close()
        writer.wait(10)
        installation = store.load(now=NOW).installation
    facts = check_backup(copy)
    assert (facts.installation, facts.schema) == (installation, HEAD)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with SqlStore.open(f"sqlite:///{copy}") as restored:
        world = restored.load(now=NOW)
        assert world.revision == facts.revision >= 2
        assert len(world.jobs) == 300 + 3 * (world.revision - 1)
    leftovers = {file.name.split(".db")[0] for file in tmp_path.iterdir()}
    assert leftovers == {"state", "copy"}


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    with SqlStore.open(f"sqlite:///{tmp_path / 'state.db'}") as store:
        with pytest.raises(FileExistsError):
            store.backup(copy)
        with pytest.raises(StoreUnavailable, match="no backup could be written"):
            store.backup(tmp_path / "nowhere" / "copy.db")
    assert copy.read_text() == "precious"


def test_postgres_is_backed_up_by_its_own_tool(
    postgres: PrivatePostgres, postgres_database: str, tmp_path: Path
) -> None:
    with (
        SqlStore.open(postgres_database) as store,
        pytest.raises(BackupElsewhere, match="pg_dump"),
    ):
        store.backup(tmp_path / "copy.db")


def test_a_backup_is_looked_through_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SqlStore.open(f"sqlite:///{path}") as store:
        put(store, *(a_job(f"j{i}", version=0) for i in range(100)))
        store.backup(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    with pytest.raises(BackupDamaged, match="no backup"):
        check_backup(tmp_path / "missing.db")
    for name, content in (
        ("text.db", b"hello"),
        ("empty.db", b""),
        ("torn.db", good[: len(good) // 2]),
        ("scratched.db", good[: len(good) // 2] + bytes(4096) + good[len(good) // 2 + 4096 :]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BackupDamaged):
            check_backup(tmp_path / name)
    with closing(sqlite3.connect(tmp_path / "good.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseTooNew):
        check_backup(tmp_path / "good.db")
