"""The cloud's own bill: what each instance cost, by the cloud's own timestamps.

EC2 bills Linux instances per second with a minimum of 60 s for every start (EC2 pricing page);
a spot machine pays the spot price in force, second by second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from providers.sandbox.prices import PriceStep

MINIMUM_BILLED_S = 60
SECONDS_PER_HOUR = 3600

StepsBetween = Callable[[float, float], Sequence[PriceStep]]


@dataclass(frozen=True, slots=True)
class BilledStep:
    """``seconds`` at one price."""

    start_at: float
    seconds: float
    micros_per_hour: int


@dataclass(frozen=True, slots=True)
class BilledTime:
    """What one instance owes. ``seconds`` is the time it ran, ``billed_s`` what is charged."""

    seconds: float
    billed_s: int
    steps: tuple[BilledStep, ...]
    micros: int


def bill(intervals: Sequence[tuple[float, float]], steps_between: StepsBetween) -> BilledTime:
    """Charge every interval ``(started_at, ended_at)`` with the prices in force during it."""
    ran_s = 0.0
    billed_s = 0
    billed: list[BilledStep] = []
    for started_at, ended_at in intervals:
        whole_s = max(math.ceil(max(ended_at - started_at, 0.0)), MINIMUM_BILLED_S)
        ran_s += max(ended_at - started_at, 0.0)
        billed_s += whole_s
        billed.extend(_split(started_at, started_at + whole_s, steps_between))
    micro_seconds = sum(step.seconds * step.micros_per_hour for step in billed)
    return BilledTime(ran_s, billed_s, tuple(billed), round(micro_seconds / SECONDS_PER_HOUR))


def _split(start_at: float, end_at: float, steps_between: StepsBetween) -> list[BilledStep]:
    steps = steps_between(start_at, end_at)
    edges = [start_at, *(step.start_at for step in steps[1:]), end_at]
    return [
        BilledStep(begin, end - begin, step.micros_per_hour)
        for begin, end, step in zip(edges, edges[1:], steps, strict=False)
        if end > begin
    ]
