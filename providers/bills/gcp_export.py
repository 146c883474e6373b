"""Google Cloud's billing export as CSV: rows of the BigQuery standard or detailed usage cost export
(Cloud Billing documentation, "Structure of Detailed data export").

The label ``hybrid-claim`` stands in the column ``labels``, a JSON list of keys and values; credits
count against what they are for. An invoice's month begins at midnight in Los Angeles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from zoneinfo import ZoneInfo

from hybrid.domain.bill import Bill, BillLine, LineKind
from hybrid.domain.ids import ClaimId
from hybrid.domain.money import to_micros
from providers.bills.table import CLAIM_TAG, INSTALLATION_TAG, BillError, Row, bill_of, rows

_NEEDED = ("cost", "usage_start_time", "usage_end_time", "invoice_month", "sku_description")
_ZONE = "America/Los_Angeles"
_KINDS = (
    (re.compile(r"egress|data transfer|network", re.IGNORECASE), LineKind.EGRESS),
    (re.compile(r"\bPD\b|disk|hyperdisk|storage", re.IGNORECASE), LineKind.DISK),
    (re.compile(r"core|ram|gpu|instance|vm|accelerator", re.IGNORECASE), LineKind.MACHINE),
)


def read_export(lines: Iterable[str]) -> Bill:
    """The bill in the lines of a CSV file; raises BillError."""
    found = rows(lines, _NEEDED, "the usage cost export")
    return bill_of(found, _line, currency="currency")


def _line(row: Row) -> BillLine:
    own = {name: row.cells[name] for name in (CLAIM_TAG, INSTALLATION_TAG) if row.cells.get(name)}
    labels = {**row.mapping("labels"), **own}
    claim = labels.get(CLAIM_TAG) or None
    what = row.text("sku_description")
    start_at, end_at, period = _month(row)
    return BillLine(
        claim_id=None if claim is None else ClaimId(claim),
        installation=labels.get(INSTALLATION_TAG, ""),
        kind=next((kind for words, kind in _KINDS if words.search(what)), LineKind.OTHER),
        micros=row.usd_micros("cost") + _credits_micros(row),
        began_at=row.instant("usage_start_time"),
        ended_at=row.instant("usage_end_time"),
        period=period,
        period_start_at=start_at,
        period_end_at=end_at,
        what=what,
    )


def _credits_micros(row: Row) -> int:
    """What is taken off: negative amounts."""
    text = row.cells.get("credits", "").strip()
    if not text:
        return 0
    try:
        amounts = [Decimal(str(each.get("amount", 0))) for each in json.loads(text)]
    except (ValueError, AttributeError, TypeError, InvalidOperation) as problem:
        said = "credits are not a JSON list of amounts"
        raise BillError(row.number, "credits", said, "export it anew") from problem
    return to_micros(sum(amounts, Decimal(0)))


def _month(row: Row) -> tuple[float, float, str]:
    text = row.text("invoice_month").strip()
    if not re.fullmatch(r"\d{4}(?:0[1-9]|1[0-2])", text) or text.startswith("0000"):
        raise BillError(row.number, "invoice_month", f"{text!r} is not a month", "such as 202611")
    return _month_of(text)


@lru_cache(maxsize=64)
def _month_of(text: str) -> tuple[float, float, str]:
    year, month = int(text[:4]), int(text[4:])
    zone = ZoneInfo(_ZONE)
    after = (year + month // 12, month % 12 + 1)
    start = datetime(year, month, 1, tzinfo=zone).timestamp()
    end = datetime(*after, 1, tzinfo=zone).timestamp()
    return start, end, f"{text[:4]}-{text[4:]}"
