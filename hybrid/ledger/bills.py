"""A bill against the ledger: what each claim was charged, what its cloud bills, and the entry that
makes up the difference.

A bill is of one period, and a machine may live in two. So a claim's charges are split between the
periods by the time it lived in each, and every period is settled by itself: bills may come in any
order, and the same one again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hybrid.domain.bill import BillLine, LineKind
from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry


class BillState(StrEnum):
    """``agrees``: nothing to do; ``differs``: an entry makes up the difference; ``open``: the
    machine has not ended, or its end lies beyond what the bill reaches."""

    AGREES = "agrees"
    DIFFERS = "differs"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBill:
    """One claim in one billing period, in micro-dollars.

    ``charged_micros`` is the period's part of what was charged by observed times,
    ``settled_micros`` what earlier bills have corrected it by.
    """

    claim_id: ClaimId
    period: str
    state: BillState
    charged_micros: int
    settled_micros: int
    billed_micros: int
    billed_by_kind: tuple[tuple[LineKind, int], ...]
    entry: LedgerEntry | None = None

    @property
    def difference_micros(self) -> int:
        """By how much the bill is more than what the ledger says."""
        return self.billed_micros - self.charged_micros - self.settled_micros


def against_ledger(
    claim: Claim, entries: Sequence[LedgerEntry], lines: Sequence[BillLine], *, horizon_at: float
) -> ClaimBill:
    """What the ``lines`` of one period mean for a claim with these ``entries``.

    The entry that settles is dated as the charge that it corrects, so that it counts in the same
    period of a budget.
    """
    first = lines[0]
    prefix = f"{EntryKind.SETTLEMENT}:{claim.id}:{first.period}:"
    earlier = [e for e in entries if e.kind is EntryKind.SETTLEMENT and e.id.startswith(prefix)]
    charges = [e for e in entries if e.kind is EntryKind.CHARGE]
    charged = part_in(
        sum(e.amount_micros for e in charges), claim, first.period_start_at, first.period_end_at
    )
    settled = sum(e.amount_micros for e in earlier)
    billed = sum(line.micros for line in lines)
    difference = billed - charged - settled
    ended = claim.state.over and (claim.ended_at is None or claim.ended_at <= horizon_at)
    state = BillState.OPEN
    entry = None
    if ended:
        state = BillState.DIFFERS if difference else BillState.AGREES
        if difference:
            entry = LedgerEntry(
                id=f"{prefix}{len(earlier)}",
                kind=EntryKind.SETTLEMENT,
                claim_id=claim.id,
                amount_micros=difference,
                at=charges[0].at if charges else first.ended_at,
                team=claim.team,
                user=claim.user,
                job_id=claim.job_id,
                memo=f"bill of {first.period}",
            )
    return ClaimBill(
        claim_id=claim.id,
        period=first.period,
        state=state,
        charged_micros=charged,
        settled_micros=settled,
        billed_micros=billed,
        billed_by_kind=_by_kind(lines),
        entry=entry,
    )


def part_in(micros: int, claim: Claim, start_at: float, end_at: float) -> int:
    """How much of a claim's charges falls into a period: by the time its machine lived in it. The
    parts of adjoining periods add up exactly."""
    began = claim.launched_at if claim.launched_at is not None else claim.requested_at
    ended = claim.ended_at if claim.ended_at is not None else began
    length = ended - began
    if length <= 0:
        return micros if start_at <= began < end_at else 0

    def until(at: float) -> int:
        return int(micros * min(1.0, max(0.0, (at - began) / length)))

    return until(end_at) - until(start_at)


def by_claim_and_period(
    lines: Iterable[BillLine],
) -> dict[tuple[ClaimId, str], tuple[BillLine, ...]]:
    """Lines with a claim tag, by claim and period, in a fixed order."""
    found: dict[tuple[ClaimId, str], list[BillLine]] = {}
    for line in lines:
        if line.claim_id is not None:
            found.setdefault((line.claim_id, line.period), []).append(line)
    return {key: tuple(found[key]) for key in sorted(found)}


def _by_kind(lines: Sequence[BillLine]) -> tuple[tuple[LineKind, int], ...]:
    return tuple(
        (kind, sum(line.micros for line in lines if line.kind is kind))
        for kind in LineKind
        if any(line.kind is kind for line in lines)
    )
