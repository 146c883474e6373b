"""List and spot prices of machines in one region, put together from their parts.

Compute Engine sells vCPUs, memory and GPUs apart; each has its SKU in the Cloud Billing Catalog,
told apart by its description ("G2 Instance Core running in Iowa", "Nvidia L4 GPU attached to Spot
Preemptible VMs running in Iowa"). A machine's price is the sum of its parts; a machine with a part
of unknown price has none. Local SSDs that come with a type are not in it. Where the catalogue
cannot be had, a small dated table of list prices stands in, and every price from it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.job_spec import Market
from hybrid.domain.money import to_micros
from providers.gcp.errors import Scopes
from providers.gcp.names import read_type
from providers.gcp.rest import BILLING, Rest, translated
from providers.kept import Keeper
from providers.offering import STALE, Price

COMPUTE_SERVICE: Final = "services/6F81-5844-456A"
"""Compute Engine's name in the Cloud Billing Catalog."""
LASTS_S: Final = 86_400.0
FIRST_WAIT_S: Final = 10.0
PAGE: Final = 5000

SERIES: Final = MappingProxyType(
    {
        "n1": "N1 Predefined",
        "g2": "G2",
        "g4": "G4",
        "a2": "A2",
        "a3": "A3",
        "a3-megagpu": "A3Plus",
        "a3-ultragpu": "A3Ultra",
        "a4": "A4",
        "a4x": "A4X",
    }
)
"""Series (or series and size class) → its name in descriptions."""

GPUS: Final = MappingProxyType(
    {
        "nvidia-tesla-k80": "Nvidia Tesla K80 GPU",
        "nvidia-tesla-p4": "Nvidia Tesla P4 GPU",
        "nvidia-tesla-p100": "Nvidia Tesla P100 GPU",
        "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
        "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
        "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
        "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
        "nvidia-l4": "Nvidia L4 GPU",
        "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
        "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega GPU",
        "nvidia-h200-141gb": "Nvidia H200 141GB GPU",
    }
)
"""Accelerator type → its name in descriptions."""

TABLE_REGION: Final = "us-central1"
TABLE_DATE: Final = "2025-10-01"
# USD per vCPU hour, GiB hour and GPU hour, on demand, us-central1 (Compute Engine price list)
TABLE: Final = MappingProxyType(
    {
        "N1 Predefined core": Decimal("0.031611"),
        "N1 Predefined ram": Decimal("0.004237"),
        "G2 core": Decimal("0.024988"),
        "G2 ram": Decimal("0.002927"),
        "A2 core": Decimal("0.031611"),
        "A2 ram": Decimal("0.004237"),
        "nvidia-tesla-t4": Decimal("0.35"),
        "nvidia-tesla-p4": Decimal("0.60"),
        "nvidia-tesla-p100": Decimal("1.46"),
        "nvidia-tesla-v100": Decimal("2.48"),
        "nvidia-l4": Decimal("0.560040"),
        "nvidia-tesla-a100": Decimal("2.933908"),
    }
)


class Prices:
    """Asks for the parts' prices once a day and keeps them. Safe to call from several threads."""

    def __init__(
        self,
        rest: Rest,
        *,
        region: str,
        scopes: Scopes,
        cache_dir: Path,
        now: Callable[[], float],
    ) -> None:
        self._rest, self._region, self._scopes, self._now = rest, region, scopes, now
        self._keeper = Keeper(
            cache_dir / f"gcp-prices-{region}.json", self._fetch, lasts_s=LASTS_S, now=now
        )

    def of(
        self, machines: Mapping[str, tuple[float, float, str, int]], market: Market
    ) -> dict[str, Price]:
        """By written machine type: what an hour costs, for those whose parts all have a price.

        ``machines`` gives vCPUs, memory in GiB, accelerator type and number of GPUs.
        """
        kept = self._keeper.get(FIRST_WAIT_S)
        source = "billing catalogue"
        if kept is not None and self._keeper.is_stale(kept):
            source += f", {STALE}"
        found = {}
        for written, needs in machines.items():
            price = None
            if kept is not None:
                usd = _sum(written, needs, kept.document.get(str(market), {}))
                if usd is not None:
                    price = Price(to_micros(usd), kept.at, source)
            if price is None and market is Market.ON_DEMAND and self._region == TABLE_REGION:
                usd = _sum(written, needs, TABLE)
                if usd is not None:
                    table = f"built-in table of {TABLE_DATE}"
                    price = Price(to_micros(usd), self._now(), table)
            if price is not None:
                found[written] = price
        return found

    def _fetch(self) -> dict[str, dict[str, str]]:
        """Market → part → USD per hour."""
        params: dict[str, Any] = {"pageSize": PAGE, "currencyCode": "USD"}
        parts: dict[str, dict[str, str]] = {str(market): {} for market in Market}
        while True:
            with translated(self._scopes):
                page = self._rest.read(BILLING, f"/v1/{COMPUTE_SERVICE}/skus", params)
            _collect(page.get("skus") or (), self._region, parts)
            token = page.get("nextPageToken")
            if not token:
                return parts
            params["pageToken"] = token


def _collect(
    skus: Iterable[Mapping[str, Any]], region: str, parts: dict[str, dict[str, str]]
) -> None:
    for sku in skus:
        if region not in (sku.get("serviceRegions") or ()):
            continue
        what = _PARTS.get(str(sku.get("description", "")).partition(" running in ")[0])
        usd = _hourly(sku)
        if what is not None and usd is not None and usd > 0:
            market, part = what
            # several SKUs may describe one part in one region: the dearer one is the careful guess
            before = parts[market].get(part)
            if before is None or Decimal(before) < usd:
                parts[market][part] = str(usd)


def _described() -> dict[str, tuple[str, str]]:
    """Description up to "running in" → market and part."""
    found = {}
    for name in SERIES.values():
        for what, part in (("Core", "core"), ("Ram", "ram")):
            found[f"{name} Instance {what}"] = (str(Market.ON_DEMAND), f"{name} {part}")
            spot = f"Spot Preemptible {name} Instance {what}"
            found[spot] = (str(Market.SPOT), f"{name} {part}")
    for accelerator, name in GPUS.items():
        found[name] = (str(Market.ON_DEMAND), accelerator)
        found[f"{name} attached to Spot Preemptible VMs"] = (str(Market.SPOT), accelerator)
    return found


_PARTS: Final = MappingProxyType(_described())


def _hourly(sku: Mapping[str, Any]) -> Decimal | None:
    for pricing in reversed(sku.get("pricingInfo") or ()):
        for rate in reversed(pricing.get("pricingExpression", {}).get("tieredRates") or ()):
            unit = rate.get("unitPrice") or {}
            try:
                return Decimal(str(unit.get("units") or 0)) + Decimal(
                    int(unit.get("nanos") or 0)
                ).scaleb(-9)
            except (InvalidOperation, ValueError):
                return None
    return None


def series_name(written: str) -> str | None:
    """A machine type's series as descriptions call it; None for one we have no prices of."""
    base = read_type(written).base
    series, _, rest = base.partition("-")
    return SERIES.get(f"{series}-{rest.partition('-')[0]}") or SERIES.get(series)


def _sum(
    written: str, needs: tuple[float, float, str, int], parts: Mapping[str, Any]
) -> Decimal | None:
    name = series_name(written)
    cpus, memory_gib, accelerator, gpus = needs
    core, ram = parts.get(f"{name} core"), parts.get(f"{name} ram")
    gpu = parts.get(accelerator) if gpus else 0
    if core is None or ram is None or gpu is None:
        return None
    return (
        Decimal(str(cpus)) * Decimal(core)
        + Decimal(str(memory_gib)) * Decimal(ram)
        + gpus * Decimal(gpu)
    )
