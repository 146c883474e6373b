"""Which offers are open to a class of jobs by lists, breakers and hardware, whatever they cost; and
the refusals of all others, counted. Shared by all classes that are treated alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.ids import PoolName
from hybrid.domain.job_spec import Market, Where
from hybrid.domain.reasons import BreakerOpen, CannotCheckpoint, Reason
from hybrid.planning.classes import JobClass
from hybrid.planning.fit import Fit, Shape
from hybrid.planning.offers import OfferClass
from hybrid.planning.workspace import Workspace
from policies import burst as burst_rules
from policies import spot as spot_rules

Ints = NDArray[np.int64]
_NONE: Ints = np.empty(0, dtype=np.int64)

Refused = Mapping[tuple[PoolName, str], tuple[Reason, int]]
"""Refused offers by pool and code of the reason: the first reason of these, and their number."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Offer classes of one machine in one pool and market, all refused for one reason or none."""

    sample: OfferClass
    indices: Ints
    members: int


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """The ``shapes`` that lists and breakers leave open, and how many offers each of the ``pools``
    has of each (rows are pools). ``indices`` are their offer classes, rising, each with the
    position of its shape; ``refused`` are all others, and ``behind_breakers`` those of them that a
    breaker closes."""

    shapes: list[Shape]
    pools: list[PoolName]
    members: Ints
    indices: Ints
    shape_of: Ints
    refused: Refused
    behind_breakers: list[OfferClass]


@dataclass(slots=True, eq=False)
class Opening:
    """What a class may have: of the open shapes those that it fits, by position, with how; and why
    it does not fit the others."""

    open: _Open
    fits: list[tuple[int, tuple[Fit, ...]]]
    unfit: list[tuple[int, Reason]]
    _refused: Refused | None = field(default=None)

    @property
    def refused(self) -> Refused:
        """Everything that is not open to the class, counted. Worked out when first asked for."""
        if self._refused is None:
            self._refused = self._counted()
        return self._refused

    def _counted(self) -> Refused:
        found = dict(self.open.refused)
        by_code: dict[str, tuple[list[int], list[Reason]]] = {}
        for position, reason in self.unfit:
            positions, reasons = by_code.setdefault(reason.code, ([], []))
            positions.append(position)
            reasons.append(reason)
        for positions, reasons in by_code.values():
            there = self.open.members[:, positions]
            firsts, totals = (there > 0).argmax(axis=1), there.sum(axis=1)
            for pool, first, total in zip(
                self.open.pools, firsts.tolist(), totals.tolist(), strict=True
            ):
                if total:
                    _count(found, pool, reasons[first], total)
        return found


class Openings:
    """The openings of one plan. Hot: once for each class of jobs."""

    def __init__(self, ws: Workspace, classes: Iterable[OfferClass]) -> None:
        self._ws = ws
        groups: dict[tuple[object, ...], list[OfferClass]] = {}
        for offers in classes:
            offer = offers.offer
            where = (offer.pool, offer.region, offer.market, id(offers.shape), offers.refused)
            groups.setdefault(where, []).append(offers)
        self._groups = [
            _Group(
                members[0],
                np.array([offers.index for offers in members], dtype=np.int64),
                sum(len(offers.members) for offers in members),
            )
            for members in groups.values()
        ]
        self._open: dict[tuple[Where, str, bool, bool], _Open] = {}
        self._found: dict[tuple[int, int], Opening] = {}

    def of(self, cls: JobClass) -> Opening:
        """What is open to a class."""
        open_to = self._open_to(cls)
        key = (cls.need_index, id(open_to))
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Opening(open_to, [], [])
            for position, shape in enumerate(open_to.shapes):
                fits = self._ws.fits_shape(cls, shape)
                if isinstance(fits, tuple):
                    found.fits.append((position, fits))
                else:
                    found.unfit.append((position, fits))
        return found

    def all_refused(self, reason: Reason) -> Refused:
        """Every offer, refused for one reason."""
        found: dict[tuple[PoolName, str], tuple[Reason, int]] = {}
        for group in self._groups:
            _count(found, group.sample.offer.pool, reason, group.members)
        return found

    def at_once(self, cls: JobClass, sample: OfferClass) -> Reason | None:
        """What refuses offers like this one, whatever their prices and their hardware."""
        offer = sample.offer
        no = burst_rules.not_allowed(cls.sample, offer, self._ws.policy) or sample.refused
        if no is None and offer.market is Market.SPOT:
            # a job that cannot save its work is refused by every spot offer
            spot = spot_rules.refusal(cls.sample, offer, 0.0, self._ws.policy)
            no = spot if isinstance(spot, CannotCheckpoint) else None
        return no

    def _open_to(self, cls: JobClass) -> _Open:
        """The same for all jobs that may go to the same places and save alike."""
        spec, name = cls.sample.spec, cls.sample.team
        team = self._ws.policy.team(name)
        listed = name if team.providers or team.regions else ""
        saves = (spec.checkpoint.enabled, spec.retries.on_spot_restart)
        key = (spec.where, listed, *saves)
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = self._opened(cls)
        return found

    def _opened(self, cls: JobClass) -> _Open:
        refused: dict[tuple[PoolName, str], tuple[Reason, int]] = {}
        behind_breakers: list[OfferClass] = []
        by_shape: dict[int, list[_Group]] = {}
        known: dict[tuple[str, str, str, Market], Reason | None] = {}
        for group in self._groups:
            offer = group.sample.offer
            place = (offer.pool, offer.provider, offer.region, offer.market)
            if group.sample.refused is not None:
                no = self.at_once(cls, group.sample)
            elif place in known:
                no = known[place]  # hot: it is the same for all machines there
            else:
                no = known[place] = self.at_once(cls, group.sample)
            if no is None:
                by_shape.setdefault(id(group.sample.shape), []).append(group)
                continue
            _count(refused, offer.pool, no, group.members)
            if isinstance(no, BreakerOpen):
                behind_breakers.append(group.sample)
        pools = sorted({group.sample.offer.pool for group in self._groups})
        members = np.zeros((len(pools), len(by_shape)), dtype=np.int64)
        shapes, indices, shape_of = [], [_NONE], [_NONE]
        for position, groups in enumerate(by_shape.values()):
            for group in groups:
                members[pools.index(group.sample.offer.pool), position] += group.members
                indices.append(group.indices)
                shape_of.append(np.full(len(group.indices), position, dtype=np.int64))
            shapes.append(groups[0].sample.shape)
        all_indices = np.concatenate(indices)
        order = np.argsort(all_indices)
        return _Open(
            shapes,
            pools,
            members,
            all_indices[order],
            np.concatenate(shape_of)[order],
            refused,
            behind_breakers,
        )


def _count(
    found: dict[tuple[PoolName, str], tuple[Reason, int]],
    pool: PoolName,
    reason: Reason,
    members: int,
) -> None:
    key = (pool, reason.code)
    known = found.get(key)
    found[key] = (reason, members) if known is None else (known[0], known[1] + members)
