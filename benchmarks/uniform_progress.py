"""Uniform Progress, the policy whose published cost is the yardstick of ``benchmarks.spot``.

Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI'24: the job is to
progress evenly towards its deadline. Spot is used whenever it is there; behind the even line, and
without spot, on-demand; on-demand is then kept until the job is two restarts ahead of the line;
close to the deadline on-demand is kept for good, except for a spot machine that works.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybrid.estimation.spot_value import Machine, SpotTerms


def uniform_progress(window: Sequence[bool], terms: SpotTerms) -> float:
    """Micro-dollars of one job on one window."""
    held, starting_s, done_s, micros = Machine.NONE, 0.0, 0.0, 0.0
    for tick in range(terms.ticks):
        if done_s >= terms.work_s:
            break
        if held is Machine.SPOT and not window[tick]:
            held = Machine.NONE
        chosen = _choose(terms, tick, done_s, held, starting_s, spot=window[tick])
        if chosen is not Machine.NONE:
            if chosen is not held:
                starting_s = terms.restart_s
            done_s += max(terms.tick_s - starting_s, 0.0)
            starting_s = max(starting_s - terms.tick_s, 0.0)
            micros += terms.tick_micros(chosen)
        held = chosen
    if done_s < terms.work_s:
        raise RuntimeError("Uniform Progress missed a deadline: not the policy that was published")
    return micros


def _choose(
    terms: SpotTerms, tick: int, done_s: float, held: Machine, starting_s: float, *, spot: bool
) -> Machine:
    left_s = (terms.ticks - tick) * terms.tick_s
    even = terms.work_s / (terms.ticks * terms.tick_s)
    restart_s, elapsed_s = terms.restart_s, tick * terms.tick_s
    if _whole_ticks(terms, terms.work_s - done_s + restart_s) >= left_s:
        works = held is Machine.SPOT and starting_s == 0.0
        return Machine.SPOT if works else Machine.ON_DEMAND
    late = _whole_ticks(terms, terms.work_s - done_s + 2 * restart_s) >= left_s
    if late and held is not Machine.SPOT:
        return Machine.ON_DEMAND
    if held is Machine.ON_DEMAND and (elapsed_s + 2 * restart_s) * even >= done_s:
        return Machine.ON_DEMAND
    if spot:
        return Machine.SPOT
    return Machine.ON_DEMAND if done_s < elapsed_s * even else Machine.NONE


def _whole_ticks(terms: SpotTerms, seconds: float) -> float:
    return math.ceil(seconds / terms.tick_s) * terms.tick_s
