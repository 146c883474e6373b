"""Whether the worst case of a machine fits into every budget it falls under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid.domain.budget import Balance, Budget, Scope, ThresholdAction
from hybrid.domain.ids import BudgetName
from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.reasons import BudgetClosed, NoBudget, OverBudget, OverJobCost, Reason

_CLOSING = frozenset({ThresholdAction.NO_NEW_CLAIMS, ThresholdAction.DRAIN})


def covers(budget: Budget, *, team: str, user: str, job_id: str) -> bool:
    """Whether spending of this team, user and job falls under ``budget``."""
    match budget.scope:
        case Scope.ORG:
            return True
        case Scope.TEAM:
            return budget.subject == team
        case Scope.USER:
            return budget.subject == user
        case Scope.JOB:
            return budget.subject == job_id


def free_micros(balance: Balance, extra: Mapping[BudgetName, int] | None = None) -> int:
    """What may still be held; negative when the budget is overdrawn. ``extra`` are holds that are
    planned and not in the balance yet."""
    planned = extra.get(balance.name, 0) if extra else 0
    limit = to_micros(balance.budget.limit_usd)
    return limit - balance.charged_micros - balance.held_micros - planned


def refusal(
    hold_micros: int,
    job: Job,
    balances: Sequence[Balance],
    extra: Mapping[BudgetName, int],
    *,
    job_held_micros: int = 0,
    renewal: bool = False,
) -> Reason | None:
    """Why ``hold_micros`` more may not be held for ``job``, or None.

    ``extra`` are the holds planned earlier in the same tick, by budget; ``job_held_micros`` what
    is held for this job already. All budgets that cover the job apply; of several that refuse, the
    one with least free is named. Thresholds with ``no_new_claims`` stop new machines, those with
    ``drain`` renewals too (``renewal``). Without any budget nothing is spent.
    """
    covering = [
        b for b in balances if covers(b.budget, team=job.team, user=job.user, job_id=job.id)
    ]
    if not covering:
        return NoBudget(job.team)
    if job.spec.max_cost is not None:
        left = to_micros(job.spec.max_cost) - job.cost_micros - job_held_micros
        if hold_micros > left:
            return OverJobCost(hold_micros, left)
    tightest = min(covering, key=lambda b: (free_micros(b, extra), b.name))
    free = free_micros(tightest, extra)
    if hold_micros > free:
        return OverBudget(tightest.name, hold_micros, free)
    for balance in covering:
        closed = _closed(balance, extra, renewal=renewal)
        if closed is not None:
            return closed
    return None


def _closed(
    balance: Balance, extra: Mapping[BudgetName, int], *, renewal: bool
) -> BudgetClosed | None:
    limit = to_micros(balance.budget.limit_usd)
    if limit == 0:
        return None  # a hold of nothing is all that fits, and it may
    used = (limit - free_micros(balance, extra)) / limit
    reached = [
        t.at
        for t in balance.budget.thresholds
        if used >= t.at and (t.action is ThresholdAction.DRAIN if renewal else t.action in _CLOSING)
    ]
    return BudgetClosed(balance.name, used, min(reached)) if reached else None
