"""The ledger's own check, and bills against it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AwareDatetime, Field, StringConstraints

from api.schemas.shown import Shown, Usd, instant, usd
from hybrid.domain.bill import Bill, BillLine, LineKind
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.money import to_micros
from hybrid.ledger.bills import BillState, ClaimBill
from hybrid.ledger.replay import ClaimMoney, by_claim
from hybrid.services.bills import BillReport
from hybrid.services.spending import Verified

LINES_AT_MOST = 2000
"""Of one request: a longer bill comes in several, claim by claim."""

_Tag = Annotated[str, StringConstraints(max_length=255, pattern=r"^[\x20-\x7e]*$")]
_Instant = Annotated[AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC))]


class ShownEntry(Shown):
    """One line of the ledger."""

    id: str
    at: datetime
    kind: EntryKind = Field(description="hold and release reserve; charge and settlement spend")
    what: str
    amount_usd: Usd = Field(description="Below zero only for settlements")

    @classmethod
    def of(cls, entry: LedgerEntry) -> ShownEntry:
        """From an entry."""
        return cls(
            id=entry.id,
            at=instant(entry.at),
            kind=entry.kind,
            what=entry.memo,
            amount_usd=usd(entry.amount_micros),
        )


class ClaimLedger(Shown):
    """What the ledger says of one claim, in the order in which it was written."""

    claim_id: str
    entries: tuple[ShownEntry, ...]
    held_usd: Usd
    charged_usd: Usd

    @classmethod
    def of(cls, claim_id: ClaimId, entries: tuple[LedgerEntry, ...]) -> ClaimLedger:
        """From a claim's entries."""
        money = by_claim(entries).get(claim_id, ClaimMoney())
        return cls(
            claim_id=claim_id,
            entries=tuple(map(ShownEntry.of, entries)),
            held_usd=usd(money.held_micros),
            charged_usd=usd(money.charged_micros),
        )


class ShownMismatch(Shown):
    """A kept balance that is not what the ledger comes to."""

    budget: str
    kept_charged_usd: Usd
    true_charged_usd: Usd
    kept_held_usd: Usd
    true_held_usd: Usd


class LedgerCheck(Shown):
    """Every balance against a replay of the whole ledger."""

    ok: bool
    entries: int
    budgets: int
    mismatches: tuple[ShownMismatch, ...]

    @classmethod
    def of(cls, found: Verified) -> LedgerCheck:
        """From a service's answer."""
        return cls(
            ok=not found.mismatches,
            entries=found.entries,
            budgets=found.budgets,
            mismatches=tuple(
                ShownMismatch(
                    budget=each.budget,
                    kept_charged_usd=usd(each.kept_charged_micros),
                    true_charged_usd=usd(each.true_charged_micros),
                    kept_held_usd=usd(each.kept_held_micros),
                    true_held_usd=usd(each.true_held_micros),
                )
                for each in found.mismatches
            ),
        )


class BilledLine(Shown):
    """Lines of a bill of one kind for one claim in one billing period, summed up."""

    claim_id: _Tag | None = Field(default=None, description="The claim tag; None without one")
    installation: _Tag = Field(default="", description="The installation tag")
    kind: LineKind = LineKind.MACHINE
    usd: Decimal = Field(ge=-1_000_000_000, le=1_000_000_000)
    began_at: _Instant
    ended_at: _Instant
    period: Annotated[str, StringConstraints(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
    period_start_at: _Instant
    period_end_at: _Instant
    count: int = Field(default=1, ge=1, le=2**31)
    what: _Tag = ""

    def as_line(self) -> BillLine:
        """For the ledger."""
        return BillLine(
            claim_id=None if self.claim_id is None else ClaimId(self.claim_id),
            installation=self.installation,
            kind=self.kind,
            micros=to_micros(self.usd),
            began_at=self.began_at.timestamp(),
            ended_at=self.ended_at.timestamp(),
            period=self.period,
            period_start_at=self.period_start_at.timestamp(),
            period_end_at=self.period_end_at.timestamp(),
            count=self.count,
            what=self.what,
        )


class BillText(Shown):
    """A bill as `hybrid ledger` reads it from a cloud's export."""

    provider: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(
        description="Whose bill it is: a provider's name as claims have it"
    )
    horizon_at: _Instant = Field(description="The end of the latest usage in the bill")
    lines: tuple[BilledLine, ...] = Field(max_length=LINES_AT_MOST)

    def as_bill(self) -> Bill:
        """For the ledger."""
        return Bill(
            lines=tuple(line.as_line() for line in self.lines),
            horizon_at=self.horizon_at.timestamp(),
        )


class ShownClaimBill(Shown):
    """One claim in one billing period."""

    claim_id: str
    period: str
    state: BillState
    charged_usd: Usd = Field(description="By observed times: this period's part of it")
    settled_usd: Usd = Field(description="By what earlier bills have corrected it")
    billed_usd: Usd
    difference_usd: Usd = Field(description="By how much the bill is more")
    by_kind_usd: dict[LineKind, Usd]

    @classmethod
    def of(cls, found: ClaimBill) -> ShownClaimBill:
        """From a comparison."""
        return cls(
            claim_id=found.claim_id,
            period=found.period,
            state=found.state,
            charged_usd=usd(found.charged_micros),
            settled_usd=usd(found.settled_micros),
            billed_usd=usd(found.billed_micros),
            difference_usd=usd(found.difference_micros),
            by_kind_usd={kind: usd(micros) for kind, micros in found.billed_by_kind},
        )


class UnmatchedLine(Shown):
    """Lines of a bill that no claim of ours stands for."""

    claim_id: str
    period: str
    kind: LineKind
    usd: Usd
    count: int
    what: str

    @classmethod
    def of(cls, line: BillLine) -> UnmatchedLine:
        """From a line."""
        return cls(
            claim_id=line.claim_id or "",
            period=line.period,
            kind=line.kind,
            usd=usd(line.micros),
            count=line.count,
            what=line.what,
        )


class MissingClaim(Shown):
    """A claim that was charged and that the bill does not name."""

    claim_id: str
    machine_id: str
    charged_usd: Usd


class BillComparison(Shown):
    """A bill against the ledger."""

    claims: tuple[ShownClaimBill, ...]
    unmatched: tuple[UnmatchedLine, ...] = Field(description="Tagged as ours, with no such claim")
    missing: tuple[MissingClaim, ...] = Field(description="Charged here, on no line of the bill")
    untagged_usd: Usd = Field(description="What lines without a claim tag come to")
    elsewhere_usd: Usd = Field(description="What other installations' lines come to")
    difference_usd: Usd = Field(description="Of all claims together")
    settled: int = Field(description="Entries that were written")

    @classmethod
    def of(cls, report: BillReport) -> BillComparison:
        """From a service's answer."""
        return cls(
            claims=tuple(map(ShownClaimBill.of, report.claims)),
            unmatched=tuple(map(UnmatchedLine.of, report.unmatched)),
            missing=tuple(
                MissingClaim(
                    claim_id=claim.id,
                    machine_id=claim.machine_id or "",
                    charged_usd=usd(claim.charged_micros),
                )
                for claim in report.missing
            ),
            untagged_usd=usd(sum(line.micros for line in report.untagged)),
            elsewhere_usd=usd(sum(line.micros for line in report.elsewhere)),
            difference_usd=usd(sum(each.difference_micros for each in report.claims)),
            settled=report.settled,
        )
