"""Slots of machines with more devices than one table holds: GPUs parted into MIG instances.

An instance reaches no other over a link, and a job takes one of them, so it needs no table; what
devices there are with links get theirs.
"""

from __future__ import annotations

import math
from functools import lru_cache

from hybrid.domain.job_spec import LinkClass
from hybrid.topology.graph import MAX_DEVICES, InvalidTopology, LinkGraph, devices_of, mask_of
from hybrid.topology.link_class import MINIMUM_GBPS
from hybrid.topology.slots import Choice, SlotTable, slot_table

Matrix = tuple[tuple[float, ...], ...]


class PartedSlots:
    """Answers as a :class:`SlotTable` does; those without links come first for a single device, so
    that no linked pair is broken for a job that one instance would have served."""

    def __init__(self, gbps: Matrix, numa: tuple[int, ...], models: tuple[str, ...]) -> None:
        _check(gbps)
        self.gbps = gbps
        self._linked = [i for i, row in enumerate(gbps) if any(row)]
        graph = LinkGraph.of_matrix(
            tuple(tuple(gbps[i][j] for j in self._linked) for i in self._linked),
            numa=[numa[i] for i in self._linked],
            models=[models[i] for i in self._linked],
        )
        self._table = slot_table(graph)
        self._loose = mask_of(i for i in range(len(gbps)) if i not in self._linked)

    def choose(
        self,
        free_mask: int,
        count: int,
        *,
        min_gbps: float = 0.0,
        link: LinkClass = LinkClass.ANY,
    ) -> Choice | None:
        """The best ``count`` of the free devices, or None when they do not reach the minimum."""
        loose = free_mask & self._loose
        if count == 1 and loose:
            first = loose & -loose
            return Choice(first, devices_of(first), math.inf)
        inside = self._inside(free_mask)
        found = self._table.choose(inside, count, min_gbps=min_gbps, link=link)
        if found is not None:
            mask = mask_of(self._linked[i] for i in found.devices)
            return Choice(mask, devices_of(mask), found.bottleneck_gbps)
        if free_mask.bit_count() < count or max(min_gbps, MINIMUM_GBPS[link]) > 0:
            return None
        mask = mask_of(devices_of(free_mask)[:count])
        return Choice(mask, devices_of(mask), 0.0)

    def bottleneck_gbps(self, mask: int, link: LinkClass = LinkClass.ANY) -> float:
        """The usable bottleneck of exactly these devices, GB/s; infinite for one."""
        if mask.bit_count() == 1:
            return math.inf
        if mask & self._loose:
            return 0.0
        return self._table.bottleneck_gbps(self._inside(mask), link)

    def best_gbps(self, free_mask: int, count: int, link: LinkClass = LinkClass.ANY) -> float:
        """The widest usable bottleneck of any ``count`` of the free devices; -1 for fewer."""
        found = self.choose(free_mask, count, link=link)
        return -1.0 if found is None else found.bottleneck_gbps

    def ring_order(self, mask: int) -> tuple[int, ...]:
        """The devices in rank order."""
        if mask & self._loose:
            return devices_of(mask)
        return tuple(self._linked[i] for i in self._table.ring_order(self._inside(mask)))

    def _inside(self, mask: int) -> int:
        return mask_of(k for k, i in enumerate(self._linked) if mask >> i & 1)


Slots = SlotTable | PartedSlots


@lru_cache(maxsize=512)
def slots_of(gbps: Matrix, numa: tuple[int, ...], models: tuple[str, ...]) -> Slots:
    """The slots of a machine. Raises InvalidTopology for links that cannot be a machine's."""
    if len(gbps) <= MAX_DEVICES:
        return slot_table(LinkGraph.of_matrix(gbps, numa=numa, models=models))
    return PartedSlots(gbps, numa, models)


def check_links(gbps: Matrix, models: tuple[str, ...]) -> None:
    """Raises InvalidTopology, naming the pair by position, for links that cannot be a machine's."""
    if len(gbps) <= MAX_DEVICES:
        LinkGraph.of_matrix(gbps, models=models)
    else:
        _check(gbps)


def _check(gbps: Matrix) -> None:
    """What a graph checks of itself, of more devices."""
    count = len(gbps)
    for i, row in enumerate(gbps):
        if len(row) != count:
            raise InvalidTopology(f"{len(row)} links of {count} devices", (i, len(row)))
        for j, value in enumerate(row):
            if not math.isfinite(value) or value < 0:
                raise InvalidTopology(f"{value} is not a bandwidth", (i, j))
            back = gbps[j][i] if i < len(gbps[j]) else math.nan
            if value != back:
                raise InvalidTopology(f"{value} GB/s one way and {back} back", (i, j))
    linked = sum(any(row) for row in gbps)
    if linked > MAX_DEVICES:
        raise InvalidTopology(f"{linked} linked devices; a machine has at most {MAX_DEVICES}")
