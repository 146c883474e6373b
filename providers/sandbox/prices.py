"""Prices over time: list prices that stand, spot prices that move in steps.

Prices are integer micro-dollars per hour (``_micros``); instants are seconds since the Unix epoch
by the cloud's own clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from providers.sandbox.config import Market, SandboxConfig, SpotPrice

MICROS_PER_USD = 1_000_000


def to_micros(usd: Decimal) -> int:
    """Dollars as integer micro-dollars, half up."""
    return int((usd * MICROS_PER_USD).to_integral_value(ROUND_HALF_UP))


def to_usd(micros: int) -> Decimal:
    """Integer micro-dollars as dollars."""
    return Decimal(micros) / MICROS_PER_USD


@dataclass(frozen=True, slots=True, order=True)
class PriceStep:
    """From ``start_at`` on, an hour costs ``micros_per_hour``."""

    start_at: float
    micros_per_hour: int


class PriceBook:
    """What every machine type costs, per zone and market, at any instant."""

    def __init__(self, config: SandboxConfig, started_at: float) -> None:
        self._config = config
        self._started_at = started_at
        self._series: dict[tuple[str, str], list[PriceStep]] = defaultdict(list)
        self.script(config.spot_prices)

    def script(self, prices: Iterable[SpotPrice]) -> None:
        """Add spot price steps; a step at the same instant replaces the earlier one."""
        for price in prices:
            key = (price.zone, price.machine_type)
            at = self._started_at + price.at_s
            kept = [step for step in self._series[key] if step.start_at != at]
            kept.append(PriceStep(at, to_micros(price.usd_per_hour)))
            self._series[key] = sorted(kept)

    def on_demand_micros(self, machine_type: str) -> int:
        """List price per hour. Raises ``KeyError`` for a type that is not sold."""
        usd = self._config.price_of(machine_type)
        if usd is None or machine_type not in self._config.machine_types:
            raise KeyError(machine_type)
        return to_micros(usd)

    def spot_micros(self, zone: str, machine_type: str, at: float) -> int:
        """The spot price per hour in force at an instant."""
        return self.steps(zone, machine_type, Market.SPOT, at, at)[0].micros_per_hour

    def steps(
        self, zone: str, machine_type: str, market: Market, start_at: float, end_at: float
    ) -> list[PriceStep]:
        """The price in force at ``start_at`` and every change up to ``end_at``, in order.

        The first step's ``start_at`` is when that price came into force, which may be earlier.
        """
        if market is Market.ON_DEMAND:
            return [PriceStep(self._started_at, self.on_demand_micros(machine_type))]
        series = self._series.get((zone, machine_type), [])
        usual = to_micros(
            Decimal(self.on_demand_micros(machine_type)) * self._config.spot_share / MICROS_PER_USD
        )
        # before the first scripted step the usual share of the list price holds
        known = [PriceStep(min(self._started_at, start_at), usual), *series]
        if series and series[0].start_at <= known[0].start_at:
            known = series
        first = max(bisect_right([step.start_at for step in known], start_at) - 1, 0)
        return [step for step in known[first:] if step.start_at <= end_at or step is known[first]]
