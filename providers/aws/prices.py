"""List prices and spot prices in one region.

On-demand prices come from the Pricing API and, where that cannot be asked, from a small dated
table; which of the two stands with the price. Spot prices come from the spot price history.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.money import to_micros
from hybrid.ports.errors import PortError
from providers.aws.errors import Scopes, translated
from providers.offering import Price

LIST_PRICES_LAST_S: Final = 86_400.0
"""List prices change rarely; they are asked for once a day."""

TABLE_REGION: Final = "us-east-1"
TABLE_DATE: Final = "2026-07-20"
# USD per hour, Linux, on demand, us-east-1 (source: karpenter-provider-aws, Apache-2.0)
TABLE: Final = MappingProxyType(
    {
        "g4dn.xlarge": Decimal("0.526"),
        "g4dn.2xlarge": Decimal("0.752"),
        "g4dn.4xlarge": Decimal("1.204"),
        "g4dn.8xlarge": Decimal("2.176"),
        "g4dn.12xlarge": Decimal("3.912"),
        "g4dn.16xlarge": Decimal("4.352"),
        "g5.xlarge": Decimal("1.006"),
        "g5.2xlarge": Decimal("1.212"),
        "g5.12xlarge": Decimal("5.672"),
        "g5.48xlarge": Decimal("16.288"),
        "g6.xlarge": Decimal("0.8048"),
        "g6.2xlarge": Decimal("0.9776"),
        "g6.4xlarge": Decimal("1.3232"),
        "g6.12xlarge": Decimal("4.6016"),
        "g6.48xlarge": Decimal("13.3504"),
        "g6e.xlarge": Decimal("1.861"),
        "g6e.12xlarge": Decimal("10.49264"),
        "g6e.48xlarge": Decimal("30.13118"),
        "p3.2xlarge": Decimal("3.06"),
        "p3.8xlarge": Decimal("12.24"),
        "p3.16xlarge": Decimal("24.48"),
    }
)


class Prices:
    """Asks for prices and keeps what changes rarely. Safe to call from several threads."""

    def __init__(
        self, ec2: Any, pricing: Any, *, region: str, scopes: Scopes, now: Callable[[], float]
    ) -> None:
        self._ec2, self._pricing, self._region = ec2, pricing, region
        self._scopes, self._now = scopes, now
        self._lock = threading.Lock()
        self._listed: dict[str, Price] = {}

    def on_demand(self, machine_types: Iterable[str]) -> dict[str, Price]:
        """The list price of each machine type that has one."""
        found = {}
        for machine_type in sorted(set(machine_types)):
            price = self._list_price(machine_type)
            if price is not None:
                found[machine_type] = price
        return found

    def spot(
        self, machine_types: Iterable[str], zones: Iterable[str]
    ) -> dict[tuple[str, str], Price]:
        """The spot price now, by (machine type, zone)."""
        now = self._now()
        wanted, asked = set(zones), sorted(set(machine_types))
        newest: dict[tuple[str, str], tuple[datetime, Price]] = {}
        with translated(self._scopes):
            pages = self._ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=asked,
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.fromtimestamp(now, UTC),
            )
            rows = [row for page in pages for row in page["SpotPriceHistory"]]
        for row in rows:
            key = (row["InstanceType"], row["AvailabilityZone"])
            micros = _micros(row["SpotPrice"])
            if key[1] not in wanted or micros is None:
                continue
            price = Price(micros, now, "spot price history")
            if key not in newest or row["Timestamp"] > newest[key][0]:
                newest[key] = (row["Timestamp"], price)
        return {key: price for key, (_, price) in newest.items()}

    def _list_price(self, machine_type: str) -> Price | None:
        now = self._now()
        with self._lock:
            kept = self._listed.get(machine_type)
        if kept is not None and now - kept.at < LIST_PRICES_LAST_S:
            return kept
        try:
            price = self._ask(machine_type, now)
        except PortError:
            # prices need a permission of their own; an older answer or the table do without
            price = kept or self._from_table(machine_type, now)
        else:
            price = price or self._from_table(machine_type, now)
        if price is not None:
            with self._lock:
                self._listed[machine_type] = price
        return price

    def _ask(self, machine_type: str, now: float) -> Price | None:
        with translated(self._scopes):
            answer = self._pricing.get_products(
                ServiceCode="AmazonEC2",
                Filters=[
                    {"Type": "TERM_MATCH", "Field": field, "Value": value}
                    for field, value in (
                        ("instanceType", machine_type),
                        ("regionCode", self._region),
                        ("operatingSystem", "Linux"),
                        ("tenancy", "Shared"),
                        ("preInstalledSw", "NA"),
                        ("capacitystatus", "Used"),
                    )
                ],
                MaxResults=10,
            )
        micros = [
            price
            for product in answer["PriceList"]
            for price in _hourly(json.loads(product))
            if price > 0
        ]
        return Price(max(micros), now, "pricing API") if micros else None

    def _from_table(self, machine_type: str, now: float) -> Price | None:
        usd = TABLE.get(machine_type)
        if usd is None or self._region != TABLE_REGION:
            return None
        return Price(to_micros(usd), now, f"built-in table of {TABLE_DATE}")


def _hourly(product: Mapping[str, Any]) -> list[int]:
    found = []
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            micros = _micros(dimension.get("pricePerUnit", {}).get("USD", ""))
            if micros is not None:
                found.append(micros)
    return found


def _micros(text: str) -> int | None:
    try:
        usd = Decimal(text)
    except InvalidOperation:
        return None
    return to_micros(usd) if usd.is_finite() and usd >= 0 else None
