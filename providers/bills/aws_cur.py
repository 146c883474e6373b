"""AWS Cost and Usage Report 2.0 as CSV (AWS Data Exports user guide, "Cost and Usage Report (CUR)
2.0"). The older report's columns (``lineItem/UsageStartDate``) are read too.

The tag ``hybrid:claim`` must be activated as a cost allocation tag; it then stands in the column
``resource_tags``, a JSON object, as ``user_hybrid_claim``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hybrid.domain.bill import Bill, BillLine, LineKind
from hybrid.domain.ids import ClaimId
from providers.bills.table import CLAIM_TAG, INSTALLATION_TAG, Row, bill_of, rows

_NEEDED = (
    "bill_billing_period_start_date",
    "bill_billing_period_end_date",
    "line_item_usage_start_date",
    "line_item_usage_end_date",
    "line_item_unblended_cost",
    "line_item_usage_type",
)
_OLD = re.compile(r"^(bill|lineItem|product|pricing|identity)/(.+)$")
_KINDS = (
    (re.compile(r"BoxUsage|SpotUsage|DedicatedUsage|HostUsage|UnusedBox"), LineKind.MACHINE),
    (re.compile(r"EBS:"), LineKind.DISK),
    (re.compile(r"DataTransfer|Out-Bytes|In-Bytes|NatGateway-Bytes"), LineKind.EGRESS),
)


def read_cur(lines: Iterable[str]) -> Bill:
    """The bill in the lines of a CSV file; raises BillError."""
    found = rows(_with_new_names(lines), _NEEDED, "the Cost and Usage Report")
    return bill_of(found, _line, currency="line_item_currency_code")


def _line(row: Row) -> BillLine:
    tags = _tags(row)
    usage = row.text("line_item_usage_type")
    start_at = row.instant("bill_billing_period_start_date")
    claim = tags.get(CLAIM_TAG) or None
    return BillLine(
        claim_id=None if claim is None else ClaimId(claim),
        installation=tags.get(INSTALLATION_TAG, ""),
        kind=next((kind for words, kind in _KINDS if words.search(usage)), LineKind.OTHER),
        micros=row.usd_micros("line_item_net_unblended_cost", "line_item_unblended_cost"),
        began_at=row.instant("line_item_usage_start_date"),
        ended_at=row.instant("line_item_usage_end_date"),
        period=row.text("bill_billing_period_start_date")[:7],
        period_start_at=start_at,
        period_end_at=row.instant("bill_billing_period_end_date"),
        what=usage,
    )


def _tags(row: Row) -> Mapping[str, str]:
    own = {name: row.cells[name] for name in (CLAIM_TAG, INSTALLATION_TAG) if row.cells.get(name)}
    return {**row.mapping("resource_tags"), **own}


def _with_new_names(lines: Iterable[str]) -> Iterable[str]:
    """The heading of the older report, ``lineItem/UsageStartDate``, as the newer one writes it."""
    for number, line in enumerate(lines):
        if number == 0:
            yield ",".join(_new_name(cell) for cell in line.rstrip("\r\n").split(",")) + "\n"
        else:
            yield line


def _new_name(cell: str) -> str:
    name = cell.strip().strip('"').lstrip("\ufeff")
    old = _OLD.match(name)
    if old is None:
        return cell
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", f"{old[1]}_{old[2]}")
    return words.lower()
