"""Budgets, the ledger and bills as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hybrid.cli.tables import line, pairs, stack, table
from hybrid.cli.words import ago, clock, dollars, plural
from hybrid.client import answers as said


def budgets(found: said.BudgetList) -> Any:
    """Budgets, then who spends and what is held under each that is used."""
    now = datetime.now(UTC)
    listed = table(
        ("name", "for", "period", ">limit", ">charged", ">held", ">free", ">burn/h", ">mean/h",
         "runs out (p50)", "(p90)", "state"),
        (
            (
                each.name,
                each.scope if each.subject is None else f"{each.scope} {each.subject}",
                each.period,
                dollars(each.limit_usd),
                dollars(each.charged_usd),
                dollars(each.held_usd),
                dollars(each.free_usd),
                dollars(each.burn_usd_per_hour),
                dollars(each.mean_usd_per_hour),
                ago(each.runs_out_p50_at, now),
                ago(each.runs_out_p90_at, now),
                "overdrawn" if each.overdrawn else "",
            )
            for each in found.budgets
        ),
        empty="no budget covers you; budgets are part of the policy",
    )  # fmt: skip
    return stack(listed, *(_use(each, now) for each in found.budgets))


def _use(budget: said.Budget, now: datetime) -> Any:
    """Who and what uses a budget; None where nobody does."""
    if not budget.top_spenders and not budget.holds:
        return None
    spent = ", ".join(
        f"{each.user} of {each.team} {dollars(each.charged_usd)}" for each in budget.top_spenders
    )
    held = table(
        (f"held under {budget.name} for", "what", "for job", "by", "paid until", ">held"),
        (
            (
                each.claim_id,
                each.what.replace("_", "-"),
                each.job_id,
                f"{each.user} of {each.team}",
                ago(each.lease_until, now),
                dollars(each.held_usd),
            )
            for each in budget.holds
        ),
    )
    more = budget.held_claims - len(budget.holds)
    return stack(
        line(f"{budget.name}, charged most: {spent}") if spent else None,
        held if budget.holds else None,
        line(f"and {plural(more, 'machine')} more") if more > 0 else None,
    )


def usage(found: said.Usage) -> Any:
    """Teams, dearest first: home and cloud in one number, and what the cloud saved."""
    teams = sorted(found.teams, key=lambda each: (-each.total_cost_usd, each.team))
    return stack(
        table(
            ("team", ">jobs", ">GPU h here", ">here", ">GPU h cloud", ">cloud", ">total", ">saved",
             ">held"),
            (
                (
                    each.team,
                    str(each.jobs),
                    f"{each.local_gpu_hours:.1f}",
                    dollars(each.local_cost_usd),
                    f"{each.cloud_gpu_hours:.1f}",
                    dollars(each.cloud_cost_usd),
                    dollars(each.total_cost_usd),
                    dollars(each.saved_usd) if each.machines_weighed else "–",
                    dollars(each.held_usd),
                )
                for each in teams
            ),
            empty="nobody has used anything",
        ),
        pairs(
            (
                ("since", clock(found.since)),
                ("total", dollars(found.total_cost_usd)),
                ("saved by bursting against waiting", dollars(found.saved_usd)),
            )
        ),
    )  # fmt: skip


def claim_ledger(found: said.ClaimLedger) -> Any:
    """The lines about one claim, and what they come to."""
    return stack(
        table(
            ("when", "kind", "what", ">amount"),
            (
                (clock(each.at), each.kind, each.what, dollars(each.amount_usd))
                for each in found.entries
            ),
            empty="nothing was ever held for it",
        ),
        pairs((("held", dollars(found.held_usd)), ("charged", dollars(found.charged_usd)))),
    )


def ledger_check(found: said.LedgerCheck) -> Any:
    """Whether the balances are what the ledger comes to."""
    entries = f"{found.entries:,} {'entry' if found.entries == 1 else 'entries'}"
    if found.ok:
        return line(f"{entries} replayed: {plural(found.budgets, 'balance')} as kept")
    return stack(
        line(f"{entries} replayed: balances that are kept are not what they come to"),
        table(
            ("budget", ">kept charged", ">true charged", ">kept held", ">true held"),
            (
                (
                    each.budget,
                    dollars(each.kept_charged_usd),
                    dollars(each.true_charged_usd),
                    dollars(each.kept_held_usd),
                    dollars(each.true_held_usd),
                )
                for each in found.mismatches
            ),
        ),
    )


def bill(found: said.BillComparison, *, settled: bool) -> Any:
    """A bill against the ledger, what differs first."""
    claims = sorted(found.claims, key=lambda each: (-abs(each.difference_usd), each.claim_id))
    compared = table(
        ("claim", "month", "state", ">charged", ">earlier", ">billed", ">difference", "billed for"),
        (
            (
                each.claim_id,
                each.period,
                each.state,
                dollars(each.charged_usd),
                dollars(each.settled_usd),
                dollars(each.billed_usd),
                dollars(each.difference_usd),
                ", ".join(f"{kind} {dollars(usd)}" for kind, usd in each.by_kind_usd.items()),
            )
            for each in claims
        ),
        empty="no line of the bill has the tag of a claim",
    )
    unmatched = table(
        ("tagged, and no claim of ours", "month", "kind", ">billed", "what"),
        ((x.claim_id, x.period, x.kind, dollars(x.usd), x.what) for x in found.unmatched),
    )
    missing = table(
        ("charged, and not on the bill", "machine", ">charged"),
        ((x.claim_id, x.machine_id, dollars(x.charged_usd)) for x in found.missing),
    )
    sums = pairs(
        (
            ("difference", dollars(found.difference_usd)),
            ("without a tag", dollars(found.untagged_usd)),
            ("other installations", dollars(found.elsewhere_usd) if found.elsewhere_usd else ""),
            ("settled", plural(found.settled, "claim") if settled else ""),
        )
    )
    return stack(
        compared,
        unmatched if found.unmatched else None,
        missing if found.missing else None,
        sums,
    )
