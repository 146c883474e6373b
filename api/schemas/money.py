"""Budgets and usage."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.schemas.shown import Shown, Usd, instant, instant_or_none, usd
from hybrid.domain.budget import Period, Scope, Threshold
from hybrid.domain.claim import Claim
from hybrid.ledger.caps import free_micros, limit_micros, overdrawn, reached
from hybrid.services.budgets import BudgetOutlook


class ShownSpender(Shown):
    """What a user of a team has been charged in the current period."""

    team: str
    user: str
    charged_usd: Usd


class ShownHold(Shown):
    """What is held for one machine, worst case."""

    claim_id: str
    job_id: str
    team: str
    user: str
    what: str = Field(description="Machine type and market")
    held_usd: Usd
    lease_until: datetime

    @classmethod
    def of(cls, claim: Claim) -> ShownHold:
        """From a claim."""
        return cls(
            claim_id=claim.id,
            job_id=claim.job_id,
            team=claim.team,
            user=claim.user,
            what=f"{claim.offer.machine_type} {claim.offer.market}",
            held_usd=usd(claim.held_micros),
            lease_until=instant(claim.lease_until),
        )


class ShownBudget(Shown):
    """A budget with what has been charged and is held in its current period, how fast it goes, and
    who and what uses it."""

    name: str
    scope: Scope
    subject: str | None
    period: Period
    timezone: str
    period_start_at: datetime
    period_end_at: datetime | None = Field(description="None for rolling and lifetime")
    limit_usd: Usd
    charged_usd: Usd
    held_usd: Usd
    free_usd: Usd = Field(description="What may still be held; below zero when overdrawn")
    overdrawn: bool
    thresholds: tuple[Threshold, ...]
    reached: tuple[Threshold, ...] = Field(description="Thresholds that charges and holds are past")
    burn_usd_per_hour: Usd = Field(description="Of the machines held now")
    mean_usd_per_hour: Usd = Field(description="Of the last week, newer hours counting more")
    runs_out_p50_at: datetime | None = Field(
        description="When the limit is as likely reached as not, at the larger of the two rates;"
        " None: not in this period"
    )
    runs_out_p90_at: datetime | None = Field(description="When it is reached with 90 %")
    top_spenders: tuple[ShownSpender, ...] = Field(description="Of your teams, most first")
    holds: tuple[ShownHold, ...] = Field(description="Of your teams, largest first")
    held_claims: int = Field(description="Machines that money is held for, of all teams")

    @classmethod
    def of(cls, found: BudgetOutlook) -> ShownBudget:
        """From a service's answer."""
        balance = found.balance
        budget = balance.budget
        return cls(
            name=budget.name,
            scope=budget.scope,
            subject=budget.subject,
            period=budget.period,
            timezone=budget.timezone,
            period_start_at=instant(balance.period_start_at),
            period_end_at=instant_or_none(found.period_end_at),
            limit_usd=usd(limit_micros(budget)),
            charged_usd=usd(balance.charged_micros),
            held_usd=usd(balance.held_micros),
            free_usd=usd(free_micros(balance)),
            overdrawn=overdrawn(balance),
            thresholds=budget.thresholds,
            reached=reached(balance),
            burn_usd_per_hour=usd(found.burn_micros_per_hour),
            mean_usd_per_hour=usd(round(found.mean.mean)),
            runs_out_p50_at=instant_or_none(found.runs_out_p50_at),
            runs_out_p90_at=instant_or_none(found.runs_out_p90_at),
            top_spenders=tuple(
                ShownSpender(team=each.team, user=each.user, charged_usd=usd(each.micros))
                for each in found.spenders
            ),
            holds=tuple(map(ShownHold.of, found.holds)),
            held_claims=found.held_claims,
        )


class BudgetList(Shown):
    """All budgets that the asker may see."""

    budgets: tuple[ShownBudget, ...]


class TeamUsage(Shown):
    """What a team has used and spent since an instant."""

    team: str
    local_gpu_hours: float
    cloud_gpu_hours: float
    local_cost_usd: Usd = Field(description="GPU hours at home, at the pools' chargeback rates")
    cloud_cost_usd: Usd = Field(description="Charged and settled")
    total_cost_usd: Usd = Field(description="Both together")
    saved_usd: Usd = Field(
        description="By cloud machines against waiting at home, with the value of the jobs' time;"
        " below zero: they cost more"
    )
    machines_weighed: int = Field(description="Cloud machines that this is of")
    machines_without_home: int = Field(description="Those whose jobs had no place at home")
    held_usd: Usd = Field(description="Reserved now")
    jobs: int


class Usage(Shown):
    """Usage by team."""

    since: datetime
    until: datetime
    teams: tuple[TeamUsage, ...]
    local_cost_usd: Usd
    cloud_cost_usd: Usd
    total_cost_usd: Usd
    saved_usd: Usd
    held_usd: Usd
