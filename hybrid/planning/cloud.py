"""Every offer as an option for every class of jobs: refused by its first guard, or priced.

Costs are ranked in NumPy over all offers at once; only the offers that may be chosen or shown are
then judged guard by guard and priced to the micro-dollar.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.job import Job
from hybrid.domain.job_spec import Market
from hybrid.domain.money import to_micros
from hybrid.domain.offer import Offer
from hybrid.domain.reasons import Reason
from hybrid.estimation.interruptions import LEAST_INTERVAL_S, MOST_INTERVAL_S
from hybrid.estimation.runtime import checkpoint_s
from hybrid.planning.claims import machine_hold_micros
from hybrid.planning.classes import JobClass
from hybrid.planning.deadline_ways import DeadlineWays
from hybrid.planning.failed_places import detour, failed_pools
from hybrid.planning.offers import OfferBook, OfferClass
from hybrid.planning.openings import Opening, Openings, Refused
from hybrid.planning.options import (
    CloudOption,
    Priced,
    checkpoint_time_s,
    cloud_time,
)
from hybrid.planning.workspace import Workspace
from policies import budget as budget_rules
from policies import burst as burst_rules
from policies import spot as spot_rules

Floats = NDArray[np.float64]
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_WAYS = 24
"""Offers of a class with a deadline among which those of its spot and on-demand way are found."""


@dataclass(slots=True)
class _Ranking:
    """Offer classes in order of estimated cost, and those judged so far. ``opening`` is None where
    all are ``refused`` for one reason."""

    order: NDArray[np.int64]
    opening: Opening | None
    refused: Reason | None = None
    judged: dict[int, CloudOption] = field(default_factory=dict)


@dataclass(slots=True)
class _Search:
    """How far in its ranking a class has come: everything before ``at`` is closed until more is
    given back. ``found`` holds until more is taken."""

    given_back: int
    taken: int = -1
    at: int = 0
    found: tuple[CloudOption, Offer] | None = None


class Cloud:
    """What clouds offer, as options."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        self._pools = {
            name: spec
            for name in sorted(ws.snapshot.pools)
            if (spec := ws.burst_pool(name)) is not None
        }
        self.book = OfferBook(ws.snapshot, self._pools)
        self._rankings: dict[int, _Ranking] = {}
        self._searches: dict[int, _Search] = {}
        self._taken = self._given_back = 0
        self._judged_under = ws.committed
        self._ceilings: dict[tuple[int, int], Reason | None] = {}
        self._rooms: dict[tuple[int, float], NDArray[np.bool_]] = {}
        self.openings = Openings(ws, self.book.classes)
        self.deadlines = DeadlineWays(ws, self._ways)
        self._columns()

    def options(self, cls: JobClass, most: int) -> Iterator[CloudOption]:
        """Up to ``most`` options of a class, cheapest first, refused ones among them."""
        ranking = self._ranking(cls)
        judged = (self._judged(cls, ranking, index) for index in ranking.order[:most].tolist())
        return iter(self._steered(cls, judged))

    def open_options(self, cls: JobClass, nodes: int) -> Iterator[CloudOption]:
        """All options of a class that are not refused, cheapest first, but for those that a ceiling
        or a budget closes to so many machines anyway."""
        ranking = self._ranking(cls)
        if not len(ranking.order):
            return
        order = ranking.order[self._room(cls, nodes)[ranking.order]]
        judged = (self._judged(cls, ranking, index) for index in order.tolist())
        for option in self._steered(cls, judged):
            if option.refused is None:
                yield option

    def _steered(self, cls: JobClass, options: Iterable[CloudOption]) -> Iterable[CloudOption]:
        return options if cls.deadline_at is None else self.deadlines.steered(cls, options)

    def _ways(self, cls: JobClass) -> Iterator[CloudOption]:
        """The cheapest options of a class, and those behind open breakers as if they were not."""
        ranking = self._ranking(cls)
        for index in ranking.order[:_WAYS].tolist():
            yield self._judged(cls, ranking, index)
        behind = [] if ranking.opening is None else ranking.opening.open.behind_breakers
        for offers in behind:
            yield self._judge(cls, offers)

    def _room(self, cls: JobClass, nodes: int) -> NDArray[np.bool_]:
        """Which offers have room for so many machines under all ceilings and budgets, as far as
        prices tell: what this refuses, ``obtainable`` refuses too. Hot: the answer is the same for
        all classes with as much money until more is committed."""
        self._forget_what_changed()
        key = nodes, self.ws.free_micros(cls.sample)
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = self._room_for(*key)
        return found

    def _room_for(self, nodes: int, money: float) -> NDArray[np.bool_]:
        ws, committed = self.ws, self.ws.committed
        overall = ws.policy.burst.ceilings
        machines = math.inf if overall.machines is None else overall.machines - committed.machines
        most = math.inf
        if overall.usd_per_hour is not None:
            most = to_micros(overall.usd_per_hour) - committed.micros_per_hour
        left = np.empty(len(self._pools))
        for position, (name, pool) in enumerate(self._pools.items()):
            limits = pool.ceilings
            free = limits.machines - committed.machines_by_pool.get(name, 0)
            rate = committed.micros_per_hour_by_pool.get(name, 0)
            per_hour = min(to_micros(limits.usd_per_hour) - rate, most)
            left[position] = per_hour if min(free, machines) >= nodes else -1.0
        room: NDArray[np.bool_] = (self._ceiling * nodes <= left[self._pool]) & (
            self._hold * nodes <= money
        )
        return room

    def refused_at_once(self, cls: JobClass) -> Refused:
        """Offers that hardware, lists or breakers refuse, counted."""
        ranking = self._ranking(cls)
        if ranking.opening is not None:
            return ranking.opening.refused
        assert ranking.refused is not None
        return self.openings.all_refused(ranking.refused)

    def best(self, cls: JobClass, job: Job) -> tuple[CloudOption, Offer] | None:
        """The cheapest option that every guard allows now, with the offer to ask for."""
        if cls.deadline_at is not None or job.id in self.ws.held_for_job:
            for option in self.open_options(cls, job.spec.resources.nodes):
                found = self.obtainable(option, job)
                if not isinstance(found, Reason):
                    return option, found
            return None
        search = self._searches.get(cls.index)
        if search is None or search.given_back != self._given_back:
            search = self._searches[cls.index] = _Search(self._given_back)
        if search.taken != self._taken:
            search.taken, search.found = self._taken, self._go_on(search, cls, job)
        return search.found

    def _go_on(self, search: _Search, cls: JobClass, job: Job) -> tuple[CloudOption, Offer] | None:
        """Hot: what is taken opens nothing, so a search goes on where it was when it last had an
        answer; only when something is given back it begins anew."""
        ranking = self._ranking(cls)
        order = ranking.order[search.at :]
        open_to = np.flatnonzero(self._room(cls, job.spec.resources.nodes)[order])
        begun_at = search.at
        for ahead in open_to.tolist():
            option = self._judged(cls, ranking, int(order[ahead]))
            if option.refused is not None:
                continue
            found = self.obtainable(option, job)
            if not isinstance(found, Reason):
                search.at = begun_at + ahead
                return option, found
        search.at = begun_at + len(order)
        return None

    def judged(self, cls: JobClass, job: Job, offers: OfferClass) -> CloudOption:
        """One class of offers for a job, with the first guard of all that refuses it now."""
        refused = burst_rules.may_leave(job, self.ws.policy) or burst_rules.closed(
            self.ws.policy, self.ws.now
        )
        refused = refused or self.openings.at_once(cls, offers)
        if refused is not None:
            return CloudOption(offers, refused, cls)
        option = self.deadlines.left(cls, self._judge(cls, offers))
        if option.refused is not None:
            return option
        found = self.obtainable(option, job)
        return replace(option, refused=found) if isinstance(found, Reason) else option

    def obtainable(self, option: CloudOption, job: Job) -> Offer | Reason:
        """The offer to ask for, or the guard on what else is held and planned that refuses."""
        offers = option.offers
        nodes = job.spec.resources.nodes
        ws = self.ws
        refused = self._ceiling_refusal(offers, nodes)
        if refused is not None:
            return refused
        offer = self.book.available(offers, nodes)
        if isinstance(offer, Reason):
            return offer
        hold = machine_hold_micros(job, offer, offers.pool) * nodes
        refused = budget_rules.refusal(
            hold,
            job,
            ws.snapshot.balances,
            ws.extra_holds,
            job_held_micros=ws.held_for_job.get(job.id, 0),
        )
        return offer if refused is None else refused

    def _ceiling_refusal(self, offers: OfferClass, nodes: int) -> Reason | None:
        """Hot: the report asks for each class of jobs, and the answer is the same for all until
        more is committed."""
        self._forget_what_changed()
        key = (offers.index, nodes)
        if key not in self._ceilings:
            self._ceilings[key] = burst_rules.ceiling(
                nodes, offers.offer, offers.pool, self.ws.policy, self.ws.committed
            )
        return self._ceilings[key]

    def _forget_what_changed(self) -> None:
        """What was judged by other machines than are committed now."""
        if self._judged_under is not self.ws.committed:
            self._judged_under = self.ws.committed
            self._ceilings.clear()
            self._rooms.clear()

    def take(self, option: CloudOption, offer: Offer, job: Job) -> int:
        """Count the machines and the money of a choice; returns what is held."""
        nodes = job.spec.resources.nodes
        hold = machine_hold_micros(job, offer, option.offers.pool) * nodes
        self.ws.hold(job, hold)
        self.ws.commit_machines(offer.pool, nodes, offer.price_ceiling_micros_per_hour)
        self.book.take(offer, nodes)
        self._taken += 1
        return hold

    def give_back(self, option: CloudOption, offer: Offer, job: Job) -> None:
        """Undo a choice."""
        nodes = job.spec.resources.nodes
        hold = machine_hold_micros(job, offer, option.offers.pool) * nodes
        self.ws.hold(job, -hold)
        self.ws.commit_machines(offer.pool, -nodes, offer.price_ceiling_micros_per_hour)
        self.book.give_back(offer, nodes)
        self._given_back += 1

    # --- judging ------------------------------------------------------------------------------

    def _judged(self, cls: JobClass, ranking: _Ranking, index: int) -> CloudOption:
        option = ranking.judged.get(index)
        if option is None:
            option = ranking.judged[index] = self._judge(cls, self.book.classes[index])
        return option

    def _judge(self, cls: JobClass, offers: OfferClass) -> CloudOption:
        ws, job = self.ws, cls.sample
        found = self.ws.fits_shape(cls, offers.shape)
        if isinstance(found, Reason):
            return CloudOption(offers, found, cls)
        fit = cls.fastest(found)
        too_long = cls.too_long(fit)
        if too_long is not None:
            return CloudOption(offers, too_long, cls)
        if offers.offer.market is Market.SPOT:
            save_s = checkpoint_time_s(ws, cls, offers.pool)
            refused = spot_rules.refusal(job, offers.offer, save_s, ws.policy)
            if refused is not None:
                return CloudOption(offers, refused, cls)
        time = cloud_time(
            ws,
            cls,
            offers.offer,
            offers.pool,
            fit,
            rate_per_machine_hour=offers.interruptions_per_hour,
            boot_s=offers.boot_s,
        )
        if isinstance(time, Reason):
            return CloudOption(offers, time, cls)
        option = CloudOption(offers, None, cls, fit, time)
        if cls.deadline_at is not None and option.priced is not None:
            option.refused = deadline_refusal(ws, cls, option.priced)
        return option

    def _ranking(self, cls: JobClass) -> _Ranking:
        ranking = self._rankings.get(cls.index)
        if ranking is None:
            ranking = self._rankings[cls.index] = self._rank(cls)
        return ranking

    def _rank(self, cls: JobClass) -> _Ranking:
        ws = self.ws
        refused = burst_rules.may_leave(cls.sample, ws.policy) or burst_rules.closed(
            ws.policy, ws.now
        )
        if refused is not None:
            return _Ranking(_NONE, None, refused)
        opening = self.openings.of(cls)
        open_to = opening.open
        speeds = np.zeros(len(open_to.shapes))  # 0: not usable
        for position, fits in opening.fits:
            fit = cls.fastest(fits)
            speeds[position] = cls.speed(fit.model, fit.link_gbps)
        usable = np.flatnonzero(speeds[open_to.shape_of])
        indices = open_to.indices[usable]
        estimate = self._estimates(cls, indices, speeds[open_to.shape_of[usable]])
        return _Ranking(self._by_detour(cls, indices[_rising(estimate)]), opening)

    def _by_detour(self, cls: JobClass, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pools in which the job has failed too often come last, whatever they cost."""
        if not failed_pools(cls.sample):
            return order
        offers = (self.book.classes[index].offer for index in order.tolist())
        detours = [detour(cls.sample, offer.pool, offer.market) for offer in offers]
        return order[np.argsort(detours, kind="stable")]

    def _estimates(self, cls: JobClass, usable: NDArray[np.int64], speeds: Floats) -> Floats:
        """The cost of each usable offer class in micro-dollars, interruptions to first order."""
        job = cls.sample
        run_s = np.minimum(cls.work.mean_s / speeds, job.spec.walltime)
        per_s = self._rate[usable] * cls.nodes / 3600.0
        inbound_s = job.spec.data.input / self._transfer[usable]
        lost_s = self._boot[usable] + inbound_s
        if job.spec.checkpoint.enabled:
            lost_s = lost_s + self._intervals(cls, usable, per_s) / 2.0
        else:
            lost_s = lost_s + run_s / 2.0
        run_s = run_s / np.maximum(1.0 - per_s * lost_s, 0.05)
        paid_s = self._boot[usable] + inbound_s + run_s
        machines = self._price[usable] * cls.nodes * (paid_s + self._tail[usable]) / 3600.0
        egress = job.spec.data.output * self._egress[usable]
        estimate: Floats = machines + egress + cls.value_per_s * paid_s
        return estimate

    def _intervals(self, cls: JobClass, usable: NDArray[np.int64], per_s: Floats) -> Floats | float:
        """How often the job saves on each offer, as ``interruptions.interval_s`` has it."""
        interval = cls.sample.spec.checkpoint.interval
        if not isinstance(interval, str) or not len(usable):
            return cls.sample.spec.checkpoint.interval_or(MOST_INTERVAL_S)
        # as if all pools were as fast as the slowest: this only puts offers in an order
        slowest = float(self._transfer[usable].min())
        save_s = checkpoint_s(cls.sample, self.ws.snapshot.learned, gib_per_s=slowest)
        best = np.sqrt(2.0 * save_s / np.maximum(per_s, 1e-12))
        found: Floats = np.clip(best, LEAST_INTERVAL_S, MOST_INTERVAL_S)
        return found

    def _columns(self) -> None:
        """Offer classes as arrays, one entry per class."""
        classes = self.book.classes
        self._price: Floats = np.array([o.offer.price_micros_per_hour for o in classes], float)
        self._rate: Floats = np.array(
            [o.interruptions_per_hour if o.offer.market is Market.SPOT else 0.0 for o in classes]
        )
        self._ceiling: Floats = np.array(
            [o.offer.price_ceiling_micros_per_hour for o in classes], float
        )
        lease_s = [o.pool.lease.duration + o.pool.lease.end_tail for o in classes]
        self._hold: Floats = self._ceiling * np.array(lease_s, float) / 3600.0
        positions = {name: position for position, name in enumerate(self._pools)}
        self._pool = np.array([positions[o.offer.pool] for o in classes], dtype=np.int64)
        self._boot: Floats = np.array([o.boot_s for o in classes], float)
        self._tail: Floats = np.array([o.pool.lease.end_tail for o in classes], float)
        self._transfer: Floats = np.array([o.pool.transfer_gib_per_s for o in classes], float)
        self._egress: Floats = np.array(
            [float(o.pool.egress_usd_per_gib) * 1e6 for o in classes], float
        )


def _rising(values: Floats) -> NDArray[np.int64]:
    """Positions by value, of equals the first. Hot: the stable sort is several times slower, and
    equal costs are rare."""
    order = np.argsort(values)
    in_order = values[order]
    if (in_order[1:] == in_order[:-1]).any():
        return np.argsort(values, kind="stable")
    return order


def deadline_refusal(ws: Workspace, cls: JobClass, priced: Priced) -> Reason | None:
    """Why the option is too late for the job's deadline, or None."""
    if cls.deadline_at is None:
        return None
    left_s = cls.deadline_at - ws.now
    late_by_s = priced.finish_in.mean_s - left_s
    chance = priced.finish_in.probability_beyond(left_s)
    return spot_rules.deadline_refusal(late_by_s, chance, ws.policy)
