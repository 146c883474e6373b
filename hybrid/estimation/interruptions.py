"""What spot interruptions do to a run: how much longer it takes, and when it gets nowhere.

First-order model of a run that saves every τ and is interrupted λ times a second (Young, "A first
order approximation to the optimum checkpoint interval", CACM 1974; Daly, "A higher order estimate
of the optimum checkpoint interval for restart dumps", FGCS 2006): each interruption costs half an
interval on average and the restart.
"""

from __future__ import annotations

import math

from hybrid.domain.hot_values import hot_value
from hybrid.domain.job_spec import Checkpointing

LEAST_HEADWAY = 0.25
"""The least part of the time that must go into new work. Below it the first-order model is near its
pole and says nothing reliable, and the job would hardly get anywhere."""

MOST_EXPONENT = 3.0
"""The largest λ·run for which a job without checkpoints is let onto spot: beyond it fewer than one
try in twenty gets through."""


LEAST_INTERVAL_S = 60.0
MOST_INTERVAL_S = 3600.0
"""Bounds of an interval that is worked out. Machines also fail that nobody takes: an hour's work is
the most that is risked for a save."""


@hot_value(frozen=True, slots=True)
class Stretched:
    """A run with its interruptions. ``mean_s`` is expected, ``sd_s`` the spread they add;
    ``interval_s`` the checkpoint interval assumed (0 without checkpoints)."""

    mean_s: float
    sd_s: float
    interval_s: float


def best_interval(overhead_s: float, rate_per_s: float) -> float:
    """Young's interval √(2·overhead/λ) in seconds; infinite when nothing interrupts."""
    if rate_per_s <= 0:
        return math.inf
    return math.sqrt(2.0 * max(overhead_s, 0.0) / rate_per_s)


def interval_s(saving: Checkpointing, *, overhead_s: float, rate_per_s: float) -> float:
    """How often a job saves: as it says, or, where that is ``auto``, Young's interval between a
    minute (or a save, if that takes longer) and an hour."""
    least = max(LEAST_INTERVAL_S, overhead_s)
    best = min(max(best_interval(overhead_s, rate_per_s), least), max(MOST_INTERVAL_S, least))
    return saving.interval_or(best)


def with_checkpoints(
    run_s: float, *, rate_per_s: float, overhead_s: float, interval_s: float, restart_s: float
) -> Stretched | None:
    """``run_s`` of work that saves every ``interval_s``, each save taking ``overhead_s``.

    stretch = (1 + overhead/τ) / (1 − λ(τ/2 + restart)). None near the pole.
    """
    lost_s = interval_s / 2.0 + restart_s
    headway = 1.0 - rate_per_s * lost_s
    if headway < LEAST_HEADWAY:
        return None
    saving = run_s / interval_s * overhead_s if run_s > interval_s else 0.0
    mean_s = (run_s + saving) / headway
    # a Poisson number of losses, each uniform within the interval plus the restart
    square = interval_s * interval_s / 3.0 + interval_s * restart_s + restart_s * restart_s
    return Stretched(mean_s, math.sqrt(rate_per_s * mean_s * square), interval_s)


def without_checkpoints(run_s: float, *, rate_per_s: float, restart_s: float) -> Stretched | None:
    """``run_s`` of work that begins anew after each interruption: (e^{λ·run} − 1)(1/λ + restart).

    None when λ·run is so large that hardly any try gets through.
    """
    exponent = rate_per_s * run_s
    if exponent > MOST_EXPONENT:
        return None
    if exponent < 1e-9:
        return Stretched(run_s, 0.0, 0.0)
    mean_s = math.expm1(exponent) * (1.0 / rate_per_s + restart_s)
    # variance of the time to the first gap of run_s in a Poisson stream (restart neglected)
    grown = math.exp(exponent)
    variance = (grown * grown - 2.0 * exponent * grown - 1.0) / (rate_per_s * rate_per_s)
    return Stretched(mean_s, math.sqrt(max(variance, 0.0)), 0.0)


def rate_per_hour(stated: float, lifetime_h: float, interruptions: int) -> float:
    """Interruptions of one machine per hour: what the pool states, corrected by what was seen.

    The stated rate counts as one interruption seen in its mean lifetime (a Gamma prior of weight
    one); nothing stated and nothing seen is 0.
    """
    if stated <= 0:
        return interruptions / lifetime_h if lifetime_h > 0 and interruptions else 0.0
    return (1.0 + interruptions) / (1.0 / stated + lifetime_h)


HINTED_PER_HOUR = 1.0
"""The least rate of a machine that its provider recommends to leave. EC2 calls it "at elevated
risk" and publishes no number; once an hour weighs it as one that is more likely taken within the
hour than not, and is less than a word of its end."""


def hinted_rate(rate_per_hour: float) -> float:
    """Interruptions per hour of a machine that its provider recommends to leave ("EC2 instance
    rebalance recommendations", Amazon EC2 user guide)."""
    return max(rate_per_hour, HINTED_PER_HOUR)


MOST_PRESSURE = 4.0
_NEAR = 0.8
"""From this share of its ceiling on a spot price counts as near it."""
_STEP = 0.25


def price_pressure(now: int, usual: int, ceiling: int) -> float:
    """What multiplies the rate of interruptions for what a spot price does, from 1 to 4.

    ``rise² · (1 + nearness)`` with ``rise = now / usual`` (at least 1), ``usual`` the mean of the
    last day weighted by time, and ``nearness`` from 0 at four fifths of the ceiling to 1 at it.

    EC2 moves spot prices "gradually based on long-term trends in supply and demand" and takes
    machines when it needs the capacity (EC2 user guide, "Spot Instances"): a price that rises or
    nears the list price tells of scarcity. No relation to interruptions is published. The square is
    our choice, bounded, and only ever raises a rate; in steps of a quarter, so that offers whose
    prices differ by a hair stay alike.
    """
    if usual <= 0 or ceiling <= 0:
        return 1.0
    rise = max(1.0, now / usual)
    nearness = min(1.0, max(0.0, (now / ceiling - _NEAR) / (1.0 - _NEAR)))
    pressure = min(MOST_PRESSURE, rise * rise * (1.0 + nearness))
    return 1.0 + math.floor((pressure - 1.0) / _STEP + 1e-9) * _STEP
