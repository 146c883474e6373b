"""Exported bills as the clouds write them, and files that are none."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from hybrid.domain.bill import LineKind
from providers.bills import READERS, BillError
from providers.bills.table import plain


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def as_csv(*rows: Mapping[str, str]) -> list[str]:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().splitlines(keepends=True)


CUR = {
    "bill_billing_period_start_date": "2026-11-01T00:00:00.000Z",
    "bill_billing_period_end_date": "2026-12-01T00:00:00.000Z",
    "line_item_usage_start_date": "2026-11-03T10:00:00.000Z",
    "line_item_usage_end_date": "2026-11-03T11:00:00.000Z",
    "line_item_line_item_type": "Usage",
    "line_item_usage_type": "USE2-SpotUsage:g5.xlarge",
    "line_item_currency_code": "USD",
    "line_item_unblended_cost": "0.4024",
    "line_item_net_unblended_cost": "",
    "line_item_resource_id": "i-0abc",
    "resource_tags": '{"user_hybrid_claim": "c-j1-1-0", "user_hybrid_installation": "inst"}',
}

GCP = {
    "service.description": "Compute Engine",
    "sku.description": "Spot Preemptible A2 Instance Core running in Americas",
    "usage_start_time": "2026-11-03 10:00:00 UTC",
    "usage_end_time": "2026-11-03 11:00:00 UTC",
    "invoice.month": "202611",
    "cost": "1.25",
    "currency": "USD",
    "credits": '[{"name": "discount", "amount": -0.25}]',
    "labels": '[{"key": "hybrid-claim", "value": "c-j1-1-0"}]',
}


def test_a_cost_and_usage_report_is_read_and_summed_by_claim_and_kind() -> None:
    bill = READERS["aws-cur"](
        as_csv(
            CUR,
            CUR | {"line_item_usage_end_date": "2026-11-03T11:30:00.000Z"},
            CUR | {"line_item_usage_type": "USE2-EBS:VolumeUsage.gp3"},
            CUR | {"line_item_usage_type": "USE2-DataTransfer-Out-Bytes"},
            CUR | {"resource_tags": "", "line_item_usage_end_date": "2026-11-04T00:00:00Z"},
        )
    )
    assert bill.horizon_at == at("2026-11-04")
    assert [(x.claim_id, x.kind, x.micros, x.count) for x in bill.lines] == [
        (None, LineKind.MACHINE, 402_400, 1),
        ("c-j1-1-0", LineKind.DISK, 402_400, 1),
        ("c-j1-1-0", LineKind.EGRESS, 402_400, 1),
        ("c-j1-1-0", LineKind.MACHINE, 804_800, 2),
    ]
    last = bill.lines[-1]
    assert (last.installation, last.period) == ("inst", "2026-11")
    assert (last.period_start_at, last.period_end_at) == (at("2026-11-01"), at("2026-12-01"))
    assert (last.began_at, last.ended_at) == (at("2026-11-03T10:00"), at("2026-11-03T11:30"))


def test_what_is_paid_after_discounts_counts() -> None:
    (line,) = READERS["aws-cur"](as_csv(CUR | {"line_item_net_unblended_cost": "0.3"})).lines
    assert line.micros == 300_000


def test_the_older_report_is_read_too() -> None:
    old = {
        "bill/BillingPeriodStartDate": "2026-11-01T00:00:00Z",
        "bill/BillingPeriodEndDate": "2026-12-01T00:00:00Z",
        "lineItem/UsageStartDate": "2026-11-03T10:00:00Z",
        "lineItem/UsageEndDate": "2026-11-03T11:00:00Z",
        "lineItem/UsageType": "BoxUsage:p5.48xlarge",
        "lineItem/UnblendedCost": "98.32",
        "lineItem/CurrencyCode": "USD",
        "resourceTags/user:hybrid:claim": "c-j1-1-0",
    }
    (line,) = READERS["aws-cur"](as_csv(old)).lines
    assert (line.claim_id, line.kind, line.micros) == ("c-j1-1-0", LineKind.MACHINE, 98_320_000)


def test_a_google_export_is_read_with_its_credits_in_the_invoices_own_month() -> None:
    bill = READERS["gcp-export"](
        as_csv(
            GCP,
            GCP | {"sku.description": "Storage PD Capacity", "credits": ""},
            GCP | {"sku.description": "Network Internet Egress", "credits": "[]"},
        )
    )
    assert [(x.kind, x.micros) for x in bill.lines] == [
        (LineKind.DISK, 1_250_000),
        (LineKind.EGRESS, 1_250_000),
        (LineKind.MACHINE, 1_000_000),
    ]
    # midnight in Los Angeles: clocks go back on 1 November 2026
    assert bill.lines[0].period_start_at == at("2026-11-01T07:00")
    assert bill.lines[0].period_end_at == at("2026-12-01T08:00")
    december = READERS["gcp-export"](as_csv(GCP | {"invoice.month": "202612"})).lines[0]
    assert december.period_start_at == bill.lines[0].period_end_at


@pytest.mark.parametrize(
    ("name", "lines", "row", "column", "message"),
    [
        ("aws-cur", [], 1, "", "the file is empty"),
        ("aws-cur", ["a,b\n"], 1, "", "no column bill_billing_period_start_date"),
        ("gcp-export", as_csv(CUR), 1, "", "no column cost"),
        (
            "aws-cur",
            as_csv(CUR, CUR | {"line_item_unblended_cost": "free"}),
            3,
            "line_item_unblended_cost",
            "'free' is not an amount",
        ),
        (
            "aws-cur",
            as_csv(CUR | {"line_item_unblended_cost": "NaN"}),
            2,
            "line_item_unblended_cost",
            "not an amount of money",
        ),
        (
            "aws-cur",
            as_csv(CUR | {"line_item_usage_end_date": "soon"}),
            2,
            "line_item_usage_end_date",
            "'soon' is not an instant",
        ),
        ("aws-cur", as_csv(CUR | {"resource_tags": "{"}), 2, "resource_tags", "not JSON"),
        (
            "aws-cur",
            as_csv(CUR | {"line_item_currency_code": "EUR"}),
            2,
            "line_item_currency_code",
            "billed in EUR",
        ),
        ("aws-cur", [*as_csv(CUR), "1,2\n"], 3, "", "2 cells under 11 columns"),
        ("aws-cur", [*as_csv(CUR), '"open\n'], 3, "", "not CSV"),
        (
            "gcp-export",
            as_csv(GCP | {"invoice.month": "202613"}),
            2,
            "invoice_month",
            "'202613' is not a month",
        ),
        ("gcp-export", as_csv(GCP | {"credits": "{"}), 2, "credits", "not a JSON list"),
        ("gcp-export", as_csv(GCP | {"credits": "[1]"}), 2, "credits", "not a JSON list"),
    ],
)
def test_a_file_that_is_no_bill_is_refused_with_its_row_and_column(
    name: str, lines: list[str], row: int, column: str, message: str
) -> None:
    with pytest.raises(BillError) as caught:
        READERS[name](lines)
    assert (caught.value.row, caught.value.column) == (row, column)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "hybrid:claim",
        "user:hybrid:claim",
        "user_hybrid_claim",
        "resourceTags/user:hybrid:claim",
        "resource_tags.user_hybrid_claim",
        "labels.hybrid-claim",
    ],
)
def test_the_claim_tag_is_known_however_a_cloud_writes_it(name: str) -> None:
    assert plain(name) == "hybrid_claim"
