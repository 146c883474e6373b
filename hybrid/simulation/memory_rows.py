"""Rows that are dictionaries, and a transaction over them.

Values are frozen, so a row is the value itself: nothing is copied when it is written or read. A
transaction writes into an overlay that is either taken in whole or forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.event import Event
from hybrid.domain.ids import ClaimId, GpuId, JobId, NodeId, RunId
from hybrid.domain.learned import Learned
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.plan import Decision
from hybrid.domain.run import Run
from hybrid.ledger.caps import charged_change_micros, covers, held_change_micros
from hybrid.ledger.periods import period_start_at
from hybrid.ledger.replay import replay
from hybrid.ports.store import Bundle, Entity, PolicyVersion, Remember
from hybrid.store.checks import is_live, named
from hybrid.store.ground import Account, RowsRefuse, Standing
from hybrid.store.rows import KINDS
from hybrid.store.staged import WHOLE_PPM, Key, Staged

Device = tuple[NodeId, GpuId]


@dataclass(slots=True)
class Rows:
    """All that is remembered. ``changed`` has every row's last revision, oldest change first."""

    revision: int = 0
    entities: dict[str, dict[str, Entity]] = field(
        default_factory=lambda: {name: {} for name in KINDS}
    )
    live: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in KINDS})
    decisions: dict[JobId, Decision] = field(default_factory=dict)
    changed: dict[Key, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    events_of: dict[str, list[int]] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)
    entry_ids: set[str] = field(default_factory=set)
    charges: list[tuple[float, int]] = field(default_factory=list)
    """When each charge or settlement is dated, and its place in ``entries``; in that order."""
    held: dict[ClaimId, int] = field(default_factory=dict)
    balances: tuple[Balance, ...] = ()
    learned: Learned = field(default_factory=Learned)
    keys: dict[tuple[str, str], Remember] = field(default_factory=dict)
    policies: list[PolicyVersion] = field(default_factory=list)
    runs_of: dict[JobId, dict[RunId, None]] = field(default_factory=dict)
    live_run_of: dict[JobId, RunId] = field(default_factory=dict)
    holders: dict[Device, dict[RunId, float]] = field(default_factory=dict)

    def take_in(self, staged: Staged, balances: tuple[Balance, ...], revision: int) -> None:
        """Write what a transaction leaves behind."""
        self.revision, self.balances = revision, balances
        for key, entity in staged.rows.items():
            self._take_entity(key, entity, revision)
        for job_id, decision in staged.decisions.items():
            self.decisions[job_id] = decision
            self._mark(("decision", job_id), revision)
        for event in staged.events:
            self.events.append(event)
            self.events_of.setdefault(event.job_id, []).append(len(self.events))
        for entry in staged.entries:
            self._take_entry(entry)
        for pair, kept in staged.keys.items():
            self.keys = {k: r for k, r in self.keys.items() if r.expires_at > kept.at}
            self.keys[pair] = kept
        for change in staged.policies:
            self.policies.append(
                PolicyVersion(
                    version=change.version + 1,
                    document=change.document,
                    actor=change.actor,
                    at=change.at,
                    why=change.why,
                )
            )
        self.learned = staged.learned or self.learned

    def balances_at(self, now: float) -> tuple[Balance, ...]:
        """Every budget in the period of ``now``."""
        return tuple(self._moved(balance, now) for balance in self.balances)

    def _take_entity(self, key: Key, entity: Entity | None, revision: int) -> None:
        name, id_ = key
        if isinstance(entity, Run):
            self._take_run(entity)
        if entity is None:
            self.entities[name].pop(id_, None)
            self.live[name].pop(id_, None)
            return
        self.entities[name][id_] = entity
        if is_live(key, entity):
            self.live[name][id_] = entity
        else:
            self.live[name].pop(id_, None)
        self._mark(key, revision)

    def _take_run(self, run: Run) -> None:
        before = self.entities["run"].get(run.id)
        for device, _ in _devices(before) if isinstance(before, Run) else ():
            self.holders[device].pop(run.id, None)
        if self.live_run_of.get(run.job_id) == run.id:
            del self.live_run_of[run.job_id]
        self.runs_of.setdefault(run.job_id, {})[run.id] = None
        if run.live:
            self.live_run_of[run.job_id] = run.id
            for device, share in _devices(run):
                self.holders.setdefault(device, {})[run.id] = share

    def _take_entry(self, entry: LedgerEntry) -> None:
        self.entry_ids.add(entry.id)
        if charged_change_micros(entry):
            insort(self.charges, (entry.at, len(self.entries)))
        self.entries.append(entry)
        self.held[entry.claim_id] = self.held.get(entry.claim_id, 0) + held_change_micros(entry)

    def _mark(self, key: Key, revision: int) -> None:
        self.changed.pop(key, None)
        self.changed[key] = revision

    def _moved(self, balance: Balance, now: float) -> Balance:
        """A balance in another period: only what is dated between the two beginnings differs."""
        was, start = balance.period_start_at, period_start_at(balance.budget, now)
        if start == was:
            return balance
        first, last = sorted((was, start))
        between = sum(
            charged_change_micros(entry)
            for entry in self._dated(first, last)
            if covers(balance.budget, entry)
        )
        charged = balance.charged_micros + (-between if start > was else between)
        return replace(balance, charged_micros=charged, period_start_at=start)

    def _dated(self, since: float, until: float) -> Iterator[LedgerEntry]:
        begin = bisect_left(self.charges, (since, -1))
        end = bisect_left(self.charges, (until, -1))
        return (self.entries[place] for _, place in self.charges[begin:end])


def _devices(run: Run) -> Iterator[tuple[Device, float]]:
    """What a run holds of each device, while it is live."""
    if run.live:
        for slot in run.slots:
            for gpu_id in slot.gpu_ids:
                yield (slot.node_id, gpu_id), slot.share


class MemoryGround:
    """A :class:`~hybrid.store.ground.Ground` over rows in memory."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.overlay = Staged()
        self.balances: tuple[Balance, ...] | None = None

    def standing(self, bundles: Sequence[Bundle]) -> Standing:
        """The rows that bundles name."""
        versions: dict[Key, int] = {}
        over: set[Key] = set()
        for bundle in bundles:
            for key in named(bundle):
                entity = self.rows.entities[key[0]].get(key[1])
                if entity is None:
                    continue
                versions[key] = entity.version
                if not is_live(key, entity):
                    over.add(key)
        return Standing(versions, over, dict(versions))

    def purse(self, at: float) -> MemoryPurse:
        """The money, in the periods of ``at``."""
        return MemoryPurse(self, at)

    def policy_version(self) -> int:
        """The current policy's version."""
        return len(self.rows.policies) + len(self.overlay.policies)

    def stands_for(self, team: str, key: str, *, at: float) -> JobId | None:
        """What an idempotency key that has not expired stands for."""
        pair = team, key
        kept = self.overlay.keys.get(pair) or self.rows.keys.get(pair)
        return kept.job_id if kept is not None and kept.expires_at > at else None

    def nested(self) -> AbstractContextManager[object]:
        """Nothing is undone in part: a write that is refused has written nothing."""
        return nullcontext()

    def write(self, staged: Staged, *, revision: int, there: Mapping[Key, int]) -> None:
        """Take what is staged into the overlay; RowsRefuse when no index would let it stand."""
        del revision, there  # the rows know their revision when the overlay is taken in
        for job_id in _jobs_named(staged):
            if ("job", job_id) not in staged.rows and not self._has_job(job_id):
                raise RowsRefuse(f"there is no job {job_id}")
        self._check_runs({e.id: e for e in staged.rows.values() if isinstance(e, Run)})
        self.overlay.add(staged)

    def _has_job(self, job_id: JobId) -> bool:
        return ("job", job_id) in self.overlay.rows or job_id in self.rows.entities["job"]

    def _check_runs(self, written: Mapping[RunId, Run]) -> None:
        """One live run per job, and no device held above 1, once these runs are written."""
        overlaid = {e.id: e for e in self.overlay.rows.values() if isinstance(e, Run)}
        after = {**overlaid, **written}
        holders: dict[Device, list[float]] = {}
        live_of: dict[JobId, RunId] = {}
        for run in after.values():
            if not run.live:
                continue
            stored = self.rows.live_run_of.get(run.job_id, run.id)
            other = live_of.setdefault(run.job_id, run.id if stored in after else stored)
            if other != run.id:
                raise RowsRefuse(f"job {run.job_id} would have two live runs: {other}, {run.id}")
            for device, share in _devices(run):
                holders.setdefault(device, []).append(share)
        for device, shares in holders.items():
            stored_shares = self.rows.holders.get(device, {})
            shares += [share for id_, share in stored_shares.items() if id_ not in after]
            if _overheld(shares):
                raise RowsRefuse(f"GPU {device[1]} of node {device[0]} would be held above 1")


def _overheld(shares: Sequence[float]) -> bool:
    # each share is rounded, so a full GPU may come to a millionth more per holder
    parts = sum(round(share * WHOLE_PPM) for share in shares)
    return sum(share >= 1 for share in shares) > 1 or parts > WHOLE_PPM + len(shares)


def _jobs_named(staged: Staged) -> Iterable[JobId]:
    yield from (e.job_id for e in staged.rows.values() if isinstance(e, Run))
    yield from staged.decisions


class MemoryPurse:
    """A :class:`~hybrid.store.ground.Purse` over a ledger in memory."""

    def __init__(self, ground: MemoryGround, at: float) -> None:
        self._ground, self._at = ground, at

    def open(self) -> Account:
        """The account as the rows have it."""
        if self._ground.balances is not None:
            return Account(self._ground.balances)
        return Account(self._ground.rows.balances_at(self._at))

    def knows(self, account: Account, entry_id: str) -> bool:
        """Whether there is an entry of that id."""
        if entry_id in self._ground.rows.entry_ids:
            return True
        pending = (*account.entries, *self._ground.overlay.entries)
        return any(entry.id == entry_id for entry in pending)

    def held_for(self, account: Account, claim_id: ClaimId) -> int:
        """What is still held for a claim."""
        pending = (*account.entries, *self._ground.overlay.entries)
        return self._ground.rows.held.get(claim_id, 0) + sum(
            held_change_micros(entry) for entry in pending if entry.claim_id == claim_id
        )

    def with_budgets(self, account: Account, budgets: Sequence[Budget]) -> Account:
        """The account under other budgets, from the whole ledger."""
        ground = self._ground
        entries = (*ground.rows.entries, *ground.overlay.entries, *account.entries)
        return replace(account, balances=replay(budgets, entries, now=self._at))

    def save(self, account: Account) -> None:
        """The balances once the overlay is taken in."""
        self._ground.balances = account.balances
