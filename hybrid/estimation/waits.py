"""Durations that are not certain: one distribution behind the mean and the quantiles shown.

A duration of mean m and standard deviation s is taken as lognormal: never negative, skewed to the
late side as waits and run times are (Feitelson, "Workload Modeling", 2015, ch. 3).
"""

from __future__ import annotations

import math
from statistics import NormalDist

from hybrid.domain.hot_values import hot_value

_Z90 = 1.2815515655446004
_DEFINITE_S = 1e-9
_LEAST_MASS = 1e-6


@hot_value(frozen=True, slots=True)
class Duration:
    """A duration in seconds with its standard deviation."""

    mean_s: float
    sd_s: float = 0.0

    @property
    def p50_s(self) -> float:
        """The median."""
        return self._at(0.0)

    @property
    def p90_s(self) -> float:
        """Exceeded one time in ten."""
        return self._at(_Z90)

    def quantile_s(self, part: float) -> float:
        """Not exceeded with this probability, strictly between 0 and 1."""
        return self._at(NormalDist().inv_cdf(part))

    @property
    def p50_p90_s(self) -> tuple[float, float]:
        """Both at once."""
        return p50_p90(self.mean_s, self.sd_s)

    def probability_beyond(self, limit_s: float) -> float:
        """The chance that it takes longer than ``limit_s``."""
        if self.sd_s <= _DEFINITE_S or self.mean_s <= _DEFINITE_S:
            return 1.0 if self.mean_s > limit_s else 0.0
        if limit_s <= 0:
            return 1.0
        mu, sigma = self._log()
        return 0.5 * math.erfc((math.log(limit_s) - mu) / (sigma * math.sqrt(2.0)))

    def then(self, after: Duration) -> Duration:
        """This one and then another, independent of it."""
        return Duration(self.mean_s + after.mean_s, math.hypot(self.sd_s, after.sd_s))

    def left_after(self, age_s: float, limit_s: float = math.inf) -> Duration:
        """What is left of it once it has lasted ``age_s``, if it can last no longer than
        ``limit_s``: the lognormal between the two, its mean and its standard deviation.

        Where the distribution says nothing any more, half of what the limit leaves.
        """
        if self.sd_s <= _DEFINITE_S or self.mean_s <= _DEFINITE_S:
            return Duration(max(min(self.mean_s, limit_s) - age_s, 0.0))
        mu, sigma = self._log()
        low = (math.log(age_s) - mu) / sigma if age_s > 0 else -math.inf
        high = (math.log(limit_s) - mu) / sigma if limit_s < math.inf else math.inf
        mass = _below(high) - _below(low)
        if mass < _LEAST_MASS:
            rest = limit_s - age_s if limit_s < math.inf else age_s
            return Duration(rest / 2.0, rest / math.sqrt(12.0))
        mean = self.mean_s * (_below(high - sigma) - _below(low - sigma)) / mass
        square = self.mean_s**2 + self.sd_s**2
        square *= (_below(high - 2.0 * sigma) - _below(low - 2.0 * sigma)) / mass
        return Duration(max(mean - age_s, 0.0), math.sqrt(max(square - mean * mean, 0.0)))

    def _at(self, z: float) -> float:
        if self.sd_s <= _DEFINITE_S or self.mean_s <= _DEFINITE_S:
            return self.mean_s
        mu, sigma = self._log()
        return math.exp(mu + z * sigma)

    def _log(self) -> tuple[float, float]:
        return _lognormal(self.mean_s, self.sd_s)


def p50_p90(mean_s: float, sd_s: float) -> tuple[float, float]:
    """The median and the 90 % quantile of a duration. Hot: once for every job that waits."""
    if sd_s <= _DEFINITE_S or mean_s <= _DEFINITE_S:
        return mean_s, mean_s
    mu, sigma = _lognormal(mean_s, sd_s)
    return math.exp(mu), math.exp(mu + _Z90 * sigma)


def _lognormal(mean_s: float, sd_s: float) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm."""
    square = math.log1p((sd_s / mean_s) ** 2)
    return math.log(mean_s) - square / 2.0, math.sqrt(square)


def _below(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))
