"""Brings a database to the schema of this program, or refuses it."""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from hybrid.store.database import Database
from hybrid.store.errors import DatabaseTooNew, StoreUnavailable, WrongDatabase
from hybrid.store.migrations import HEAD, REVISIONS
from hybrid.store.tables import system

MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x6879_6272_6964
"""Number of the advisory lock under which one process at a time migrates a PostgreSQL database."""


def prepare(database: Database) -> None:
    """Migrate the database to this program's schema; name the installation when it is new.

    Raises DatabaseTooNew for one that a newer program has migrated, WrongDatabase for one with
    tables that are not ours.
    """
    found = database.read(schema_of)
    if found != HEAD:
        _known(database.shown, found)
        database.write(lambda connection: _migrate(connection, database))


def schema_of(connection: Connection) -> str | None:
    """The schema a database is at; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _known(where: str, found: str | None) -> None:
    if found is not None and found not in REVISIONS:
        raise DatabaseTooNew(where, found, HEAD)


def _migrate(connection: Connection, database: Database) -> None:
    if not database.is_sqlite:
        connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATION_LOCK})
    found = schema_of(connection)  # again, now that nobody else migrates it
    _known(database.shown, found)
    if found is None and inspect(connection).get_table_names():
        raise WrongDatabase(f"{database.shown} has tables, but not ours: give another database")
    if found != HEAD:
        upgrade(connection)
    if connection.execute(system.select()).first() is None:
        connection.execute(
            system.insert().values(
                id=1,
                installation=secrets.token_hex(8),
                revision=0,
                epoch=0,
                holder="",
                lease_until=0.0,
            )
        )


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run the migrations in the connection's transaction."""
    # only needed when there is something to migrate, and slow to import
    from alembic import command
    from alembic.config import Config

    config = Config()
    # percent signs are the configuration's own escape
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, to)
    except OSError as problem:
        raise StoreUnavailable(f"the migrations cannot be read: {problem}") from problem
