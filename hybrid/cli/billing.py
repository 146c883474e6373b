"""Bills on their way to the server: summed up, in requests of a size that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from hybrid.client import answers as said
from hybrid.domain.bill import Bill, BillLine, summed
from hybrid.domain.money import to_usd

LINES = 1500
"""Of one request, which the server reads whole: about half of what it takes."""


def batches(bills: Sequence[Bill], provider: str) -> Iterator[dict[str, Any]]:
    """Requests for all lines of the bills; all lines of one claim and period are in one of them."""
    lines = summed([line for bill in bills for line in bill.lines])
    horizon_at = max((bill.horizon_at for bill in bills), default=0.0)
    batch: list[BillLine] = []
    for line in lines:
        key = (line.claim_id, line.period)
        if len(batch) >= LINES and (batch[-1].claim_id, batch[-1].period) != key:
            yield _request(batch, provider, horizon_at)
            batch = []
        batch.append(line)
    yield _request(batch, provider, horizon_at)


def _request(lines: Sequence[BillLine], provider: str, horizon_at: float) -> dict[str, Any]:
    return {
        "provider": provider,
        "horizon_at": _instant(horizon_at),
        "lines": [
            {
                "claim_id": line.claim_id,
                "installation": line.installation,
                "kind": line.kind,
                "usd": str(to_usd(line.micros)),
                "began_at": _instant(line.began_at),
                "ended_at": _instant(line.ended_at),
                "period": line.period,
                "period_start_at": _instant(line.period_start_at),
                "period_end_at": _instant(line.period_end_at),
                "count": line.count,
                "what": line.what if line.what.isascii() else "",
            }
            for line in lines
        ],
    }


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def together(parts: Sequence[said.BillComparison]) -> said.BillComparison:
    """The answers to all requests as one. A claim is missing from the bill if no request has it."""
    if len(parts) == 1:
        return parts[0]
    everywhere = set.intersection(*({each.claim_id for each in p.missing} for p in parts))
    first = parts[0]
    return first.model_copy(
        update={
            "claims": tuple(each for part in parts for each in part.claims),
            "unmatched": tuple(each for part in parts for each in part.unmatched),
            "missing": tuple(each for each in first.missing if each.claim_id in everywhere),
            "untagged_usd": sum(part.untagged_usd for part in parts),
            "elsewhere_usd": sum(part.elsewhere_usd for part in parts),
            "difference_usd": sum(part.difference_usd for part in parts),
            "settled": sum(part.settled for part in parts),
        }
    )
