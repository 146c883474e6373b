"""Budgets and usage."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.schemas.shown import Shown, Usd, instant, usd
from hybrid.domain.budget import Balance, Period, Scope, Threshold
from hybrid.domain.money import to_micros


class ShownBudget(Shown):
    """A budget with what has been charged and is held in its current period."""

    name: str
    scope: Scope
    subject: str | None
    period: Period
    period_start_at: datetime
    limit_usd: Usd
    charged_usd: Usd
    held_usd: Usd
    free_usd: Usd = Field(description="What may still be held; below zero when overdrawn")
    overdrawn: bool
    thresholds: tuple[Threshold, ...]

    @classmethod
    def of(cls, balance: Balance) -> ShownBudget:
        """From a balance."""
        budget = balance.budget
        limit = to_micros(budget.limit_usd)
        free = limit - balance.charged_micros - balance.held_micros
        return cls(
            name=budget.name,
            scope=budget.scope,
            subject=budget.subject,
            period=budget.period,
            period_start_at=instant(balance.period_start_at),
            limit_usd=usd(limit),
            charged_usd=usd(balance.charged_micros),
            held_usd=usd(balance.held_micros),
            free_usd=usd(free),
            overdrawn=free < 0,
            thresholds=budget.thresholds,
        )


class BudgetList(Shown):
    """All budgets that the asker may see."""

    budgets: tuple[ShownBudget, ...]


class TeamUsage(Shown):
    """What a team has used and spent since an instant."""

    team: str
    local_gpu_hours: float
    cloud_gpu_hours: float
    cloud_cost_usd: Usd = Field(description="Charged and settled")
    held_usd: Usd = Field(description="Reserved now")
    jobs: int


class Usage(Shown):
    """Usage by team."""

    since: datetime
    until: datetime
    teams: tuple[TeamUsage, ...]
    cloud_cost_usd: Usd
    held_usd: Usd
