"""What can be wrong with a database, each with one line a person can act on."""

from __future__ import annotations


class StoreError(Exception):
    """Base of what the store raises."""


class DatabaseTooNew(StoreError):
    """A newer program has written the database; this one would not understand it."""

    def __init__(self, where: str, found: str, known: str):
        self.where, self.found, self.known = where, found, known
        super().__init__(
            f"the database {where} is newer than this program: its schema is {found!r}, this"
            f" program knows up to {known!r}; install the newer program again, or restore a backup"
        )


class StoreUnavailable(StoreError):
    """The database cannot be reached or used now; nothing is known to have been written."""


class WrongDatabase(StoreError):
    """The URL names something that is no database of ours, or of a kind that is not supported."""


class BackupElsewhere(StoreError):
    """This kind of database has a backup tool of its own."""


class BackupDamaged(StoreError):
    """A backup that must not be restored from."""
