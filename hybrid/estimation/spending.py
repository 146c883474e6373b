"""When money runs out at the rate at which it is spent.

Spending is taken as a Brownian motion with drift; the time at which it first reaches what is left
has the inverse Gaussian distribution (Folks and Chhikara, "The Inverse Gaussian Distribution and
Its Statistical Application", J. R. Statist. Soc. B, 1978, section 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_H = 24.0 * 3660
"""What lies further ahead is as good as never."""

_STEADY = 1e-6
"""Spending that varies by no more than this part of its mean is as steady as a clock."""


@dataclass(frozen=True, slots=True)
class SpendingRate:
    """Micro-dollars an hour: the mean, and the standard deviation of what one hour adds."""

    mean: float
    sd: float


def rate(buckets: Sequence[float], *, bucket_h: float, half_life_h: float) -> SpendingRate:
    """The rate that a series of equally long buckets of spending shows, oldest first; a bucket
    counts half as much as one ``half_life_h`` later."""
    if not buckets:
        return SpendingRate(0.0, 0.0)
    newest = len(buckets) - 1
    weights = [0.5 ** ((newest - i) * bucket_h / half_life_h) for i in range(len(buckets))]
    total = sum(weights)
    mean = sum(w * b for w, b in zip(weights, buckets, strict=True)) / total
    spread = sum(w * (b - mean) ** 2 for w, b in zip(weights, buckets, strict=True)) / total
    return SpendingRate(mean / bucket_h, math.sqrt(spread / bucket_h))


def runs_out_in_h(left: float, spending: SpendingRate, probability: float) -> float | None:
    """Hours after which ``left`` is spent with this probability; 0 when nothing is left, None when
    that is more than ten years ahead or nothing is spent."""
    if left <= 0:
        return 0.0
    if spending.mean <= 0:
        return None
    if spending.sd <= _STEADY * spending.mean:
        hours = left / spending.mean
        return hours if hours <= LONGEST_H else None
    low, high = 0.0, LONGEST_H
    if _spent_by(high, left, spending) < probability:
        return None
    for _ in range(80):
        middle = (low + high) / 2
        if _spent_by(middle, left, spending) < probability:
            low = middle
        else:
            high = middle
    return high


def _spent_by(hours: float, left: float, spending: SpendingRate) -> float:
    """The distribution function of the first passage time."""
    if hours <= 0:
        return 0.0
    spread = spending.sd * math.sqrt(hours)
    drift = spending.mean * hours
    direct = _normal((drift - left) / spread)
    exponent = 2.0 * spending.mean * left / spending.sd**2
    return min(1.0, direct + math.exp(min(0.0, exponent + _log_normal(-(drift + left) / spread))))


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _log_normal(z: float) -> float:
    """The logarithm of the normal distribution function, also far out where it underflows."""
    if z > -30.0:
        return math.log(_normal(z))
    return -z * z / 2.0 - math.log(-z * math.sqrt(2.0 * math.pi))
