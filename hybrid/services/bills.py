"""Bills of clouds against the ledger: compared, and settled when asked to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hybrid.domain.bill import Bill, BillLine
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.money import cents
from hybrid.ledger.bills import BillState, ClaimBill, against_ledger, by_claim_and_period
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, Post, Store
from hybrid.services.errors import NotNow

CLAIMS_LOOKED_AT = 10_000
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BillReport:
    """A bill against the ledger.

    ``unmatched`` are lines whose claim tag names no claim of ours, ``untagged`` those without one
    (what else the account has bought), ``elsewhere`` those of other installations; ``missing`` are
    claims charged in the bill's time that it does not name.
    """

    claims: tuple[ClaimBill, ...]
    unmatched: tuple[BillLine, ...]
    untagged: tuple[BillLine, ...]
    elsewhere: tuple[BillLine, ...]
    missing: tuple[Claim, ...]
    settled: int = 0


@dataclass(slots=True)
class _Sorted:
    ours: list[BillLine] = field(default_factory=list)
    untagged: list[BillLine] = field(default_factory=list)
    elsewhere: list[BillLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bills:
    """Compares bills with the ledger, and settles the differences."""

    store: Store
    clock: Clock
    installation: str

    def compare(self, bill: Bill, *, provider: str) -> BillReport:
        """What the bill says of each claim; nothing is written."""
        lines = self._sorted(bill.lines)
        claims: list[ClaimBill] = []
        unmatched: list[BillLine] = []
        for (claim_id, _), mine in by_claim_and_period(lines.ours).items():
            claim = self.store.claim(claim_id)
            if claim is None:
                unmatched.extend(mine)
                continue
            entries = self.store.entries(claim_id=claim_id)
            claims.append(against_ledger(claim, entries, mine, horizon_at=bill.horizon_at))
        named = {each.claim_id for each in claims}
        return BillReport(
            claims=tuple(claims),
            unmatched=tuple(unmatched),
            untagged=tuple(lines.untagged),
            elsewhere=tuple(lines.elsewhere),
            missing=tuple(self._missing(bill, provider, named)),
        )

    def settle(self, bill: Bill, *, provider: str, by: str) -> BillReport:
        """The same, and an entry for every claim that differs. The same bill again, or another
        importer beside this one, adds nothing."""
        settled = 0
        for _ in range(_TRIES):
            report = replace(self.compare(bill, provider=provider), settled=settled)
            entries = [each.entry for each in report.claims if each.entry is not None]
            if not entries:
                return report
            now = self.clock.now()
            done = self.store.commit(
                [Bundle(id=e.id, changes=(Post(e), _note(e, now, by))) for e in entries], at=now
            )
            settled += len(done.applied)
            if not done.dropped:
                return replace(report, settled=settled)
        raise NotNow("bill_raced", "others settle the same claims now; import it again")

    def _sorted(self, lines: Iterable[BillLine]) -> _Sorted:
        found = _Sorted()
        for line in lines:
            if line.installation not in ("", self.installation):
                found.elsewhere.append(line)
            elif line.claim_id is None:
                found.untagged.append(line)
            else:
                found.ours.append(line)
        return found

    def _missing(self, bill: Bill, provider: str, named: set[ClaimId]) -> Iterable[Claim]:
        """Claims that ended in the bill's time, were charged, and are on none of its lines."""
        if not bill.lines:
            return
        since = min(line.period_start_at for line in bill.lines)
        for claim in self.store.claims(states=(ClaimState.GONE,), limit=CLAIMS_LOOKED_AT):
            ended = claim.ended_at
            if claim.offer.provider != provider or claim.id in named or ended is None:
                continue
            if claim.charged_micros and since <= ended <= bill.horizon_at:
                yield claim


def _note(entry: LedgerEntry, now: float, by: str) -> Note:
    more = entry.amount_micros > 0
    words = f"{entry.memo}: ${cents(abs(entry.amount_micros))} {'more' if more else 'less'}"
    return Note(
        Event(
            kind=EventKind.CLAIM,
            subject=entry.claim_id,
            what="settled by a bill",
            at=now,
            words=words,
            job_id=entry.job_id,
            actor=by,
        )
    )


def open_claims(report: BillReport) -> int:
    """How many claims the bill cannot settle yet."""
    return sum(each.state is BillState.OPEN for each in report.claims)
