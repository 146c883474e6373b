"""Budgets as people write them, and what is left of them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from pydantic import Field

from hybrid.domain.ids import BudgetName
from hybrid.domain.job_spec import Name, Written


class Scope(StrEnum):
    """Whose spending a budget limits."""

    ORG = "org"
    TEAM = "team"
    USER = "user"
    JOB = "job"


class Period(StrEnum):
    """Over what a budget's limit runs; calendar periods are in the budget's time zone."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    ROLLING = "rolling"
    LIFETIME = "lifetime"


class ThresholdAction(StrEnum):
    """What happens when a budget has been used to some part."""

    NOTIFY = "notify"
    NO_NEW_CLAIMS = "no_new_claims"
    DRAIN = "drain"


class Threshold(Written):
    """``at`` is a part of the limit, charges and holds together."""

    at: float = Field(gt=0, le=10)
    action: ThresholdAction


class Budget(Written):
    """A hard limit on cloud spending of one scope in one period."""

    name: Name
    scope: Scope = Scope.ORG
    subject: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="The team, user or job; none for the org.",
    )
    period: Period = Period.MONTH
    rolling_days: int = Field(default=30, ge=1, le=3660)
    timezone: str = Field(default="UTC", max_length=64)
    limit_usd: Decimal = Field(ge=0, le=1_000_000_000)
    thresholds: tuple[Threshold, ...] = Field(default=(), max_length=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A budget with what has been charged and is held in its current period."""

    budget: Budget
    charged_micros: int = 0
    held_micros: int = 0
    period_start_at: float = 0.0

    @property
    def name(self) -> BudgetName:
        """The budget's name."""
        return BudgetName(self.budget.name)
