"""The lines of the append-only ledger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hybrid.domain.ids import ClaimId, JobId


class EntryKind(StrEnum):
    """``hold`` reserves, ``release`` gives back what was reserved, ``charge`` spends,
    ``settlement`` corrects a charge to what was really billed (either sign)."""

    HOLD = "hold"
    RELEASE = "release"
    CHARGE = "charge"
    SETTLEMENT = "settlement"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the append-only ledger. Amounts are positive except for settlements.

    ``id`` is derived from what the entry is for, so that writing it twice is refused.
    """

    id: str
    kind: EntryKind
    claim_id: ClaimId
    amount_micros: int
    at: float
    team: str
    user: str
    job_id: JobId
    memo: str = ""
