"""What a cloud says its machines have cost, line by line, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hybrid.domain.ids import ClaimId


class LineKind(StrEnum):
    """What a line of a bill is for."""

    MACHINE = "machine"
    DISK = "disk"
    EGRESS = "egress"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One or more lines of a bill of the same kind for one claim in one billing period.

    ``claim_id`` is what the claim tag says, None without one; ``installation`` likewise. The
    billing period runs from ``period_start_at`` until ``period_end_at``, which is not in it.
    """

    claim_id: ClaimId | None
    installation: str = ""
    kind: LineKind = LineKind.MACHINE
    micros: int
    began_at: float
    ended_at: float
    period: str
    period_start_at: float
    period_end_at: float
    count: int = 1
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A bill as far as it goes: ``horizon_at`` is the end of the latest usage in it, our machines'
    or anybody's."""

    lines: tuple[BillLine, ...]
    horizon_at: float


def summed(lines: list[BillLine]) -> tuple[BillLine, ...]:
    """Lines of one claim, period and kind as one, in a fixed order."""
    found: dict[tuple[str, str, str, str], BillLine] = {}
    for line in lines:
        key = (line.claim_id or "", line.period, line.kind, line.installation)
        same = found.get(key)
        found[key] = line if same is None else _together(same, line)
    return tuple(found[key] for key in sorted(found))


def _together(first: BillLine, second: BillLine) -> BillLine:
    return BillLine(
        claim_id=first.claim_id,
        installation=first.installation,
        kind=first.kind,
        micros=first.micros + second.micros,
        began_at=min(first.began_at, second.began_at),
        ended_at=max(first.ended_at, second.ended_at),
        period=first.period,
        period_start_at=first.period_start_at,
        period_end_at=first.period_end_at,
        count=first.count + second.count,
        what=first.what if first.what == second.what else "several",
    )
