"""Copies of the database, taken while it is in use, and what to look at before using one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hybrid.store.database import BUSY_S, Database
from hybrid.store.errors import (
    BackupDamaged,
    BackupElsewhere,
    DatabaseTooNew,
    StoreUnavailable,
)
from hybrid.store.migrations import HEAD, REVISIONS

_PAGES_AT_ONCE = 1024
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What a good backup holds."""

    installation: str
    revision: int
    schema: str


def back_up(database: Database, path: Path) -> None:
    """Copy a SQLite database to ``path``, which must not exist.

    The copy is of one moment between two transactions. It is checked before it gets its name, so
    a file of that name is whole.
    """
    if database.path is None:
        raise BackupElsewhere(
            f"{database.shown} is backed up by its own tool: pg_dump --format=custom"
        )
    if path.exists():
        raise FileExistsError(f"{path} exists: a backup never overwrites anything")
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with (
            closing(sqlite3.connect(database.path, timeout=BUSY_S)) as source,
            closing(sqlite3.connect(draft)) as copy,
        ):
            source.backup(copy, pages=_PAGES_AT_ONCE, sleep=_PAUSE_S)
            # one file that needs no other beside it
            copy.execute("PRAGMA journal_mode = DELETE")
        check_backup(draft)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.rename(path)
    except (OSError, sqlite3.Error) as problem:
        raise StoreUnavailable(f"no backup could be written to {path}: {problem}") from problem
    finally:
        draft.unlink(missing_ok=True)


def check_backup(path: Path) -> BackupFacts:
    """Look through a copy before it is put in the place of a database.

    Raises BackupDamaged, or DatabaseTooNew for one of a newer program.
    """
    if not path.is_file():
        raise BackupDamaged(f"there is no backup {path}")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as copy:
            found = copy.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                raise BackupDamaged(f"the backup {path} is damaged: {found}")
            if copy.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise BackupDamaged(f"the backup {path} is damaged: rows are missing")
            (schema,) = copy.execute("SELECT version_num FROM alembic_version").fetchone()
            if schema not in REVISIONS:
                raise DatabaseTooNew(str(path), schema, HEAD)
            row = copy.execute("SELECT installation, revision FROM system").fetchone()
    except (sqlite3.Error, TypeError) as problem:
        raise BackupDamaged(f"{path} is no backup of ours: {problem}") from problem
    if row is None:
        raise BackupDamaged(f"{path} is no backup of ours: it names no installation")
    return BackupFacts(installation=row[0], revision=row[1], schema=schema)
