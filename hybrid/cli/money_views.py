"""The ledger and bills as tables."""

from __future__ import annotations

from typing import Any

from hybrid.cli.tables import line, pairs, stack, table
from hybrid.cli.words import dollars, plural
from hybrid.client import answers as said


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
