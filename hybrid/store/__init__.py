"""What is remembered, in SQLite or PostgreSQL. Only this package knows SQL."""

from hybrid.store.backup import BackupFacts, check_backup
from hybrid.store.errors import (
    BackupDamaged,
    BackupElsewhere,
    DatabaseTooNew,
    StoreError,
    StoreUnavailable,
    WrongDatabase,
)
from hybrid.store.sql_store import SqlStore

__all__ = [
    "BackupDamaged",
    "BackupElsewhere",
    "BackupFacts",
    "DatabaseTooNew",
    "SqlStore",
    "StoreError",
    "StoreUnavailable",
    "WrongDatabase",
    "check_backup",
]
