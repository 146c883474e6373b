"""Every offer as an option for every class of jobs: refused by its first guard, or priced.

Costs are ranked in NumPy over all offers at once; only the offers that may be chosen or shown are
then judged guard by guard and priced to the micro-dollar.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.job import Job
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.reasons import Reason
from hybrid.planning.claims import machine_hold_micros
from hybrid.planning.classes import JobClass
from hybrid.planning.fit import Fit, Shape, fits
from hybrid.planning.offers import OfferBook, OfferClass
from hybrid.planning.options import (
    CloudTime,
    Priced,
    checkpoint_time_s,
    cloud_time,
    machine_terms,
)
from hybrid.planning.workspace import Workspace
from policies import budget as budget_rules
from policies import burst as burst_rules
from policies import spot as spot_rules

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CloudOption:
    """One class of offers for one class of jobs: priced, unless ``refused`` by a guard that holds
    whatever else is planned."""

    offers: OfferClass
    refused: Reason | None
    fit: Fit | None = None
    time: CloudTime | None = None
    priced: Priced | None = None

    @property
    def micros(self) -> int:
        """The cost of a priced option."""
        assert self.priced is not None
        return self.priced.micros


@dataclass(slots=True)
class _Ranking:
    """Offer classes in order of estimated cost, those judged so far, and those refused at once."""

    order: list[int]
    judged: list[CloudOption] = field(default_factory=list)
    static: dict[int, Reason] = field(default_factory=dict)


class Cloud:
    """What clouds offer, as options."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        pools = {
            name: spec
            for name in sorted(ws.snapshot.pools)
            if (spec := ws.burst_pool(name)) is not None
        }
        self.book = OfferBook(ws.snapshot, pools)
        self._rankings: dict[int, _Ranking] = {}
        self._fits: dict[tuple[int, int], tuple[Fit, ...] | Reason] = {}
        self._columns()

    def options(self, cls: JobClass) -> Iterator[CloudOption]:
        """Options of a class, cheapest first, refused ones among them."""
        ranking = self._ranking(cls)
        for position, index in enumerate(ranking.order):
            if position == len(ranking.judged):
                ranking.judged.append(self._judge(cls, self.book.classes[index]))
            yield ranking.judged[position]

    def refused_at_once(self, cls: JobClass) -> dict[int, Reason]:
        """Offer classes that hardware, lists or breakers refuse, by index."""
        return self._ranking(cls).static

    def best(self, cls: JobClass, job: Job) -> tuple[CloudOption, Offer] | None:
        """The cheapest option that every guard allows now, with the offer to ask for."""
        for option in self.options(cls):
            if option.refused is not None:
                continue
            found = self.obtainable(option, job)
            if not isinstance(found, Reason):
                return option, found
        return None

    def obtainable(self, option: CloudOption, job: Job) -> Offer | Reason:
        """The offer to ask for, or the guard on what else is held and planned that refuses."""
        offers = option.offers
        nodes = job.spec.resources.nodes
        ws = self.ws
        refused = burst_rules.ceiling(nodes, offers.offer, offers.pool, ws.policy, ws.committed)
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

    def take(self, option: CloudOption, offer: Offer, job: Job) -> int:
        """Count the machines and the money of a choice; returns what is held."""
        nodes = job.spec.resources.nodes
        hold = machine_hold_micros(job, offer, option.offers.pool) * nodes
        self.ws.hold(job, hold)
        self.ws.commit_machines(offer.pool, nodes, offer.price_ceiling_micros_per_hour)
        self.book.take(offer, nodes)
        return hold

    def give_back(self, option: CloudOption, offer: Offer, job: Job) -> None:
        """Undo a choice."""
        nodes = job.spec.resources.nodes
        hold = machine_hold_micros(job, offer, option.offers.pool) * nodes
        self.ws.hold(job, -hold)
        self.ws.commit_machines(offer.pool, -nodes, offer.price_ceiling_micros_per_hour)
        self.book.take(offer, -nodes)

    # --- judging ------------------------------------------------------------------------------

    def _judge(self, cls: JobClass, offers: OfferClass) -> CloudOption:
        ws, job = self.ws, cls.sample
        found = self._fits_of(cls, offers)
        if isinstance(found, Reason):
            return CloudOption(offers, found)
        fit = found[0]
        too_long = cls.too_long(fit)
        if too_long is not None:
            return CloudOption(offers, too_long)
        refused = spot_rules.refusal(
            job, offers.offer, checkpoint_time_s(ws, cls, offers.pool), ws.policy
        )
        if refused is not None:
            return CloudOption(offers, refused)
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
            return CloudOption(offers, time)
        priced = machine_terms(cls, offers.offer, offers.pool, time, boot_s=offers.boot_s)
        late = deadline_refusal(ws, cls, priced)
        return CloudOption(offers, late, fit, time, priced)

    def _ranking(self, cls: JobClass) -> _Ranking:
        ranking = self._rankings.get(cls.index)
        if ranking is None:
            ranking = self._rankings[cls.index] = self._rank(cls)
        return ranking

    def _rank(self, cls: JobClass) -> _Ranking:
        classes = self.book.classes
        ws = self.ws
        refused = burst_rules.may_leave(cls.sample, ws.policy) or burst_rules.closed(
            ws.policy, ws.now
        )
        if refused is not None:
            return _Ranking([], [], dict.fromkeys(range(len(classes)), refused))
        static: dict[int, Reason] = {}
        lists: dict[tuple[str, ...], Reason | None] = {}
        speeds = np.full(len(classes), math.nan)
        for offers in classes:
            offer = offers.offer
            where = (offer.pool, offer.provider, offer.region, str(offer.market))
            if where not in lists:
                lists[where] = burst_rules.not_allowed(cls.sample, offer, ws.policy)
            no = lists[where] or offers.refused
            if no is None:
                found = self._fits_of(cls, offers)
                if isinstance(found, Reason):
                    no = found
                else:
                    speeds[offers.index] = self._speed(cls, found[0])
            if no is not None:
                static[offers.index] = no
        usable = np.flatnonzero(~np.isnan(speeds))
        estimate = self._estimates(cls, usable, speeds[usable])
        order = usable[np.lexsort((usable, estimate))]
        return _Ranking([int(i) for i in order], [], static)

    def _speed(self, cls: JobClass, fit: Fit) -> float:
        return cls.speed(fit.model, fit.link_gbps)

    def _estimates(self, cls: JobClass, usable: NDArray[np.int64], speeds: Floats) -> Floats:
        """The cost of each usable offer class in micro-dollars, interruptions to first order."""
        job = cls.sample
        run_s = np.minimum(cls.work.mean_s / speeds, job.spec.walltime)
        per_s = self._rate[usable] * cls.nodes / 3600.0
        inbound_s = job.spec.data.input / self._transfer[usable]
        lost_s = self._boot[usable] + inbound_s
        if job.spec.checkpoint.enabled:
            lost_s = lost_s + job.spec.checkpoint.interval / 2.0
        else:
            lost_s = lost_s + run_s / 2.0
        run_s = run_s / np.maximum(1.0 - per_s * lost_s, 0.05)
        paid_s = self._boot[usable] + inbound_s + run_s
        machines = self._price[usable] * cls.nodes * (paid_s + self._tail[usable]) / 3600.0
        egress = job.spec.data.output * self._egress[usable]
        estimate: Floats = machines + egress + cls.value_per_s * paid_s
        return estimate

    def _fits_of(self, cls: JobClass, offers: OfferClass) -> tuple[Fit, ...] | Reason:
        key = (cls.index, self._shape_index[offers.index])
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = fits(cls.need, offers.shape)
        return found

    def _columns(self) -> None:
        """Offer classes as arrays, one entry per class."""
        classes = self.book.classes
        shapes: dict[Shape, int] = {}
        by_identity: dict[int, int] = {}
        self._shape_index = []
        for offers in classes:
            index = by_identity.get(id(offers.shape))
            if index is None:
                index = shapes.setdefault(offers.shape, len(shapes))
                by_identity[id(offers.shape)] = index
            self._shape_index.append(index)
        self._price: Floats = np.array([o.offer.price_micros_per_hour for o in classes], float)
        self._rate: Floats = np.array(
            [o.interruptions_per_hour if o.offer.market is Market.SPOT else 0.0 for o in classes]
        )
        self._boot: Floats = np.array([o.boot_s for o in classes], float)
        self._tail: Floats = np.array([o.pool.lease.end_tail for o in classes], float)
        self._transfer: Floats = np.array([o.pool.transfer_gib_per_s for o in classes], float)
        self._egress: Floats = np.array(
            [float(o.pool.egress_usd_per_gib) * 1e6 for o in classes], float
        )


def deadline_refusal(ws: Workspace, cls: JobClass, priced: Priced) -> Reason | None:
    """Why the option is too late for the job's deadline, or None."""
    if cls.deadline_at is None:
        return None
    left_s = cls.deadline_at - ws.now
    late_by_s = priced.finish_in.mean_s - left_s
    chance = priced.finish_in.probability_beyond(left_s)
    return spot_rules.deadline_refusal(late_by_s, chance, ws.policy)
