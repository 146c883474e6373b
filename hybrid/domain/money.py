"""Money: ``Decimal`` dollars at the edges, integer micro-dollars inside.

Integers add up exactly and compare cheaply; a micro-dollar is fine enough for one second of the
cheapest machine (about 40 micro-dollars) to be told from two.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from functools import lru_cache

MICROS_PER_USD = 1_000_000
_CENT_MICROS = 10_000


@lru_cache(maxsize=4096)  # hot: the same few limits and rates over and over
def to_micros(usd: Decimal) -> int:
    """Dollars as micro-dollars, rounded half to even."""
    return int((usd * MICROS_PER_USD).to_integral_value(ROUND_HALF_EVEN))


def to_usd(micros: int) -> Decimal:
    """Micro-dollars as dollars, exactly (six places)."""
    return Decimal(micros).scaleb(-6)


def cents(micros: int) -> Decimal:
    """Micro-dollars as dollars to the cent, for people: rounded half to even."""
    return Decimal(whole_cents(micros)).scaleb(-2)


def whole_cents(micros: int) -> int:
    """Micro-dollars as cents, rounded half to even."""
    return round(micros, -4) // _CENT_MICROS


def cents_that_add_up(micros: Sequence[int]) -> tuple[Decimal, ...]:
    """Amounts to the cent, for people, that add up to ``cents(sum(micros))``: each is rounded down
    or up, those with the largest rest up (Hamilton's method); of equal rests the first."""
    floors = [amount // _CENT_MICROS for amount in micros]
    missing = whole_cents(sum(micros)) - sum(floors)
    by_rest = sorted(range(len(micros)), key=lambda i: (-(micros[i] % _CENT_MICROS), i))
    for i in by_rest[:missing]:
        floors[i] += 1
    return tuple(Decimal(each).scaleb(-2) for each in floors)


def cost_micros(price_micros_per_hour: int, seconds: float) -> int:
    """What ``seconds`` at a price per hour cost, rounded up: an estimate of money never says less
    than will be paid."""
    exact = Decimal(price_micros_per_hour) * Decimal(repr(seconds)) / 3600
    return int(exact.to_integral_value(ROUND_CEILING))
