"""Usage: what was used, what it cost, what is held."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hybrid.domain.claim import Bargain, Claim
from hybrid.domain.ids import JobId, PoolName
from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.pool_spec import LocalPool
from hybrid.domain.run import Run
from hybrid.ledger.replay import Mismatch
from hybrid.ports.clock import Clock
from hybrid.ports.store import JobFilter, Store
from hybrid.services.access import Principal
from hybrid.services.live import Live

DEFAULT_SPAN_S = 30 * 86_400.0
PAGE = 200
CLAIMS_LOOKED_AT = 10_000


@dataclass(slots=True)
class TeamSums:
    """One team's sums since an instant.

    ``local_micros`` is what its GPU hours at home come to at the pools' chargeback rates.
    ``saved_micros`` is what its cloud machines have saved against waiting at home (negative: cost
    more), the value of its jobs' time included: ``weighed`` of them were weighed against a place at
    home, ``unweighed`` had none to be weighed against.
    """

    team: str
    local_gpu_s: float = 0.0
    cloud_gpu_s: float = 0.0
    local_micros: int = 0
    charged_micros: int = 0
    held_micros: int = 0
    saved_micros: int = 0
    weighed: int = 0
    unweighed: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """All teams' sums between two instants, by team."""

    since: float
    until: float
    teams: tuple[TeamSums, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """What one run has held of a pool: GPUs (shares count as such), from when to when."""

    pool: PoolName
    begin: float
    end: float | None
    gpus: float
    cloud: bool

    def gpu_s(self, since: float, until: float) -> float:
        end = until if self.end is None else min(self.end, until)
        return self.gpus * max(0.0, end - max(self.begin, since))


class VerifyingStore(Store, Protocol):
    """A store that can replay its ledger."""

    def verify_balances(self, *, now: float) -> tuple[Mismatch, ...]:
        """Balances that are not what replaying the whole ledger gives."""
        ...

    def entry_count(self) -> int:
        """How many entries the ledger has."""
        ...


@dataclass(frozen=True, slots=True)
class Verified:
    """What a replay of the whole ledger has shown."""

    entries: int
    budgets: int
    mismatches: tuple[Mismatch, ...]


@dataclass(slots=True)
class Spending:
    """Adds up. What ended jobs have held does not change and is read once per process."""

    store: VerifyingStore
    live: Live
    clock: Clock
    _ended: dict[JobId, tuple[_Held, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verified(self) -> Verified:
        """Every balance against a replay of the whole ledger."""
        now = self.clock.now()
        return Verified(
            entries=self.store.entry_count(),
            budgets=len(self.store.balances(now=now)),
            mismatches=self.store.verify_balances(now=now),
        )

    def usage(self, asker: Principal, *, since: float | None = None) -> UsageReport:
        """What the asker's teams have used and spent since an instant (30 days ago if none)."""
        until = self.clock.now()
        begin = until - DEFAULT_SPAN_S if since is None else min(since, until)
        sums: dict[str, TeamSums] = {}
        rates = self._rates()
        for job in self._jobs(asker):
            team = sums.setdefault(job.team, TeamSums(job.team))
            used = [held for held in self._held(job) if held.gpu_s(begin, until) > 0]
            team.jobs += bool(used) or job.submitted_at >= begin
            team.local_gpu_s += sum(each.gpu_s(begin, until) for each in used if not each.cloud)
            team.cloud_gpu_s += sum(each.gpu_s(begin, until) for each in used if each.cloud)
            team.local_micros += sum(
                round(rates.get(each.pool, 0) * each.gpu_s(begin, until) / 3600)
                for each in used
                if not each.cloud
            )
        self._add_money(asker, sums, begin)
        self._add_savings(asker, sums, begin)
        return UsageReport(begin, until, tuple(sums[team] for team in sorted(sums)))

    def _jobs(self, asker: Principal) -> Iterable[Job]:
        cursor: str | None = None
        which = JobFilter(teams=asker.teams)
        while True:
            page = self.store.jobs(which, limit=PAGE, cursor=cursor)
            yield from page.jobs
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def _held(self, job: Job) -> tuple[_Held, ...]:
        with self._lock:
            if job.id in self._ended:
                return self._ended[job.id]
        held = tuple(map(_held_by, self.store.runs_of(job.id))) if job.attempts else ()
        if job.state.ended and all(each.end is not None for each in held):
            with self._lock:
                self._ended[job.id] = held
        return held

    def _rates(self) -> dict[PoolName, int]:
        """Micro-dollars for a GPU hour of each local pool that is there."""
        found = {}
        for name, pool in self.live.world().pools.items():
            if isinstance(pool.spec, LocalPool):
                rate = pool.spec.chargeback_per_gpu_hour
                found[name] = to_micros(pool.spec.rate_per_gpu_hour if rate is None else rate)
        return found

    def _add_savings(self, asker: Principal, sums: dict[str, TeamSums], since: float) -> None:
        for claim in self.store.claims(limit=CLAIMS_LOOKED_AT):
            if (
                claim.requested_at < since
                or claim.launched_at is None
                or not asker.sees(claim.team)
            ):
                continue
            team = sums.setdefault(claim.team, TeamSums(claim.team))
            if claim.bargain is None:
                team.unweighed += 1
                continue
            team.weighed += 1
            team.saved_micros += saved_micros(claim, claim.bargain)

    def _add_money(self, asker: Principal, sums: dict[str, TeamSums], since: float) -> None:
        for money in self.store.team_sums(since=since):
            if asker.sees(money.team) and (money.charged_micros or money.held_micros):
                team = sums.setdefault(money.team, TeamSums(money.team))
                team.charged_micros, team.held_micros = money.charged_micros, money.held_micros


def saved_micros(claim: Claim, bargain: Bargain) -> int:
    """What a machine has saved against waiting at home: as it was expected, and once it is gone
    with what was really charged for it."""
    paid = claim.charged_micros if claim.state.over else bargain.paid_micros
    return bargain.waiting_micros - (bargain.cloud_micros - bargain.paid_micros + paid)


def _held_by(run: Run) -> _Held:
    return _Held(
        pool=run.pool,
        begin=run.assigned_at,
        end=run.ended_at,
        gpus=run.gpus,
        cloud=bool(run.claim_ids),
    )
