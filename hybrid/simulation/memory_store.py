"""A store without a database, for worlds that are made up: fast, and forgotten with its process.

It keeps the same promises as the others and is held to the same suite; what a commit may do is
decided by the same code (:mod:`hybrid.store.commit`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event
from hybrid.domain.ids import ClaimId, JobId, NodeId
from hybrid.domain.job import Job
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.node import Node
from hybrid.domain.plan import Decision
from hybrid.domain.reasons import Reason, Said
from hybrid.domain.run import Run
from hybrid.domain.transitions import Step
from hybrid.ledger.caps import charged_change_micros, covers, held_change_micros
from hybrid.ledger.replay import Mismatch, mismatches, replay
from hybrid.ports.store import (
    NO_POLICY,
    Bundle,
    Committed,
    JobFilter,
    LoopLease,
    Page,
    PolicyVersion,
    Remembered,
    Spender,
    TeamMoney,
    World,
)
from hybrid.simulation.memory_rows import MemoryGround, Rows
from hybrid.store.commit import Accept, Commit, Refused, check_epoch, lease_after
from hybrid.store.questions import cursor_to, place_of
from hybrid.store.rows import KINDS

T = TypeVar("T")
E = TypeVar("E", Job, Run, Claim, Node)

_NOBODY = LoopLease("", 0, 0.0)


class MemoryStore:
    """Implements :class:`~hybrid.ports.store.Store`. May be called from any thread.

    ``load(since=)`` costs as much as what has changed since, whatever the length of the queue.
    """

    def __init__(self, installation: str = "memory") -> None:
        self._installation = installation
        self._lock = threading.RLock()
        self._rows = Rows()
        self._lease = _NOBODY

    # --- the loop -----------------------------------------------------------------------------

    def load(self, *, now: float, since: int | None = None) -> World:
        """The live rows, or those changed since a revision."""
        with self._lock:
            rows = self._rows
            found = self._live() if since is None else self._changed(since)
            return World(
                revision=rows.revision,
                installation=self._installation,
                policy_version=len(rows.policies),
                breakers=_by_id(rows.live["breaker"]),
                balances=rows.balances_at(now),
                learned=rows.learned,
                **found,
            )

    def commit(
        self,
        bundles: Sequence[Bundle],
        *,
        at: float,
        epoch: int | None = None,
        accept: Accept | None = None,
    ) -> Committed:
        """Write what still holds: all of it, or nothing."""
        with self._lock:
            check_epoch(self._lease.epoch, epoch)
            ground = MemoryGround(self._rows)
            revision = self._rows.revision + 1
            try:
                done = Commit(ground, at, revision).run(bundles, accept)
            except Refused as refused:
                return refused.outcome
            balances = self._rows.balances if ground.balances is None else ground.balances
            for key, entity in ground.overlay.rows.items():
                if entity is not None:
                    ground.overlay.rows[key] = _writable(entity)
            self._rows.take_in(ground.overlay, balances, revision)
            return done

    def acquire_loop(self, holder: str, *, now: float, ttl_s: float) -> LoopLease | None:
        """Take or renew the loop's lease; None while another holder's lasts."""
        with self._lock:
            lease = lease_after(self._lease, holder, now=now, ttl_s=ttl_s)
            self._lease = lease or self._lease
            return lease

    def loop_epoch(self) -> int:
        """The epoch of whoever leads now, or led last."""
        return self._lease.epoch

    def release_loop(self, holder: str) -> None:
        """Give the lease back early."""
        with self._lock:
            if self._lease.holder == holder:
                self._lease = replace(self._lease, holder="", until=0.0)

    # --- questions ----------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """A job, ended or not."""
        return self._row(Job, job_id)

    def jobs(self, which: JobFilter, *, limit: int, cursor: str | None = None) -> Page:
        """Jobs, newest first. A bad cursor raises ValueError."""
        if limit < 1:
            raise ValueError("a page has at least one job")
        before = None if cursor is None else place_of(cursor)
        found = [
            job
            for job in self._all(Job)
            if _matches(job, which) and (before is None or (job.submitted_at, job.id) < before)
        ]
        found.sort(key=lambda job: (job.submitted_at, job.id), reverse=True)
        page = tuple(found[:limit])
        return Page(page, cursor_to(page[-1]) if len(found) > limit else None)

    def runs_of(self, job_id: JobId) -> tuple[Run, ...]:
        """All runs of a job, first to last."""
        with self._lock:
            runs = [self._row(Run, id_) for id_ in self._rows.runs_of.get(job_id, ())]
        known = (run for run in runs if run is not None)
        return tuple(sorted(known, key=lambda run: (run.attempt, run.id)))

    def claims(self, *, states: Sequence[ClaimState] = (), limit: int = 1000) -> tuple[Claim, ...]:
        """Claims, newest first; all states when none are named."""
        found = [claim for claim in self._all(Claim) if not states or claim.state in states]
        found.sort(key=lambda claim: (claim.requested_at, claim.id), reverse=True)
        return tuple(found[:limit])

    def claim(self, claim_id: ClaimId) -> Claim | None:
        """A claim, over or not."""
        return self._row(Claim, claim_id)

    def node(self, node_id: NodeId) -> Node | None:
        """A node, gone or not."""
        return self._row(Node, node_id)

    def decision(self, job_id: JobId) -> Decision | None:
        """A job's last decision; its reasons say what they said."""
        decision = self._rows.decisions.get(job_id)
        return None if decision is None else _told(decision)

    def events(
        self, *, job_id: JobId | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[tuple[int, Event], ...]:
        """Events with their sequence numbers, in order."""
        with self._lock:
            rows = self._rows
            if job_id is None:
                first = min(after, len(rows.events))
                numbers: Sequence[int] = range(first + 1, len(rows.events) + 1)
            else:
                numbers = [n for n in rows.events_of.get(job_id, ()) if n > after]
            return tuple((n, rows.events[n - 1]) for n in numbers[:limit])

    def entries(self, *, claim_id: ClaimId | None = None) -> tuple[LedgerEntry, ...]:
        """Ledger entries in order."""
        with self._lock:
            entries = tuple(self._rows.entries)
        return tuple(e for e in entries if claim_id is None or e.claim_id == claim_id)

    def balances(self, *, now: float, under: Sequence[Budget] | None = None) -> tuple[Balance, ...]:
        """Every budget with what is charged and held in its current period, or what it would be
        ``under`` other budgets."""
        with self._lock:
            if under is None:
                return self._rows.balances_at(now)
            return replay(under, self._rows.entries, now=now)

    def spenders(
        self, budget: Budget, *, since: float, limit: int, teams: Sequence[str] | None = None
    ) -> tuple[Spender, ...]:
        """Who has been charged most under a budget since an instant."""
        sums: dict[tuple[str, str], int] = {}
        for entry in self.entries():
            if (
                entry.at >= since
                and covers(budget, entry)
                and (teams is None or entry.team in teams)
            ):
                key = entry.team, entry.user
                sums[key] = sums.get(key, 0) + charged_change_micros(entry)
        most = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Spender(*key, micros) for key, micros in most[:limit] if micros)

    def team_sums(self, *, since: float) -> tuple[TeamMoney, ...]:
        """What each team has been charged since an instant and what is held for it."""
        sums: dict[str, list[int]] = {}
        for entry in self.entries():
            team = sums.setdefault(entry.team, [0, 0])
            team[0] += charged_change_micros(entry) if entry.at >= since else 0
            team[1] += held_change_micros(entry)
        return tuple(TeamMoney(name, *both) for name, both in sorted(sums.items()))

    def remembered(self, team: str, key: str, *, now: float) -> Remembered | None:
        """What an unexpired idempotency key stands for."""
        kept = self._rows.keys.get((team, key))
        if kept is None or kept.expires_at <= now:
            return None
        return Remembered(kept.job_id, kept.body_sha256)

    def policy(self) -> PolicyVersion:
        """The current policy."""
        policies = self._rows.policies
        return policies[-1] if policies else NO_POLICY

    def policy_of(self, version: int) -> PolicyVersion | None:
        """A version of the policy; 0 is the empty document."""
        known = (NO_POLICY, *self._rows.policies)
        return known[version] if 0 <= version < len(known) else None

    def policies(self, *, limit: int, before: int | None = None) -> tuple[PolicyVersion, ...]:
        """Versions of the policy, newest first."""
        newest = [p for p in reversed(self._rows.policies) if before is None or p.version < before]
        return tuple(newest[:limit])

    # --- care ---------------------------------------------------------------------------------

    def verify_balances(self, *, now: float) -> tuple[Mismatch, ...]:
        """Balances that are not what replaying the whole ledger gives."""
        with self._lock:
            kept = self._rows.balances_at(now)
            budgets = [balance.budget for balance in kept]
            return mismatches(kept, replay(budgets, self._rows.entries, now=now))

    # --- inside -------------------------------------------------------------------------------

    def _row(self, kind: type[E], id_: str) -> E | None:
        found = self._rows.entities[kind.__name__.lower()].get(id_)
        return found if isinstance(found, kind) else None

    def _all(self, kind: type[E]) -> list[E]:
        with self._lock:
            rows = list(self._rows.entities[kind.__name__.lower()].values())
        return [row for row in rows if isinstance(row, kind)]

    def _live(self) -> dict[str, Any]:
        rows = self._rows
        jobs = rows.live["job"]
        return {
            **{plural: _by_id(rows.live[name]) for name, plural in _PLURALS.items()},
            "decisions": _by_id({id_: d for id_, d in rows.decisions.items() if id_ in jobs}),
        }

    def _changed(self, since: int) -> dict[str, Any]:
        rows = self._rows
        found: dict[str, dict[str, Any]] = {name: {} for name in (*KINDS, "decision")}
        for key, revision in reversed(rows.changed.items()):
            if revision <= since:
                break
            name, id_ = key
            kept: Mapping[Any, Any] = rows.decisions if name == "decision" else rows.entities[name]
            if id_ in kept:
                found[name][id_] = kept[id_]
        return {
            **{plural: _by_id(found[name]) for name, plural in _PLURALS.items()},
            "decisions": _by_id(found["decision"]),
        }


_PLURALS = {
    "job": "jobs",
    "run": "runs",
    "claim": "claims",
    "node": "nodes",
    "pool": "pools",
    "sightings": "sightings",
}


def _by_id(rows: Mapping[Any, T]) -> dict[Any, T]:
    """A copy in the order in which a database gives rows."""
    return dict(sorted(rows.items()))


def _matches(job: Job, which: JobFilter) -> bool:
    return (
        (not which.states or job.state in which.states)
        and (which.teams is None or job.team in which.teams)
        and which.team in (None, job.team)
        and which.user in (None, job.user)
        and which.priority in (None, job.spec.priority)
        and which.name in (None, job.spec.name)
    )


def _told(decision: Decision) -> Decision:
    """The decision as it can be read from a row: reasons are what they said."""
    return replace(
        decision,
        reason=_said(decision.reason),
        alternatives=tuple(replace(a, refused=_said(a.refused)) for a in decision.alternatives),
    )


def _said(reason: Reason | None) -> Said | None:
    if reason is None or isinstance(reason, Said):
        return reason
    return Said(reason.code, str(reason))


_TEXTS: dict[type[Any], tuple[str, ...]] = {}


def _writable(entity: Any) -> Any:
    """The entity with what no UTF-8 text can hold replaced, as a database would have it back.

    Only what machines say can hold such text, and that stands in the entity's own fields and in
    its history; documents that people write were refused with it.
    """
    kind = type(entity)
    if kind not in _TEXTS:
        _TEXTS[kind] = tuple(field.name for field in fields(kind))
    changes: dict[str, Any] = {}
    for name in _TEXTS[kind]:
        value = getattr(entity, name)
        if type(value) is str and not value.isascii():
            changes[name] = _text(value)
        elif name == "history" and any(not step.cause.isascii() for step in value):
            changes[name] = tuple(Step(s.state, s.at, _text(s.cause)) for s in value)
    return replace(entity, **changes) if changes else entity


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")
