"""The Cloud Billing Catalog, as far as it describes what this cloud sells."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from providers.sandbox.gce.catalogue import ACCELERATORS, SERIES
from providers.sandbox.gce.config import GceConfig

PAGE = 5000


def skus(config: GceConfig, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of the SKUs of Compute Engine: parts of machines, and some that only look so."""
    rows = _all(config)
    skip = int(query.get("pageToken") or 0)
    size = min(int(query.get("pageSize") or PAGE), PAGE)
    more = str(skip + size) if len(rows) > skip + size else ""
    return {"skus": rows[skip : skip + size], "nextPageToken": more}


def _all(config: GceConfig) -> list[dict[str, Any]]:
    region, share = config.region, config.spot_share
    rows = []
    for name, core, ram in SERIES.values():
        for what, group, usd in (("Core", "CPU", core), ("Ram", "RAM", ram)):
            told = f"{name} Instance {what}"
            rows.append(_sku(f"{told} running in Americas", group, "OnDemand", usd, region))
            spot = f"Spot Preemptible {told} running in Americas"
            rows.append(_sku(spot, group, "Preemptible", usd * share, region))
            yearly = f"Commitment v1: {told} in Americas for 1 Year"
            rows.append(_sku(yearly, group, "Commit1Yr", usd / 2, region))
    for name, usd, _ in ACCELERATORS.values():
        rows.append(_sku(f"{name} running in Americas", "GPU", "OnDemand", usd, region))
        spot = f"{name} attached to Spot Preemptible VMs running in Americas"
        rows.append(_sku(spot, "GPU", "Preemptible", usd * share, region))
        rows.append(_sku(f"{name} running in Tokyo", "GPU", "OnDemand", usd * 2, "asia-northeast1"))
    return rows


def _sku(description: str, group: str, usage: str, usd: Decimal, region: str) -> dict[str, Any]:
    units = int(usd)
    unit = {"currencyCode": "USD", "units": str(units), "nanos": int((usd - units).scaleb(9))}
    rate = {"startUsageAmount": 0, "unitPrice": unit}
    usage_unit = "GiBy.h" if group == "RAM" else "h"
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
        "serviceRegions": [region],
        "pricingInfo": [{"pricingExpression": {"usageUnit": usage_unit, "tieredRates": [rate]}}],
    }
