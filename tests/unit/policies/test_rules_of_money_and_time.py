"""Budgets, retirement, and coming home."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from hybrid.domain.budget import Balance, Budget
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import BudgetName
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.reasons import (
    AlreadyStopping,
    BudgetClosed,
    InUse,
    NoBudget,
    NotIdleYet,
    NotWorthIt,
    OverBudget,
    OverJobCost,
    SwitchedOff,
    TooYoung,
)
from hybrid.domain.run import RunState
from policies import budget, retire, return_home
from policies.document import PolicyDocument
from policies.loading import parse_policy
from tests.doubles.build import NOW, a_burst_pool, a_claim, a_job, a_run, a_spec

USD = 1_000_000


def a_balance(name: str = "all", limit: str = "10", **fields: Any) -> Balance:
    amounts = {key: fields.pop(key) for key in ("charged_micros", "held_micros") if key in fields}
    return Balance(budget=Budget(name=name, limit_usd=Decimal(limit), **fields), **amounts)


def test_without_any_budget_nothing_is_spent():
    assert budget.refusal(1, a_job(), [], {}) == NoBudget("red")


def test_a_budget_of_another_team_user_or_job_covers_nothing():
    others = [
        a_balance("t", scope="team", subject="blue"),
        a_balance("u", scope="user", subject="bob"),
        a_balance("j", scope="job", subject="j2"),
    ]
    assert budget.refusal(1, a_job(), others, {}) == NoBudget("red")


@pytest.mark.parametrize(
    ("scope", "subject"), [("org", None), ("team", "red"), ("user", "ann"), ("job", "j1")]
)
def test_a_budget_of_any_scope_lets_through_what_fits_to_the_last_micro_dollar(scope, subject):
    balances = [a_balance(scope=scope, subject=subject, charged_micros=4 * USD)]
    assert budget.refusal(6 * USD, a_job(), balances, {}) is None
    assert budget.refusal(6 * USD + 1, a_job(), balances, {}) == OverBudget(
        "all", 6 * USD + 1, 6 * USD
    )


def test_holds_and_what_is_planned_in_the_same_tick_count():
    balances = [a_balance(held_micros=4 * USD)]
    planned = {BudgetName("all"): 3 * USD, BudgetName("other"): 9 * USD}
    assert budget.refusal(3 * USD, a_job(), balances, planned) is None
    assert budget.refusal(4 * USD, a_job(), balances, planned) == OverBudget(
        "all", 4 * USD, 3 * USD
    )


def test_of_two_budgets_that_refuse_the_tighter_one_is_named():
    balances = [a_balance("wide", "5"), a_balance("tight", "2", scope="team", subject="red")]
    assert budget.refusal(6 * USD, a_job(), balances, {}) == OverBudget("tight", 6 * USD, 2 * USD)


def test_an_overdrawn_budget_refuses_even_a_hold_of_nothing():
    balances = [a_balance(limit="1", charged_micros=2 * USD)]
    refused = budget.refusal(0, a_job(), balances, {})
    assert refused == OverBudget("all", 0, -USD)
    assert str(refused) == "budget all has $0.00 free; the worst case needs $0.00"


def test_the_jobs_own_limit_counts_what_it_has_cost_and_holds():
    job = a_job(spec=a_spec(max_cost=3), cost_micros=USD)
    balances = [a_balance()]
    assert budget.refusal(2 * USD, job, balances, {}) is None
    assert budget.refusal(2 * USD, job, balances, {}, job_held_micros=1) == OverJobCost(
        2 * USD, 2 * USD - 1
    )


@pytest.mark.parametrize(
    ("action", "new", "renewed"),
    [("notify", False, False), ("no_new_claims", True, False), ("drain", True, True)],
)
def test_a_threshold_closes_what_its_action_says(action: str, new: bool, renewed: bool):
    balances = [
        a_balance("calm", "100"),
        a_balance(held_micros=8 * USD, thresholds=[{"at": 0.8, "action": action}]),
    ]
    closed = BudgetClosed("all", 0.8, 0.8)
    assert budget.refusal(1, a_job(), balances, {}) == (closed if new else None)
    assert budget.refusal(1, a_job(), balances, {}, renewal=True) == (closed if renewed else None)


def test_a_threshold_not_reached_closes_nothing():
    balances = [a_balance(held_micros=USD, thresholds=[{"at": 0.8, "action": "drain"}])]
    assert budget.refusal(1, a_job(), balances, {}) is None


def test_a_budget_of_nothing_holds_nothing_and_says_how_much_is_free():
    balances = [a_balance(limit="0", thresholds=[{"at": 0.5, "action": "drain"}])]
    assert budget.refusal(1, a_job(), balances, {}) == OverBudget("all", 1, 0)
    assert budget.refusal(0, a_job(), balances, {}) is None


def the_pool(**fields: Any) -> BurstPool:
    spec = a_burst_pool(**fields).spec
    assert isinstance(spec, BurstPool)
    return spec


def test_an_idle_machine_ends_after_the_pools_time_or_the_policys():
    pool = the_pool(idle_after=300)
    claim = a_claim(idle_since=NOW)
    own, shorter = PolicyDocument(), parse_policy("retire: {idle_after: 10s}")
    assert retire.due_at(claim, pool, own) == NOW + 300
    assert retire.due_at(claim, pool, shorter) == NOW + 10
    assert retire.refusal(claim, pool, own, NOW + 299) == NotIdleYet(299, 300)
    assert retire.refusal(claim, pool, own, NOW + 300) is None
    assert retire.refusal(claim, pool, shorter, NOW + 10) is None


@pytest.mark.parametrize(
    "claim",
    [a_claim(idle_since=None), a_claim(state=ClaimState.BOOTING, idle_since=NOW - 9999)],
    ids=["busy", "booting"],
)
def test_a_machine_that_works_or_boots_is_not_ended_as_idle(claim):
    assert retire.due_at(claim, the_pool(), PolicyDocument()) is None
    assert retire.refusal(claim, the_pool(), PolicyDocument(), NOW) == InUse("c1")


def test_a_job_comes_home_only_for_more_than_the_margin():
    policy = parse_policy("return_home: {margin_usd: 0.25, min_stay: 0}")
    run = a_run()
    assert return_home.margin_micros(policy) == 250_000
    assert return_home.refusal(run, 250_001, policy, NOW) is None
    within = return_home.refusal(run, 250_000, policy, NOW)
    assert within == NotWorthIt(-250_000, "staying")
    assert str(within) == "$0.25 cheaper than staying, within the margin"
    assert str(return_home.refusal(run, -USD, policy, NOW)) == "$1.00 dearer than staying"


def test_a_run_stays_for_the_minimum_stay_from_when_it_began():
    policy = parse_policy("return_home: {min_stay: 5m}")
    started = a_run(assigned_at=NOW - 600, started_at=NOW - 299)
    assert return_home.refusal(started, USD, policy, NOW) == TooYoung(299, 300)
    assert return_home.refusal(started, USD, policy, NOW + 1) is None
    assigned = a_run(state=RunState.ASSIGNED, assigned_at=NOW)
    assert return_home.refusal(assigned, USD, policy, NOW - 5) == TooYoung(0, 300)


def test_nothing_comes_home_when_it_is_switched_off_or_stopping_already():
    off = parse_policy("return_home: {enabled: false}")
    assert return_home.refusal(a_run(), USD, off, NOW) == SwitchedOff("return_home")
    stopping = a_run(state=RunState.STOPPING)
    assert return_home.refusal(stopping, USD, PolicyDocument(), NOW) == AlreadyStopping("j1.1")
