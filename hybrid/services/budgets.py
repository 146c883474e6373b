"""Budgets as people ask after them: what is left, how fast it goes, and who and what uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybrid.domain.budget import Balance, Scope
from hybrid.domain.claim import Claim
from hybrid.domain.ids import JobId
from hybrid.estimation.spending import SpendingRate, rate, runs_out_in_h
from hybrid.ledger.caps import falls_under, free_micros
from hybrid.ledger.periods import next_period_at
from hybrid.ports.clock import Clock
from hybrid.ports.store import Spender, Store
from hybrid.services.access import Principal
from hybrid.services.errors import NotFound
from hybrid.services.live import Live

WINDOW_S = 7 * 86_400.0
"""Of spending from which the rate is taken, newer hours counting more."""
BUCKET_S = 6 * 3600.0
"""Machines run for hours: shorter buckets would look alike and hide how much the rate varies."""
HALF_LIFE_H = 24.0
CLAIMS_LOOKED_AT = 2_000
SPENDERS = 5
HOLDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOutlook:
    """A balance with what is known beside it.

    ``burn_micros_per_hour`` is what the machines held now cost an hour; ``mean`` the rate of the
    last week. ``runs_out_p50_at`` and ``_p90_at`` say when the limit is reached with that
    probability at the larger of the two, None where the period ends before (or it never is).
    ``holds`` are the claims for which most is held.
    """

    balance: Balance
    period_end_at: float | None
    burn_micros_per_hour: int
    mean: SpendingRate
    runs_out_p50_at: float | None
    runs_out_p90_at: float | None
    spenders: tuple[Spender, ...]
    holds: tuple[Claim, ...]
    held_claims: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """Answers about budgets."""

    store: Store
    live: Live
    clock: Clock

    def listing(self, asker: Principal) -> tuple[BudgetOutlook, ...]:
        """Every budget that the asker may see. Of budgets that cover others too, only what the
        asker may see is named."""
        now = self.clock.now()
        claims = self.store.claims(limit=CLAIMS_LOOKED_AT)
        held = [c for _, c in sorted(self.live.world().claims.items()) if c.held_micros]
        return tuple(
            self._outlook(asker, balance, claims, held, now)
            for balance in self.store.balances(now=now)
            if self._shown(asker, balance)
        )

    def one(self, asker: Principal, name: str) -> BudgetOutlook:
        """One of them; NotFound."""
        for outlook in self.listing(asker):
            if outlook.balance.name == name:
                return outlook
        raise NotFound("no_such_budget", f"there is no budget {name}")

    def _shown(self, asker: Principal, balance: Balance) -> bool:
        scope, subject = balance.budget.scope, balance.budget.subject or ""
        if asker.teams is None or scope is Scope.ORG:
            return True
        if scope is Scope.TEAM:
            return asker.sees(subject)
        if scope is Scope.USER:
            return subject == asker.name
        job = self.store.job(JobId(subject))
        return job is not None and asker.sees(job.team)

    def _outlook(
        self,
        asker: Principal,
        balance: Balance,
        claims: Sequence[Claim],
        held: Sequence[Claim],
        now: float,
    ) -> BudgetOutlook:
        mine = [claim for claim in claims if _covers(balance, claim)]
        holds = [claim for claim in held if _covers(balance, claim)]
        holds.sort(key=lambda claim: (-claim.held_micros, claim.id))
        running = [claim for claim in holds if claim.launched_at is not None]
        mean = rate(spent_by_bucket(mine, now), bucket_h=BUCKET_S / 3600, half_life_h=HALF_LIFE_H)
        end = next_period_at(balance.budget, now)
        burn = sum(claim.offer.price_micros_per_hour for claim in running)
        # what is held is likely spent: what is free beyond it is what lasts
        left = free_micros(balance)
        # machines that were just asked for do not show in the mean yet
        going = SpendingRate(max(mean.mean, float(burn)), mean.sd)
        p50, p90 = (_at(left, going, p, now, end) for p in (0.5, 0.9))
        return BudgetOutlook(
            balance=balance,
            period_end_at=end,
            burn_micros_per_hour=burn,
            mean=mean,
            runs_out_p50_at=p50,
            runs_out_p90_at=p90,
            spenders=self.store.spenders(
                balance.budget, since=balance.period_start_at, limit=SPENDERS, teams=asker.teams
            ),
            holds=tuple(c for c in holds if asker.sees(c.team))[:HOLDS],
            held_claims=len(holds),
        )


def _covers(balance: Balance, claim: Claim) -> bool:
    return falls_under(balance.budget, team=claim.team, user=claim.user, job_id=claim.job_id)


def _at(
    left: int, mean: SpendingRate, probability: float, now: float, end: float | None
) -> float | None:
    hours = runs_out_in_h(left, mean, probability)
    if hours is None:
        return None
    at = now + hours * 3600
    return at if end is None or at < end else None


def spent_by_bucket(claims: Iterable[Claim], now: float) -> list[float]:
    """Micro-dollars by bucket of the window, oldest first, as machines ran up their cost. The
    window begins with the first machine in it: before there was any, nobody could spend."""
    count = int(WINDOW_S // BUCKET_S)
    begin = now - count * BUCKET_S
    buckets = [0.0] * count
    first = count
    for claim in claims:
        if claim.launched_at is None:
            continue
        until = now if claim.ended_at is None else min(claim.ended_at, now)
        since = max(claim.launched_at, begin)
        if until <= since:
            continue
        number = int((since - begin) // BUCKET_S)
        first = min(first, number)
        while since < until and number < count:
            edge = min(until, begin + (number + 1) * BUCKET_S)
            buckets[number] += claim.offer.price_micros_per_hour * (edge - since) / 3600
            since, number = edge, number + 1
    return buckets[first:]
