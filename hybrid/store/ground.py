"""What a commit stands on, whatever keeps the rows: one set of rules, several kinds of store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.ids import ClaimId, JobId
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.ledger.caps import after
from hybrid.ports.store import Bundle
from hybrid.store.staged import Key, Staged


class RowsRefuse(Exception):
    """What only the rows' own indexes can tell: a second live run of a job, a second holder of a
    GPU, a reference to nothing."""


@dataclass(frozen=True, slots=True)
class Account:
    """The balances, and the entries of this transaction that are not in the ledger yet."""

    balances: tuple[Balance, ...]
    entries: tuple[LedgerEntry, ...] = ()

    def with_entry(self, entry: LedgerEntry) -> Account:
        """The account once an entry is posted."""
        return Account(
            tuple(after(balance, entry) for balance in self.balances), (*self.entries, entry)
        )


class Purse(Protocol):
    """The money side of one transaction, in the budget periods of one instant."""

    def open(self) -> Account:
        """The account as the rows have it."""
        ...

    def knows(self, account: Account, entry_id: str) -> bool:
        """Whether there is an entry of that id."""
        ...

    def held_for(self, account: Account, claim_id: ClaimId) -> int:
        """What is still held for a claim, in micro-dollars."""
        ...

    def with_budgets(self, account: Account, budgets: Sequence[Budget]) -> Account:
        """The account under other budgets; what each comes to is read from the ledger. Raises
        UnknownTimezone."""
        ...

    def save(self, account: Account) -> None:
        """Write the balances."""
        ...


@dataclass(slots=True)
class Standing:
    """The rows that some bundles name: their versions now, those that are not live, and the
    versions they had when the transaction began."""

    versions: dict[Key, int]
    over: set[Key]
    began: Mapping[Key, int]

    def of(self, key: Key) -> tuple[int, bool]:
        """A row's version (0: absent) and whether it is live."""
        version = self.versions.get(key, 0)
        return version, version > 0 and key not in self.over


class Ground(Protocol):
    """The rows, within one transaction that nobody else writes beside."""

    def standing(self, bundles: Sequence[Bundle]) -> Standing:
        """The rows that bundles name. ValueError for a row of a kind there is none of."""
        ...

    def purse(self, at: float) -> Purse:
        """The money, in the periods of ``at``."""
        ...

    def policy_version(self) -> int:
        """The current policy's version, 0 before any was set."""
        ...

    def stands_for(self, team: str, key: str, *, at: float) -> JobId | None:
        """What an idempotency key that has not expired stands for."""
        ...

    def nested(self) -> AbstractContextManager[object]:
        """A part of the transaction that is undone alone when it raises."""
        ...

    def write(self, staged: Staged, *, revision: int, there: Mapping[Key, int]) -> None:
        """Write what is staged; ``there`` has the version of every row that exists already.
        Raises RowsRefuse."""
        ...
