"""List prices and spot prices in one region.

On-demand prices come from the Pricing API and, where that cannot be asked, from a small dated
table; which of the two stands with the price. Spot prices come from the spot price history, and
with them what they have been for a day.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.money import to_micros
from hybrid.ports.errors import PortError
from providers.aws.errors import Scopes, translated
from providers.kept import SPREAD, Keeper
from providers.offering import STALE, Price

LIST_PRICES_LAST_S: Final = 86_400.0
"""List prices change rarely; they are asked for once a day."""
FIRST_WAIT_S: Final = 10.0
HISTORY_S: Final = 86_400.0
USUAL_LASTS_S: Final = 3_600.0

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
    """Asks for prices and keeps what changes rarely. Safe to call from several threads.

    List prices are kept on disk with their age and renewed in the background; what they are not
    known of yet is waited for a little. ``cache_name`` tells endpoints apart.
    """

    def __init__(
        self,
        ec2: Any,
        pricing: Any,
        *,
        region: str,
        scopes: Scopes,
        cache_dir: Path,
        cache_name: str,
        now: Callable[[], float],
    ) -> None:
        self._ec2, self._pricing, self._region = ec2, pricing, region
        self._scopes, self._now = scopes, now
        self._lock = threading.Lock()
        self._asked_for: set[str] = set()
        self._keeper = Keeper(
            cache_dir / f"{cache_name}.json", self._fetch, lasts_s=LIST_PRICES_LAST_S, now=now
        )
        self._usual: dict[tuple[str, str], int] = {}
        self._usual_of: tuple[frozenset[str], float] = (frozenset(), float("-inf"))

    def on_demand(self, machine_types: Iterable[str]) -> dict[str, Price]:
        """The list price of each machine type that has one."""
        wanted = set(machine_types)
        with self._lock:
            self._asked_for |= wanted
        kept = self._keeper.get(FIRST_WAIT_S, lambda document: wanted <= set(document))
        now = self._now()
        found = {}
        for machine_type in sorted(wanted):
            micros = None if kept is None else kept.document.get(machine_type)
            price = self._from_table(machine_type, now)
            if kept is not None and isinstance(micros, int):
                stale = f", {STALE}" if self._keeper.is_stale(kept) else ""
                price = Price(micros, kept.at, f"pricing API{stale}")
            if price is not None:
                found[machine_type] = price
        return found

    def spot(
        self, machine_types: Iterable[str], zones: Iterable[str]
    ) -> dict[tuple[str, str], Price]:
        """The spot price now, by (machine type, zone), and what it has been of late."""
        now = self._now()
        wanted, asked = set(zones), sorted(set(machine_types))
        self._learn_usual(asked, now)
        newest: dict[tuple[str, str], tuple[datetime, Price]] = {}
        for row in self._history(asked, now):
            key = (row["InstanceType"], row["AvailabilityZone"])
            micros = _micros(row["SpotPrice"])
            if key[1] not in wanted or micros is None:
                continue
            price = Price(micros, now, "spot price history", self._usual.get(key))
            if key not in newest or row["Timestamp"] > newest[key][0]:
                newest[key] = (row["Timestamp"], price)
        return {key: price for key, (_, price) in newest.items()}

    def _history(self, machine_types: list[str], since: float) -> list[dict[str, Any]]:
        """Rows of the spot price history since an instant, the price then in force among them."""
        with translated(self._scopes):
            pages = self._ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=machine_types,
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.fromtimestamp(since, UTC),
            )
            return [row for page in pages for row in page["SpotPriceHistory"]]

    def _learn_usual(self, machine_types: list[str], now: float) -> None:
        """Once an hour, servers not in step; without it spot prices say nothing of scarcity."""
        types, due_at = self._usual_of
        if types.issuperset(machine_types) and now < due_at:
            return
        try:
            rows = self._history(machine_types, now - HISTORY_S)
        except PortError:
            return  # the price now is asked for next, and tells what is wrong
        self._usual = usual_prices(rows, now)
        spread = random.uniform(1.0 - SPREAD, 1.0)  # noqa: S311
        self._usual_of = (frozenset(machine_types), now + USUAL_LASTS_S * spread)

    def _fetch(self) -> dict[str, int | None]:
        """Machine type → micro-dollars an hour; None for one that the API does not price."""
        with self._lock:
            wanted = sorted(self._asked_for)
        return {machine_type: self._ask(machine_type) for machine_type in wanted}

    def _ask(self, machine_type: str) -> int | None:
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
        return max(micros) if micros else None

    def _from_table(self, machine_type: str, now: float) -> Price | None:
        usd = TABLE.get(machine_type)
        if usd is None or self._region != TABLE_REGION:
            return None
        return Price(to_micros(usd), now, f"built-in table of {TABLE_DATE}")


def usual_prices(rows: Iterable[Mapping[str, Any]], now: float) -> dict[tuple[str, str], int]:
    """The mean spot price of the last day by (machine type, zone), weighted by how long each price
    stood."""
    series: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row in rows:
        micros = _micros(row["SpotPrice"])
        if micros is not None:
            key = (row["InstanceType"], row["AvailabilityZone"])
            at = max(row["Timestamp"].timestamp(), now - HISTORY_S)
            series.setdefault(key, []).append((at, micros))
    found = {}
    for key, steps in series.items():
        steps.sort()
        ends = [at for at, _ in steps[1:]] + [max(now, steps[-1][0])]
        stood = [end - at for (at, _), end in zip(steps, ends, strict=True)]
        if sum(stood) > 0:
            mean = sum(s * micros for s, (_, micros) in zip(stood, steps, strict=True))
            found[key] = round(mean / sum(stood))
    return found


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
