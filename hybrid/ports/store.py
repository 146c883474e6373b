"""The port to what is remembered.

There is one way to write: :meth:`Store.commit` takes bundles of changes, each with the versions it
rests on. There are a few ways to read. No call holds a transaction open between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hybrid.domain.breaker import Breaker
from hybrid.domain.budget import Balance, Budget
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event
from hybrid.domain.ids import ClaimId, JobId, NodeId, OfferId, PoolName, RunId
from hybrid.domain.job import Job, JobState
from hybrid.domain.learned import Learned
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.node import Node
from hybrid.domain.plan import Decision, RowRef
from hybrid.domain.run import Run
from hybrid.domain.sightings import Sightings
from hybrid.domain.snapshot import Pool

Entity = Job | Run | Claim | Node | Pool | Breaker | Sightings


@dataclass(frozen=True, slots=True)
class Put:
    """Write an entity. Its ``version`` is the one read (0: it must be new); the row gets the next.

    A run's slots are indexed too, so that two live runs of one job, or two holders of one whole
    GPU, are refused by the database itself.
    """

    entity: Entity


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a breaker's row."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Post:
    """Append to the ledger. A hold that would pass any budget it falls under drops its bundle; an
    entry whose id is there already drops it as well."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class Note:
    """Append to the event log."""

    event: Event


@dataclass(frozen=True, slots=True)
class Decide:
    """Replace a job's decision."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Learn:
    """Replace what has been learned. Last writer wins: only the loop learns."""

    learned: Learned


@dataclass(frozen=True, slots=True)
class Remember:
    """An idempotency key, in the transaction of what it stands for. One that is there already,
    and not expired, drops its bundle."""

    team: str
    key: str
    body_sha256: str
    job_id: JobId
    at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Append a policy version. ``version`` is the one it replaces; another there drops it."""

    document: str
    version: int
    actor: str
    at: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class SetBudgets:
    """Replace the budgets; what was charged stays charged."""

    budgets: tuple[Budget, ...]


Change = Put | Remove | Post | Note | Decide | Learn | Remember | SetPolicy | SetBudgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Changes that need each other: all are committed, or none.

    Rows that it writes are checked by their own version; ``rests_on`` names further rows, those
    only read.
    """

    id: str
    changes: tuple[Change, ...]
    rests_on: tuple[RowRef, ...] = ()


class DropCause(StrEnum):
    """Why a bundle was not committed."""

    MOVED = "moved"
    OVER_BUDGET = "over_budget"
    CONFLICT = "conflict"
    DUPLICATE = "duplicate"
    LINT = "lint"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A bundle that was not committed: the next tick plans it again from what is true then."""

    bundle_id: str
    cause: DropCause
    words: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a commit. ``revision`` is the store's after it."""

    applied: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    revision: int


class EpochPassed(Exception):
    """Another process leads the loop now; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything live that is stored: what the loop starts from.

    With ``since`` given to :meth:`Store.load`, only rows changed after that revision, and
    ``ended`` names entities that are no longer live.
    """

    revision: int
    installation: str
    policy_version: int
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    runs: Mapping[RunId, Run] = field(default_factory=dict)
    claims: Mapping[ClaimId, Claim] = field(default_factory=dict)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    pools: Mapping[PoolName, Pool] = field(default_factory=dict)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    decisions: Mapping[JobId, Decision] = field(default_factory=dict)
    balances: tuple[Balance, ...] = ()
    learned: Learned = field(default_factory=Learned)
    sightings: Mapping[OfferId, Sightings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoopLease:
    """Who leads the loop: ``epoch`` grows with each change of leader."""

    holder: str
    epoch: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None means any."""

    states: tuple[JobState, ...] = ()
    team: str | None = None
    teams: tuple[str, ...] | None = None
    """Teams the asker may see; None: all."""
    user: str | None = None
    priority: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing and the cursor to the next (None at the end)."""

    jobs: tuple[Job, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What an idempotency key stands for."""

    job_id: JobId
    body_sha256: str


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of the policy document."""

    version: int
    document: str
    actor: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Spender:
    """What a user of a team has been charged."""

    team: str
    user: str
    micros: int


@dataclass(frozen=True, slots=True)
class TeamMoney:
    """What a team has been charged since some instant, and what is held for it now."""

    team: str
    charged_micros: int
    held_micros: int


NO_POLICY = PolicyVersion(version=0, document="", actor="", at=0.0, why="")
"""What is in force before any policy was set."""


class Store(Protocol):
    """What is remembered. All methods may be called from any thread."""

    # --- the loop -----------------------------------------------------------------------------

    def load(self, *, now: float, since: int | None = None) -> World:
        """The live rows, or those changed since a revision (rows that ended meanwhile included,
        in their ended state)."""
        ...

    def commit(
        self,
        bundles: Sequence[Bundle],
        *,
        at: float,
        epoch: int | None = None,
        accept: Callable[[frozenset[str]], bool] | None = None,
    ) -> Committed:
        """Write what still holds, in one transaction.

        Bundles whose rows have moved, or whose holds no longer fit, are dropped; if any are,
        ``accept`` is asked whether the rest (given the dropped ids) may go alone, and if not
        nothing is written. With ``epoch``, raises EpochPassed when another process leads.
        """
        ...

    def acquire_loop(self, holder: str, *, now: float, ttl_s: float) -> LoopLease | None:
        """Take or renew the loop's lease; None while another holder's lasts. A new holder gets a
        new epoch."""
        ...

    def loop_epoch(self) -> int:
        """The epoch of whoever leads now, or led last."""
        ...

    def release_loop(self, holder: str) -> None:
        """Give the lease back early."""
        ...

    # --- questions ----------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """A job, ended or not."""
        ...

    def jobs(self, which: JobFilter, *, limit: int, cursor: str | None = None) -> Page:
        """Jobs, newest first. A bad cursor raises ValueError."""
        ...

    def runs_of(self, job_id: JobId) -> tuple[Run, ...]:
        """All runs of a job, first to last."""
        ...

    def claims(self, *, states: Sequence[ClaimState] = (), limit: int = 1000) -> tuple[Claim, ...]:
        """Claims, newest first; all states when none are named."""
        ...

    def claim(self, claim_id: ClaimId) -> Claim | None:
        """A claim, over or not."""
        ...

    def node(self, node_id: NodeId) -> Node | None:
        """A node, gone or not."""
        ...

    def decision(self, job_id: JobId) -> Decision | None:
        """A job's last decision."""
        ...

    def events(
        self, *, job_id: JobId | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[tuple[int, Event], ...]:
        """Events with their sequence numbers, in order."""
        ...

    def entries(self, *, claim_id: ClaimId | None = None) -> tuple[LedgerEntry, ...]:
        """Ledger entries in order."""
        ...

    def balances(self, *, now: float, under: Sequence[Budget] | None = None) -> tuple[Balance, ...]:
        """Every budget with what is charged and held in its current period; ``under``: what it
        would be if these were the budgets (raises UnknownTimezone)."""
        ...

    def spenders(
        self, budget: Budget, *, since: float, limit: int, teams: Sequence[str] | None = None
    ) -> tuple[Spender, ...]:
        """Who has been charged most under a budget since an instant, most first; ``teams``: only
        those of these teams."""
        ...

    def team_sums(self, *, since: float) -> tuple[TeamMoney, ...]:
        """What each team has been charged since an instant and what is held for it, by team."""
        ...

    def remembered(self, team: str, key: str, *, now: float) -> Remembered | None:
        """What an unexpired idempotency key stands for."""
        ...

    def policy(self) -> PolicyVersion:
        """The current policy (version 0, an empty document, before any was set)."""
        ...

    def policy_of(self, version: int) -> PolicyVersion | None:
        """A version of the policy that is or was in force; 0 is the empty document."""
        ...

    def policies(self, *, limit: int, before: int | None = None) -> tuple[PolicyVersion, ...]:
        """Versions of the policy, newest first; ``before``: only those under it."""
        ...
