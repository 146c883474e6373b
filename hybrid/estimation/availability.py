"""When spot machines of an offer can be had: a chain learned from the spells seen so far.

Availability alternates between *up* spells (a machine can be had, one that runs goes on) and *down*
spells. Spells are not memoryless: one that has just begun ends much sooner than one that has lasted
for hours, and spells after a short one are short themselves. So the chance that a spell ends within
the next tick (its *hazard*) is learned by three facts: up or down, the age of the spell, and
whether the spell before it was short. They are the chain's state; all of them can be observed.

Offers differ. Chains are learned from several offers (never from the future of the one to be
predicted), and a ``Belief`` weighs them by how well each explains the offer's own past.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

AGE_STARTS = (1, 2, 3, 4, 6, 9, 14, 24, 48)
"""Ages in ticks at which a spell's hazard may change; a tick is 600 s in the traces behind them."""

SHORT_SPELL_TICKS = 3
"""A spell of fewer ticks is short."""

EVIDENCE_WEIGHT = 0.3
"""How much of a log-likelihood counts. Below one, because ticks minutes apart are far from
independent: with full weight an hour of flapping rules out the chain that fits the next day."""

PRIOR_TICKS = 20.0
"""Ticks of experience that the hazard of a wider group of states counts for in a state."""

AGES = len(AGE_STARTS)
STATES = 4 * AGES
"""States are ordered by (up, previous spell long, age)."""

_STARTS: Ints = np.array(AGE_STARTS, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an offer's availability now. ``age_s``: for how long it has been as it is,
    or has been watched; ``previous_s``: how long the spell before lasted, None when unknown."""

    up: bool
    age_s: float
    previous_s: float | None = None


@dataclass(frozen=True, slots=True)
class SpellCounts:
    """Experience per state: ``ticks`` spent in it that were followed by another, and in how many of
    them the spell ``ended``. Counts of several offers add up."""

    ticks: tuple[int, ...]
    ended: tuple[int, ...]

    def __add__(self, other: SpellCounts) -> SpellCounts:
        return SpellCounts(
            tuple(a + b for a, b in zip(self.ticks, other.ticks, strict=True)),
            tuple(a + b for a, b in zip(self.ended, other.ended, strict=True)),
        )


NO_COUNTS = SpellCounts((0,) * STATES, (0,) * STATES)


@dataclass(frozen=True, slots=True)
class AvailabilityChain:
    """The chance, per state, that the spell ends within the next tick of ``tick_s`` seconds.

    Compares by value. Raises ValueError for a tick that is not positive, another number of states,
    or chances that are not strictly between 0 and 1.
    """

    tick_s: float
    hazards: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tick_s) and self.tick_s > 0):
            raise ValueError(f"a tick lasts longer than nothing, unlike {self.tick_s} s")
        if len(self.hazards) != STATES or not all(0.0 < h < 1.0 for h in self.hazards):
            raise ValueError(f"a chain has {STATES} hazards strictly between 0 and 1")

    def state(self, seen: Seen) -> int:
        """The state that ``seen`` is in: ages are counted in begun ticks."""
        previous = math.inf if seen.previous_s is None else seen.previous_s / self.tick_s
        age = int(max(seen.age_s, 0.0) // self.tick_s) + 1
        return int(_state(np.array(seen.up), np.array(float(age)), np.array(previous)))

    def moves(self) -> tuple[Ints, Floats]:
        """(STATES, 3) where each state can go in one tick, and the chance of each: it stays, its
        spell reaches the next age, or its spell ends. An age group of n ticks is left with 1/n."""
        to: Ints = np.empty((STATES, 3), dtype=np.int64)
        chance: Floats = np.empty((STATES, 3))
        for state, hazard in enumerate(self.hazards):
            group, age = divmod(state, AGES)
            last = age + 1 == AGES
            older = 0.0 if last else 1.0 / (AGE_STARTS[age + 1] - AGE_STARTS[age])
            long = AGE_STARTS[age] >= SHORT_SPELL_TICKS
            up = group >= 2
            to[state] = (
                state,
                state if last else state + 1,
                (2 * (not up) + long) * AGES,
            )
            chance[state] = (1.0 - hazard) * (1.0 - older), (1.0 - hazard) * older, hazard
        return to, chance


def is_up() -> Bools:
    """(STATES,) whether spot can be had in each state."""
    up: Bools = np.arange(STATES) >= STATES // 2
    return up


def states(history: Bools) -> Ints:
    """(B, T) the state at each tick of B histories of T ticks each (True: up). What was before the
    first tick is not known: its spell is as old as it has been watched, the one before long."""
    history = np.asarray(history, dtype=bool)
    found: Ints = np.empty(history.shape, dtype=np.int64)
    rows, ticks = history.shape
    age, previous = np.ones(rows), np.full(rows, math.inf)
    for tick in range(ticks):  # a step depends on the one before; vectors over histories
        if tick:
            turned = history[:, tick] != history[:, tick - 1]
            previous = np.where(turned, age, previous)
            age = np.where(turned, 1, age + 1)
        found[:, tick] = _state(history[:, tick], age, previous)
    return found


def _state(up: Bools, age: Floats, previous: Floats) -> Ints:
    long = previous >= SHORT_SPELL_TICKS
    group = np.searchsorted(_STARTS, age, side="right") - 1
    state: Ints = (2 * up.astype(np.int64) + long) * AGES + group
    return state


def count(history: Bools) -> SpellCounts:
    """The experience in B histories of T ticks each."""
    history = np.asarray(history, dtype=bool)
    at = states(history)[:, :-1].ravel()
    turned = (history[:, 1:] != history[:, :-1]).ravel()
    return SpellCounts(
        tuple(np.bincount(at, minlength=STATES).tolist()),
        tuple(np.bincount(at[turned], minlength=STATES).tolist()),
    )


def learn(counts: SpellCounts, tick_s: float) -> AvailabilityChain:
    """The chain of some experience. A state seen rarely leans on all states of its age, and they
    on all of its side (up or down); with no experience at all a spell ends with chance 1/2."""
    ticks = np.array(counts.ticks, dtype=np.float64).reshape(2, 2, AGES)
    ended = np.array(counts.ended, dtype=np.float64).reshape(2, 2, AGES)
    side = (ended.sum(axis=(1, 2)) + 1.0) / (ticks.sum(axis=(1, 2)) + 2.0)
    by_age = (ended.sum(axis=1) + PRIOR_TICKS * side[:, None]) / (ticks.sum(axis=1) + PRIOR_TICKS)
    hazards = (ended + PRIOR_TICKS * by_age[:, None]) / (ticks + PRIOR_TICKS)
    return AvailabilityChain(tick_s, tuple(hazards.ravel().tolist()))


def memoryless(
    *, losses_per_hour: float, returns_per_hour: float, tick_s: float
) -> AvailabilityChain:
    """The chain of an offer of which only rates are known: how often an hour a running machine is
    taken, and how often an hour without spot ends. Raises ValueError unless both are positive."""
    rates = (returns_per_hour, losses_per_hour)
    if not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError(f"rates per hour are finite and positive, unlike {rates}")
    down, up = (min(-math.expm1(-rate * tick_s / 3600.0), 1.0 - 1e-9) for rate in rates)
    return AvailabilityChain(tick_s, (down,) * (STATES // 2) + (up,) * (STATES // 2))


@dataclass(frozen=True, slots=True)
class Belief:
    """Chains with the probability of each. Raises ValueError for no chain, chains of different
    ticks, or weights that are not a distribution."""

    chains: tuple[AvailabilityChain, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.chains) != len(self.weights) or not self.chains:
            raise ValueError(f"{len(self.chains)} chains with {len(self.weights)} weights")
        if len({chain.tick_s for chain in self.chains}) != 1:
            raise ValueError("chains of different ticks cannot be mixed")
        if min(self.weights) < 0 or not math.isclose(sum(self.weights), 1.0, abs_tol=1e-6):
            raise ValueError(f"weights {self.weights} are no distribution")


def believe(chains: Sequence[AvailabilityChain], past: Sequence[bool]) -> Belief:
    """The chains weighed by one offer's own past, tick by tick, the oldest first; by nothing
    (equally) when there is no past."""
    if not past:
        return Belief(tuple(chains), (1.0 / len(chains),) * len(chains))
    last = posterior(chains, np.array([past], dtype=bool))[0, -1]
    return Belief(tuple(chains), tuple(last.tolist()))


def posterior(chains: Sequence[AvailabilityChain], history: Bools) -> Floats:
    """(B, T, chains) the probability of each chain at each tick of B histories, from what was seen
    until then; all chains are equally likely at first."""
    history = np.asarray(history, dtype=bool)
    at = states(history)[:, :-1]
    turned = history[:, 1:] != history[:, :-1]
    likelihood: Floats = np.zeros((*history.shape, len(chains)))
    for i, chain in enumerate(chains):
        hazard = np.array(chain.hazards)[at]
        likelihood[:, 1:, i] = np.cumsum(np.log(np.where(turned, hazard, 1.0 - hazard)), axis=1)
    likelihood -= likelihood.max(axis=2, keepdims=True)
    weights: Floats = np.exp(EVIDENCE_WEIGHT * likelihood)
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


def ticks_of(
    changes: Iterable[tuple[float, bool]], *, until: float, tick_s: float
) -> tuple[bool, ...]:
    """One offer's past as ticks that end at ``until``, from its changes: (instant, up from then on)
    in order of time. A tick is what its end was. Nothing when there is no change before ``until``.
    Raises ValueError for changes out of order."""
    seen = [change for change in changes if change[0] <= until]
    if any(later[0] < earlier[0] for earlier, later in pairwise(seen)):
        raise ValueError("changes are given in order of time")
    if not seen:
        return ()
    number = int((until - seen[0][0]) // tick_s) + 1
    ends = until - tick_s * np.arange(number - 1, -1, -1)
    which = np.searchsorted(np.array([at for at, _ in seen]), ends, side="right") - 1
    return tuple(seen[i][1] for i in which.tolist())
