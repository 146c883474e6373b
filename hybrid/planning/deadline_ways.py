"""Which way a job with a deadline takes in clouds: nothing for now, spot, or on-demand.

A job that saves its work and has a deadline need not be refused spot because spot may be taken: as
long as on-demand can still finish in time after a loss, the deadline holds, and the choice of least
expected cost is made anew at every plan (``hybrid.planning.deadline_spot``).

The programme is solved on a ladder of horizons, start times and price ratios, not for each job: one
table serves every job on its rung, so that a plan solves few of them, each once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from hybrid.domain.job_spec import Market
from hybrid.domain.reasons import (
    BreakerOpen,
    EndangersDeadline,
    MissesDeadline,
    NotWorthIt,
    WaitsForSpot,
)
from hybrid.domain.sightings import Sightings
from hybrid.estimation import interruptions, transfer
from hybrid.estimation.availability import SpellCounts
from hybrid.estimation.experience import ENOUGH_TICKS, belief, experience, seen_now
from hybrid.estimation.runtime import restart_s as measured_restart_s
from hybrid.estimation.spot_value import Machine, SpotTerms
from hybrid.estimation.waits import Duration
from hybrid.planning.classes import JobClass
from hybrid.planning.deadline_spot import Choice, JobNow, SpotReason, choose
from hybrid.planning.offers import OfferClass
from hybrid.planning.options import CloudOption, checkpoint_time_s, cost_micros
from hybrid.planning.workspace import Workspace

TICKS = 96
"""Ticks of the horizon; a tick of ten minutes is doubled until the deadline lies within it."""

TICK_S = 600.0

RESTARTS_S = (60.0, 120.0, 180.0, 240.0, 300.0, 450.0, 600.0, 900.0, 1_200.0, 1_800.0)
"""Start times told apart; a job counts as the next longer one, so its deadline stays certain."""

_SPOT_STEP = 0.02
_DELAY_STEP = 2.0
_WHOLE_MICROS = 1_000_000
"""On-demand's price in a table, of which the others are parts: spot in steps of 2 %, the value of
time in factors of 2."""

LATE_S = 60.0
"""How much later than it should a plan may be made, or its machine be asked for."""

_MOST_CERTAIN = 0.999

Ways = Callable[[JobClass], Iterable[CloudOption]]


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one class of jobs, between a spot and an on-demand option.

    ``throughout_micros`` is what on-demand to the end costs, without ever going to spot.
    ``watched_h`` is the experience behind it, in hours of all offers; 0 while the stated rate is
    all there is.
    """

    choice: Choice
    spot: CloudOption
    on_demand: CloudOption
    throughout_micros: int
    watched_h: float

    @property
    def words(self) -> str:
        """Why, with what each way is expected to cost and where that is known from."""
        source = "the stated interruption rate"
        if self.watched_h:
            source = f"{self.watched_h:.0f} h of watched availability"
        return f"{self.choice.sentence()}, by {source}"


class DeadlineWays:
    """The ways of one plan, found when they are first asked for."""

    def __init__(self, ws: Workspace, ways: Ways) -> None:
        self._ws = ws
        self._ways = ways
        self._found: dict[int, Way | None] = {}
        self._counts: dict[float, SpellCounts] = {}

    def of(self, cls: JobClass) -> Way | None:
        """The way of a class; None where there is nothing to choose: no deadline, one that nothing
        meets for certain, no saving of work, or no offers of both markets."""
        if cls.index not in self._found:
            self._found[cls.index] = self._find(cls, Machine.NONE)
        return self._found[cls.index]

    def from_on_demand(self, cls: JobClass, stop_s: float) -> Way | None:
        """The way of a job that runs on-demand, and could stop within ``stop_s``."""
        return self._find(cls, Machine.ON_DEMAND, stop_s)

    def steered(self, cls: JobClass, options: Iterable[CloudOption]) -> Iterator[CloudOption]:
        """The options of a class with a deadline, those that the chosen way leaves."""
        way = self.of(cls)
        if way is None:
            yield from options
            return
        if way.choice.machine is Machine.SPOT:
            yield way.spot
        for option in options:
            if option.offers is not way.spot.offers or way.choice.machine is not Machine.SPOT:
                yield _left_by(way, option)

    def left(self, cls: JobClass, option: CloudOption) -> CloudOption:
        """One option of a class, refused if the chosen way does not leave it."""
        way = None if cls.deadline_at is None else self.of(cls)
        if way is None:
            return option
        chosen = way.choice.machine is Machine.SPOT and option.offers is way.spot.offers
        return way.spot if chosen else _left_by(way, option)

    def _find(self, cls: JobClass, held: Machine, stop_s: float = 0.0) -> Way | None:
        spec = cls.sample.spec
        if cls.deadline_at is None or not spec.checkpoint.enabled:
            return None
        # what a loss within a tick costs besides the start is off the time there is
        left_s = cls.deadline_at - self._ws.now - stop_s - LATE_S
        pair = self._pair(cls) if left_s > 0 else None
        if pair is None:
            return None
        left_s -= self._interval_s(cls, pair[0])
        if left_s <= 0:
            return None
        self._ws.evaluations += 1
        spot, on_demand = pair
        terms, tick_s = self._terms(cls, spot, on_demand, left_s), _tick_s(left_s)
        if terms is None:
            return None
        now = JobNow(
            left_s=left_s,
            work_left_s=self._work_s(cls, on_demand),
            held=held,
            starting_s=0.0,
            spot=seen_now(
                self._sightings(spot.offers),
                refused=isinstance(spot.offers.refused, BreakerOpen),
                now=self._ws.now,
            ),
        )
        counts = self._experience(tick_s)
        expected = belief(
            self._sightings(spot.offers),
            counts,
            losses_per_hour=spot.offers.interruptions_per_hour * cls.nodes,
            now=self._ws.now,
            tick_s=tick_s,
        )
        choice = _priced(choose(now, terms, expected), on_demand, cls)
        if choice.reason in (SpotReason.DEADLINE_IS_LOST, SpotReason.DONE):
            return None
        ticks = sum(counts.ticks)
        watched_h = ticks * tick_s / 3600.0 if ticks >= ENOUGH_TICKS else 0.0
        per_hour = on_demand.offers.offer.price_micros_per_hour * cls.nodes
        start_s = 0.0 if held is Machine.ON_DEMAND else terms.restart_s
        throughout = cost_micros(per_hour + cls.value_micros_per_hour, now.work_left_s + start_s)
        return Way(choice, replace(spot, refused=None), on_demand, throughout, watched_h)

    def _pair(self, cls: JobClass) -> tuple[CloudOption, CloudOption] | None:
        """The cheapest spot option, one that can be had before one that cannot, and the cheapest
        on-demand option that is no faster: what spot does in a tick it does at least."""
        ways = [
            option
            for option in self._ways(cls)
            if option.priced is not None
            and (option.refused is None or isinstance(option.refused, MissesDeadline))
        ]
        spots = [o for o in ways if o.offers.offer.market is Market.SPOT]
        others = [o for o in ways if o.offers.offer.market is not Market.SPOT]
        if not spots or not others:
            return None
        spot = min(spots, key=lambda o: (o.offers.refused is not None, o.micros, o.offers.index))
        slower = [o for o in others if _bare_s(o) >= _bare_s(spot) * 0.999]
        if not slower:
            return None
        return spot, min(slower, key=lambda o: (o.micros, o.offers.index))

    def _terms(
        self, cls: JobClass, spot: CloudOption, on_demand: CloudOption, left_s: float
    ) -> SpotTerms | None:
        """The rung that the class stands on; None where starting takes longer than any."""
        pool, job = on_demand.offers.pool, cls.sample
        start_s = max(
            measured_restart_s(
                job,
                self._ws.snapshot.learned,
                boot_s=option.offers.boot_s,
                inbound_s=transfer.restore_s(job, pool),
            )
            for option in (spot, on_demand)
        )
        restart_s = next((rung for rung in RESTARTS_S if rung >= start_s), None)
        if restart_s is None:
            return None
        price = on_demand.offers.offer.price_micros_per_hour
        part = spot.offers.offer.price_micros_per_hour / price
        delay = cls.value_micros_per_hour / (price * cls.nodes)
        tick_s = _tick_s(left_s)
        return SpotTerms(
            work_s=0.0,  # the table of a job without work has every slack in it
            horizon_s=TICKS * tick_s,
            tick_s=tick_s,
            restart_s=restart_s,
            spot_micros_per_hour=round(math.ceil(part / _SPOT_STEP) * _SPOT_STEP * _WHOLE_MICROS),
            on_demand_micros_per_hour=_WHOLE_MICROS,
            delay_micros_per_hour=_rung(delay),
        )

    def _work_s(self, cls: JobClass, option: CloudOption) -> float:
        """Seconds of an on-demand machine that suffice with the policy's probability, the saving
        and the bringing back of results included."""
        assert option.time is not None
        time, spec = option.time, cls.sample.spec
        tolerated = self._ws.policy.spot.deadline_miss_probability
        certain = min(1.0 - tolerated, _MOST_CERTAIN)
        run = Duration(time.bare_s, time.run.sd_s)
        run_s = run.quantile_s(certain) if certain > 0 else time.bare_s
        saving_s = checkpoint_time_s(self._ws, cls, option.offers.pool)
        every_s = interruptions.interval_s(spec.checkpoint, overhead_s=saving_s, rate_per_s=0.0)
        run_s = min(run_s, spec.walltime) * (1.0 + saving_s / every_s)
        return run_s + time.outbound_s

    def _interval_s(self, cls: JobClass, spot: CloudOption) -> float:
        """How often the job saves on spot: what a loss throws away at most."""
        return interruptions.interval_s(
            cls.sample.spec.checkpoint,
            overhead_s=checkpoint_time_s(self._ws, cls, spot.offers.pool),
            rate_per_s=spot.offers.interruptions_per_hour * cls.nodes / 3600.0,
        )

    def _sightings(self, offers: OfferClass) -> Sightings | None:
        """Of the first of its zones of which there are any."""
        known = self._ws.snapshot.sightings
        return next((known[o.id] for o in offers.members if o.id in known), None)

    def _experience(self, tick_s: float) -> SpellCounts:
        if tick_s not in self._counts:
            self._counts[tick_s] = experience(self._all, now=self._ws.now, tick_s=tick_s)
        return self._counts[tick_s]

    @cached_property
    def _all(self) -> tuple[Sightings, ...]:
        return tuple(seen for _, seen in sorted(self._ws.snapshot.sightings.items()))


def _left_by(way: Way, option: CloudOption) -> CloudOption:
    """The option, refused if the way does not leave it."""
    choice = way.choice
    if option.refused is not None:
        return option
    if choice.machine is Machine.NONE:
        saves = way.throughout_micros - (choice.wait_micros or 0)
        return replace(option, refused=WaitsForSpot(way.spot.offers.label, max(saves, 0)))
    if choice.machine is Machine.ON_DEMAND and option.offers.offer.market is Market.SPOT:
        if choice.spot_micros is None or choice.on_demand_micros is None:
            return replace(option, refused=EndangersDeadline())
        dearer = choice.spot_micros - choice.on_demand_micros
        return replace(option, refused=NotWorthIt(dearer, "on-demand, its losses counted"))
    return option


def _priced(choice: Choice, on_demand: CloudOption, cls: JobClass) -> Choice:
    """The choice in real prices instead of parts of on-demand's."""
    scale = on_demand.offers.offer.price_micros_per_hour * cls.nodes / _WHOLE_MICROS

    def real(micros: int | None) -> int | None:
        return None if micros is None else round(micros * scale)

    return replace(
        choice,
        wait_micros=real(choice.wait_micros),
        spot_micros=real(choice.spot_micros),
        on_demand_micros=real(choice.on_demand_micros),
    )


def _tick_s(left_s: float) -> float:
    """The shortest tick of the ladder with which the deadline is within the horizon."""
    tick_s = TICK_S
    while left_s >= TICKS * tick_s:
        tick_s *= 2.0
    return tick_s


def _rung(part: float) -> int:
    """The nearest power of the step, in micros of on-demand's price; 0 for next to nothing."""
    if part < 1e-3:
        return 0
    power = round(math.log(part) / math.log(_DELAY_STEP))
    return round(_DELAY_STEP**power * _WHOLE_MICROS)


def _bare_s(option: CloudOption) -> float:
    assert option.time is not None
    return option.time.bare_s
