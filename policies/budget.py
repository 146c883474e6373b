"""Whether the worst case of a machine fits into every budget it falls under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hybrid.domain.budget import Balance, ThresholdAction
from hybrid.domain.ids import BudgetName
from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.reasons import BudgetClosed, NoBudget, OverBudget, OverJobCost, Reason
from hybrid.ledger.caps import falls_under, free_micros, limit_micros, reached, used_micros

_CLOSES_NEW = frozenset({ThresholdAction.NO_NEW_CLAIMS, ThresholdAction.DRAIN})
_CLOSES_RENEWALS = frozenset({ThresholdAction.DRAIN})


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
        replace(b, held_micros=b.held_micros + extra.get(b.name, 0))
        for b in balances
        if falls_under(b.budget, team=job.team, user=job.user, job_id=job.id)
    ]
    if not covering:
        return NoBudget(job.team)
    if job.spec.max_cost is not None:
        left = to_micros(job.spec.max_cost) - job.cost_micros - job_held_micros
        if hold_micros > left:
            return OverJobCost(hold_micros, left)
    tightest = min(covering, key=lambda b: (free_micros(b), b.name))
    free = free_micros(tightest)
    if hold_micros > free:
        return OverBudget(tightest.name, hold_micros, free)
    closing = _CLOSES_RENEWALS if renewal else _CLOSES_NEW
    for balance in covering:
        at = [t.at for t in reached(balance) if t.action in closing]
        limit = limit_micros(balance.budget)
        if at and limit:  # of a budget of nothing, all that fits is a hold of nothing
            return BudgetClosed(balance.name, used_micros(balance) / limit, at[0])
    return None
