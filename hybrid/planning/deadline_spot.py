"""A job with a deadline on spot: wait, run on spot, or run on-demand, tick by tick.

``choose`` answers for one job now: the choice of least expected cost among those after which the
deadline is still certain (see ``hybrid.estimation.spot_value``; certain as long as an on-demand
machine can be had when it is needed, which no plan can promise). ``choose_many`` answers for many
jobs of the same terms at once.

How to call it for a real job, at most ``tick_s`` apart and at every change of its offers:

- ``SpotTerms`` once, when the job is first considered: its work and time to the deadline then;
  ``restart_s`` = boot + transfer + the family's measured restart; prices of the spot and the
  on-demand offer times the machines of the gang; ``tick_s`` 600, or longer for horizons of weeks.
- ``JobNow`` each time. A loss within a tick also costs the work since the last checkpoint: take it
  (the checkpoint interval, and the seconds a tick of the loop may be late) off ``left_s``, and the
  deadline is certain with it.
- ``Belief`` from ``believe(chains, past)``: chains learned (``learn(count(...))``) from the
  histories of other offers, the past of this one by ``ticks_of``; with neither, one ``memoryless``
  chain from the offer's interruption rate. Learn anew every few hours, not every tick: a chain or
  price that changes is solved again, about half a second each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hybrid.domain.money import cents
from hybrid.estimation.availability import AvailabilityChain, Belief, Floats, Ints, Seen, is_up
from hybrid.estimation.spot_value import Machine, SpotTerms, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNow:
    """Where a job stands: seconds ``left_s`` to its deadline and ``work_left_s`` of work, the
    machine it holds with what is left of its start, and what is seen of its spot offer."""

    left_s: float
    work_left_s: float
    held: Machine
    starting_s: float
    spot: Seen


class SpotReason(StrEnum):
    """Why a choice was made, in words."""

    DONE = "no work is left"
    SPOT_IS_CHEAPEST = "spot can be had and is the cheapest way to the deadline"
    WAITING_IS_CHEAPEST = "there is time to wait for spot, and waiting is cheapest"
    ON_DEMAND_IS_CHEAPEST = "on-demand now is cheaper than what waiting would lead to"
    ONLY_ON_DEMAND_IS_CERTAIN = "only on-demand is certain to meet the deadline from here"
    DEADLINE_IS_LOST = "no machine can meet the deadline any more; the fastest way is taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to do for the next tick. The expected costs of each way are micro-dollars from now until
    the job's end; None where spot cannot be had or the deadline would no longer be certain."""

    machine: Machine
    reason: SpotReason
    wait_micros: int | None
    spot_micros: int | None
    on_demand_micros: int | None

    def sentence(self) -> str:
        """One line for people, with the expected cost of every way that is open."""
        named = {
            "wait": self.wait_micros,
            "spot": self.spot_micros,
            "on-demand": self.on_demand_micros,
        }
        costs = ", ".join(f"{n} ${cents(m)}" for n, m in named.items() if m is not None)
        return f"{self.reason} (expected: {costs})" if costs else str(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsNow:
    """B jobs of the same terms: arrays (B,) of ``JobNow``'s figures, the state of each in the
    chains, and (B, chains) the weight of each chain."""

    left_s: Floats
    work_left_s: Floats
    held: Ints
    starting_s: Floats
    state: Ints
    weights: Floats


def choose(now: JobNow, terms: SpotTerms, belief: Belief) -> Choice:
    """The choice for one job. Raises ValueError when the belief's ticks are not the terms', when
    more time is left than the terms' horizon, or for a figure that is negative or not finite."""
    figures = (now.left_s, now.work_left_s, now.starting_s)
    if not all(math.isfinite(f) for f in figures) or min(now.work_left_s, now.starting_s) < 0:
        raise ValueError(f"work and start left are finite and not negative, time finite: {figures}")
    jobs = JobsNow(
        left_s=np.array([now.left_s]),
        work_left_s=np.array([now.work_left_s]),
        held=np.array([now.held], dtype=np.int64),
        starting_s=np.array([now.starting_s]),
        state=np.array([belief.chains[0].state(now.spot)]),
        weights=np.array([belief.weights]),
    )
    costs = expected_costs(jobs, terms, belief.chains)
    machine = Machine(int(_pick(costs, jobs)[0]))
    open_ways = {way for way in Machine if math.isfinite(costs[0, way])}
    wait, spot, on_demand = (round(costs[0, w]) if w in open_ways else None for w in Machine)
    return Choice(
        machine=machine,
        reason=_reason(machine, open_ways, done=now.work_left_s <= 0),
        wait_micros=wait,
        spot_micros=spot,
        on_demand_micros=on_demand,
    )


def choose_many(jobs: JobsNow, terms: SpotTerms, chains: tuple[AvailabilityChain, ...]) -> Ints:
    """(B,) the ``Machine`` for the next tick of each job, as ``choose`` would say."""
    return _pick(expected_costs(jobs, terms, chains), jobs)


def expected_costs(
    jobs: JobsNow, terms: SpotTerms, chains: tuple[AvailabilityChain, ...]
) -> Floats:
    """(B, 3) expected micro-dollars until the end per ``Machine``, over the chains by weight;
    infinite where a choice is not open."""
    held = np.where(is_up()[jobs.state] | (jobs.held != Machine.SPOT), jobs.held, Machine.NONE)
    costs: Floats = np.zeros((len(held), len(Machine)))
    for i, chain in enumerate(chains):
        of_chain = solve(terms, chain).after(
            jobs.left_s, jobs.work_left_s, held, jobs.starting_s, jobs.state
        )
        # which ways are open does not depend on the chain, and a weight may be 0
        closed = np.isinf(of_chain)
        costs += np.where(
            closed, math.inf, jobs.weights[:, i, None] * np.where(closed, 0, of_chain)
        )
    return costs


def _pick(costs: Floats, jobs: JobsNow) -> Ints:
    """The cheapest way; of equal ones the one that asks for least: waiting, spot, on-demand."""
    picked: Ints = costs.argmin(axis=1)
    works = (jobs.held == Machine.SPOT) & is_up()[jobs.state]
    fastest = np.where(works, Machine.SPOT, Machine.ON_DEMAND)
    picked = np.where(np.isinf(costs).all(axis=1), fastest, picked)
    return np.where(jobs.work_left_s <= 0, Machine.NONE, picked)


def _reason(machine: Machine, open_ways: set[Machine], *, done: bool) -> SpotReason:
    if done:
        return SpotReason.DONE
    if not open_ways:
        return SpotReason.DEADLINE_IS_LOST
    if open_ways == {Machine.ON_DEMAND}:
        return SpotReason.ONLY_ON_DEMAND_IS_CERTAIN
    return _CHEAPEST[machine]


_CHEAPEST = {
    Machine.NONE: SpotReason.WAITING_IS_CHEAPEST,
    Machine.SPOT: SpotReason.SPOT_IS_CHEAPEST,
    Machine.ON_DEMAND: SpotReason.ON_DEMAND_IS_CHEAPEST,
}
