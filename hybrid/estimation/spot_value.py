"""What it will cost to finish a job by its deadline when spot comes and goes.

A stochastic dynamic programme, solved backwards from the deadline. In each tick the job waits, runs
on spot (while that can be had) or runs on-demand; a machine of either kind spends ``restart_s`` on
starting before it works; spot that can no longer be had is lost; a tick of a machine is paid whole.

The state is (ticks left, slack, machine held and what is left of its start, availability). *Slack*
is the time left less the work left, both in seconds: it falls by what a tick does not work and
never grows, so a grid over slack is small and a machine that works stays on its grid point. The
grid is fine where slack is scarce; between its points values are linear.

**The deadline holds for certain.** An action is allowed only when the slack it leaves is enough to
finish on-demand from then on, with a new start unless an on-demand machine is held. Nothing else in
here rests on how good the availability chain is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hybrid.estimation.availability import AvailabilityChain, Floats, Ints, is_up

MAX_TICKS = 2_000
"""The longest horizon that is solved, in ticks: longer ones want longer ticks."""

_ROUNDING_S = 1e-6
"""Sums of ticks may come out a hair short of the slack that is just enough."""

_FINE_PART = 0.2
_COARSE_GROWTH = 0.04
_KEPT_BYTES = 256 << 20
"""Solved tables remembered: 20 to 35 MB each at 400 ticks and a day of slack."""

Values = NDArray[np.float32]


class Machine(IntEnum):
    """What a job holds, or what can be chosen for its next tick."""

    NONE = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """What stays the same while one job runs: its whole ``work_s`` and the ``horizon_s`` from its
    first possible start to its deadline, how long a start takes, prices of its whole gang, and what
    an hour until its end costs whatever it holds.

    Raises ValueError for what is negative or not finite, and for more than ``MAX_TICKS`` ticks.
    """

    work_s: float
    horizon_s: float
    tick_s: float
    restart_s: float
    spot_micros_per_hour: int
    on_demand_micros_per_hour: int
    delay_micros_per_hour: int = 0

    def __post_init__(self) -> None:
        figures = (self.work_s, self.horizon_s, self.restart_s, self.tick_s)
        prices = (
            self.spot_micros_per_hour,
            self.on_demand_micros_per_hour,
            self.delay_micros_per_hour,
        )
        if not all(math.isfinite(f) and f >= 0 for f in (*figures, *prices)) or self.tick_s <= 0:
            raise ValueError(f"times and prices are finite and not negative: {figures}, {prices}")
        if self.ticks > MAX_TICKS:
            raise ValueError(f"{self.ticks} ticks to the deadline; give ticks of more seconds")

    @property
    def ticks(self) -> int:
        return int(self.horizon_s // self.tick_s)

    @property
    def most_slack_s(self) -> float:
        return max(self.horizon_s - self.work_s, 0.0)

    def tick_micros(self, machine: Machine) -> float:
        """What a tick costs: its machine, none while waiting, and the delay."""
        per_hour = (0, self.spot_micros_per_hour, self.on_demand_micros_per_hour)[machine]
        return (per_hour + self.delay_micros_per_hour) * self.tick_s / 3600.0


class SpotValues:
    """The solved programme: ``after`` says what each choice is expected to cost."""

    def __init__(self, terms: SpotTerms, chain: AvailabilityChain) -> None:
        if chain.tick_s != terms.tick_s:
            raise ValueError(f"a chain of {chain.tick_s} s ticks for ticks of {terms.tick_s} s")
        self._terms = terms
        self._to, self._chance = chain.moves()
        self._up = is_up()
        self._starting = _starting_after_ticks(terms)
        self._slack = _slack_grid(terms, self._starting)
        # per (machine, start left): its place in the table; waiting has one, the others several
        self._places = len(self._starting)
        self._losses: dict[float, tuple[Ints, Floats]] = {}
        self._values: Values = np.zeros(
            (terms.ticks + 1, 1 + 2 * self._places, len(self._up), len(self._slack)), np.float32
        )
        for left in range(1, terms.ticks + 1):
            self._step(left)

    @property
    def nbytes(self) -> int:
        """The size of the table."""
        return self._values.nbytes

    def after(
        self, left_s: Floats, work_left_s: Floats, held: Ints, starting_s: Floats, state: Ints
    ) -> Floats:
        """(B, 3) expected micro-dollars until the end for each ``Machine`` chosen for the next
        tick, of B jobs; infinite where the deadline would no longer be certain or spot cannot be
        had.

        ``left_s``: time to the deadline; ``held``: the Machine now held, ``starting_s`` what is
        left of its start; ``state``: of the chain. Costs are those of the whole ticks that are
        left; what is certain is worked out to the second, so it holds however much sooner than a
        tick the next choice is made. Raises ValueError for more time than the terms' horizon.
        """
        tick_s = self._terms.tick_s
        left: Ints = np.maximum(left_s // tick_s, 0.0).astype(np.int64)
        if len(left) and int(left.max()) > self._terms.ticks:
            raise ValueError("more time is left than the terms' horizon")
        slack_s = left_s - work_left_s + _ROUNDING_S
        counted_s = left * tick_s - work_left_s
        costs = np.empty((len(left), 3))
        for machine in Machine:
            start = np.where(held == machine, starting_s, self._terms.restart_s)
            worked, still = self._tick_of(machine, start)
            lost = tick_s - worked
            allowed = slack_s - lost >= self._needed(machine, still)
            if machine is Machine.SPOT:
                allowed &= self._up[state]
            later = self._expected(left, machine, still, counted_s - lost, state)
            later[work_left_s <= worked] = 0.0
            costs[:, machine] = np.where(
                allowed, self._terms.tick_micros(machine) + later, math.inf
            )
        return costs

    def _expected(
        self, left: Ints, machine: Machine, still: Floats, slack_s: Floats, state: Ints
    ) -> Floats:
        """(B,) the value one tick later, over where availability may go."""
        below, part = _between(self._slack, slack_s)
        place, next_left = self._place(machine, still), np.maximum(left - 1, 0)
        expected: Floats = np.zeros(len(left))
        for way in range(self._to.shape[1]):
            then = self._to[state, way]
            low = self._values[next_left, place, then, below]
            high = self._values[next_left, place, then, below + 1]
            expected += self._chance[state, way] * (low + (high - low) * part)
        return expected

    def _tick_of(self, machine: Machine, start: Floats) -> tuple[Floats, Floats]:
        """How long the next tick works, and what is then left of the start."""
        if machine is Machine.NONE:
            return np.zeros_like(start), np.zeros_like(start)
        worked = np.maximum(self._terms.tick_s - start, 0.0)
        return worked, np.maximum(start - self._terms.tick_s, 0.0)

    def _needed(self, machine: Machine, still: Floats) -> Floats:
        """Slack that must be left after a tick, so that on-demand can still finish in time."""
        return still if machine is Machine.ON_DEMAND else np.full_like(still, self._terms.restart_s)

    def _place(self, machine: Machine, still: Floats) -> Ints:
        """Where in the table; a start that ends between two ticks counts as the longer one."""
        if machine is Machine.NONE:
            return np.zeros(len(still), dtype=np.int64)
        which = np.searchsorted(self._starting, still, side="left")
        place: Ints = 1 + (machine - 1) * self._places + np.minimum(which, self._places - 1)
        return place

    def _step(self, left: int) -> None:
        """Values with ``left`` ticks to go, from those with one less. Vectors over availability and
        slack."""
        before = self._values[left - 1]
        chance = self._chance.astype(np.float32)
        expected: Values = before[:, self._to[:, 0]] * chance[:, 0, None]
        for way in range(1, self._to.shape[1]):
            expected += before[:, self._to[:, way]] * chance[:, way, None]
        restart = self._terms.restart_s
        wait = self._act(expected, left, Machine.NONE, 0.0)
        on_demand = self._act(expected, left, Machine.ON_DEMAND, restart)
        spot = self._act(expected, left, Machine.SPOT, restart)
        spot[~self._up] = math.inf
        now = self._values[left]
        now[0] = np.minimum(np.minimum(wait, on_demand), spot)
        for i, start in enumerate(self._starting.tolist()):
            going = self._act(expected, left, Machine.SPOT, start)
            going[~self._up] = math.inf
            now[1 + i] = np.minimum(np.minimum(wait, on_demand), np.minimum(going, spot))
            going = self._act(expected, left, Machine.ON_DEMAND, start)
            now[1 + self._places + i] = np.minimum(np.minimum(wait, spot), going)
        # no certain way from here: never reached, but a neighbour of points that are
        for place, needed in enumerate((restart, *[restart] * self._places, *self._starting)):
            first = int(np.searchsorted(self._slack, needed))
            now[place, :, :first] = now[place, :, first, None]
        now[:, :, self._slack >= left * self._terms.tick_s] = 0.0

    def _act(self, expected: Values, left: int, machine: Machine, start: float) -> Values:
        """(states, slack) cost of a choice whose machine has ``start`` of its start left."""
        (worked,), (still,) = self._tick_of(machine, np.array([start]))
        lost = self._terms.tick_s - float(worked)
        if lost not in self._losses:
            self._losses[lost] = _between(self._slack, self._slack - lost)
        below, part = self._losses[lost]
        source = expected[int(self._place(machine, np.array([still]))[0])]
        low = source[:, below]
        cost: Values = low + (source[:, below + 1] - low) * part.astype(np.float32)
        needed = float(self._needed(machine, np.array([still]))[0])
        cost[:, left * self._terms.tick_s - self._slack <= worked] = 0.0
        cost[:, self._slack - lost < needed] = math.inf
        return cost + np.float32(self._terms.tick_micros(machine))


class _Solved:
    """Tables by what they were solved for, the ones used last, up to a number of bytes: a plan of
    many small ones must not solve each again because a few large ones would fill the memory."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._tables: OrderedDict[tuple[SpotTerms, AvailabilityChain], SpotValues] = OrderedDict()
        self._lock = Lock()

    def of(self, terms: SpotTerms, chain: AvailabilityChain) -> SpotValues:
        key = terms, chain
        with self._lock:
            found = self._tables.get(key)
            if found is not None:
                self._tables.move_to_end(key)
                return found
        made = SpotValues(terms, chain)
        with self._lock:
            if key not in self._tables:
                self._tables[key] = made
                self._bytes += made.nbytes
            while self._bytes > self._most and len(self._tables) > 1:
                _, gone = self._tables.popitem(last=False)
                self._bytes -= gone.nbytes
        return made


_solved = _Solved(_KEPT_BYTES)


def solve(terms: SpotTerms, chain: AvailabilityChain) -> SpotValues:
    """The programme of these terms and this chain, about half a second for 400 ticks; remembered
    for as long as both stay the same."""
    return _solved.of(terms, chain)


def _starting_after_ticks(terms: SpotTerms) -> Floats:
    """What can be left of a start after whole ticks, rising from 0."""
    whole = int(terms.restart_s // terms.tick_s)
    left = {terms.restart_s - n * terms.tick_s for n in range(1, whole + 1)}
    return np.array(sorted({0.0, *left}))


def _slack_grid(terms: SpotTerms, starting: Floats) -> Floats:
    """Grid of slack in seconds: a fifth of a tick apart at first, then 4 % apart; with the least
    slack of every machine on it, so that values are never drawn from beyond a limit."""
    top = max(terms.most_slack_s, terms.restart_s) + terms.tick_s
    points, at = {*starting.tolist(), terms.restart_s}, 0.0
    while at < top:
        points.add(at)
        at += max(_FINE_PART * terms.tick_s, _COARSE_GROWTH * at)
    return np.array(sorted({*points, top}))


def _between(grid: Floats, at: Floats) -> tuple[Ints, Floats]:
    """The grid point below each, and which part of the way to the next it lies; the grid's ends
    stand for what is beyond them."""
    inside = np.clip(at, grid[0], grid[-1])
    below: Ints = np.clip(np.searchsorted(grid, inside, side="right") - 1, 0, len(grid) - 2)
    part: Floats = (inside - grid[below]) / (grid[below + 1] - grid[below])
    return below, part
