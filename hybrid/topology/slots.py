"""Which GPUs of a machine to give to a job, as a look-up.

For a set of free GPUs and a number wanted, of all sets of that size the one is chosen that, in
this order,

1. has the widest usable bottleneck (``rings``) up to what the job can use,
2. leaves the best *remainder*, defined below,
3. touches the fewest NUMA nodes,
4. has the smallest sum of health and heat penalties,
5. has the lowest device numbers.

**Remainder.** Take the bandwidths that occur in the machine, NVLink ones first, then all, each
from the slowest up. At each, a remainder is worth (the size of the largest set in it whose usable
bottleneck reaches that bandwidth, the number of its pairs that do); remainders compare by these
pairs in that order. So the largest group that could still run together on NVLink stays whole, then
as many of its pairs as possible, then the same for faster links, then for PCIe. (From the fastest
down, one more double link would count for more than a whole quad of a cube mesh.) Taking a GPU none
of whose free neighbours is on NVLink changes nothing at any NVLink bandwidth, and breaking a pair
lowers a number there: a single-GPU job never breaks an NVLink pair while a broken one is free.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybrid.domain.job_spec import LinkClass
from hybrid.topology.graph import LinkGraph, devices_of
from hybrid.topology.link_class import MINIMUM_GBPS
from hybrid.topology.rings import Floats, Ints, popcounts, ring_bottlenecks, ring_order

FULL_TABLE_DEVICES = 8
"""Up to this many devices the whole table is computed at once (3^8 pairs of a free set and a part
of it); above it each question is computed when first asked."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPUs chosen. ``devices`` is ``mask`` spelled out, lowest first; ``bottleneck_gbps`` is
    infinite for one GPU."""

    mask: int
    devices: tuple[int, ...]
    bottleneck_gbps: float


class SlotTable:
    """All answers for one link graph; get it with ``slot_table``."""

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph
        self._count = graph.count
        self._weights: Floats = np.array(graph.gbps, dtype=np.float64).reshape(
            self._count, self._count
        )
        on_nvlink = np.array(
            [[graph.is_nvlink(i, j) for j in range(self._count)] for i in range(self._count)],
            dtype=bool,
        ).reshape(self._count, self._count)
        self._nvlink_weights: Floats = np.where(on_nvlink, self._weights, 0.0)
        self._size = popcounts(self._count)
        self._masks = np.arange(1 << self._count, dtype=np.int64)
        self._order_key = _order_keys(self._count)
        self._numa_nodes = self._count_numa_nodes()
        self._bottleneck = ring_bottlenecks(self._weights)
        # the same array where no link is NVLink would claim PCIe rings are: keep both
        self._nvlink_bottleneck = ring_bottlenecks(self._nvlink_weights)
        self._remainder_rank = self._rank_remainders()
        self._ties: dict[tuple[int, int, float, bool], tuple[Choice, ...]] = {}
        self._rings: dict[int, tuple[int, ...]] = {}
        if self._count <= FULL_TABLE_DEVICES:
            self._fill(math.inf, nvlink=False)

    @property
    def gbps(self) -> tuple[tuple[float, ...], ...]:
        """GB/s between any two devices."""
        return self.graph.gbps

    def choose(
        self,
        free_mask: int,
        count: int,
        *,
        min_gbps: float = 0.0,
        penalty: tuple[int, ...] | None = None,
        link: LinkClass = LinkClass.ANY,
        useful_gbps: float = math.inf,
    ) -> Choice | None:
        """The best ``count`` of the free GPUs, or None when no set of them reaches ``min_gbps``
        and the minimum of ``link``.

        ``penalty`` is one number per device, larger for warmer or less healthy. Bandwidth above
        ``useful_gbps`` counts as that: a job that cannot use more leaves the fast links to others.
        With ``LinkClass.NVLINK`` only NVLink counts. Raises ValueError for devices the machine
        does not have, a count below 1, or a penalty list of the wrong length.
        """
        if free_mask < 0 or free_mask >> self._count:
            raise ValueError(f"free mask {free_mask:#x} names devices beyond {self._count}")
        if count < 1:
            raise ValueError(f"a set of {count} GPUs")
        if penalty is not None and len(penalty) != self._count:
            raise ValueError(f"{len(penalty)} penalties for {self._count} devices")
        nvlink = link is LinkClass.NVLINK
        ties = self._equally_good(free_mask, count, useful_gbps, nvlink=nvlink)
        if not ties or ties[0].bottleneck_gbps < max(min_gbps, MINIMUM_GBPS[link]):
            return None
        if penalty is None or len(ties) == 1:
            return ties[0]
        # min keeps the first of equals, and the ties are in order of device numbers
        return min(ties, key=lambda choice: sum(penalty[i] for i in choice.devices))

    def bottleneck_gbps(self, mask: int, link: LinkClass = LinkClass.ANY) -> float:
        """The usable bottleneck of exactly these devices, GB/s; infinite for one."""
        table = self._nvlink_bottleneck if link is LinkClass.NVLINK else self._bottleneck
        return float(table[mask])

    def best_gbps(self, free_mask: int, count: int, link: LinkClass = LinkClass.ANY) -> float:
        """The widest usable bottleneck of any ``count`` of the free GPUs; -1 if there are fewer."""
        ties = self._equally_good(free_mask, count, math.inf, nvlink=link is LinkClass.NVLINK)
        return ties[0].bottleneck_gbps if ties else -1.0

    def ring_order(self, mask: int) -> tuple[int, ...]:
        """The devices of ``mask`` in rank order: neighbours in the best ring are neighbours in
        rank. Starts at the lowest device."""
        order = self._rings.get(mask)
        if order is None:
            order = self._rings[mask] = ring_order(self._weights, mask)
        return order

    def largest_clique(self, mask: int, min_gbps: float) -> int:
        """The mask of the largest subset of ``mask`` in which *every* pair has ``min_gbps``;
        of equally large ones that with the lowest device numbers. Empty for an empty mask."""
        wide = self._weights >= min_gbps
        neighbours = [_row_mask(wide[i], i) for i in range(self._count)]
        return _largest_clique(mask, neighbours)

    def largest_group(self, mask: int, min_gbps: float) -> int:
        """The mask of the largest subset of ``mask`` whose usable bottleneck reaches
        ``min_gbps``: what one job could still get. Ties as in ``largest_clique``."""
        inside = (self._masks & ~mask) == 0
        found = self._masks[inside & (self._bottleneck >= min_gbps)]
        best = np.lexsort((self._order_key[found], -self._size[found]))[0]
        return int(found[best])

    def remainder_rank(self, mask: int) -> int:
        """How good a set of free GPUs is to be left with: larger is better, comparable between
        sets of one size (see the module's text)."""
        return int(self._remainder_rank[mask])

    def _equally_good(
        self, free_mask: int, count: int, useful_gbps: float, *, nvlink: bool
    ) -> tuple[Choice, ...]:
        key = (free_mask, count, useful_gbps, nvlink)
        ties = self._ties.get(key)
        if ties is None:
            of_size = self._masks[self._size == count]
            chosen = of_size[(of_size & ~free_mask) == 0]
            self._rank(np.full(len(chosen), free_mask), chosen, useful_gbps, nvlink=nvlink)
            ties = self._ties.setdefault(key, ())
        return ties

    def _fill(self, useful_gbps: float, *, nvlink: bool) -> None:
        """Answer every question for this bandwidth limit in one go."""
        free, chosen = np.meshgrid(self._masks, self._masks, indexing="ij")
        parts = ((chosen & ~free) == 0) & (chosen > 0)
        self._rank(free[parts], chosen[parts], useful_gbps, nvlink=nvlink)

    def _rank(self, free: Ints, chosen: Ints, useful_gbps: float, *, nvlink: bool) -> None:
        """Sort all candidate sets and keep, for each question, those that share the first place
        up to penalties."""
        table = self._nvlink_bottleneck if nvlink else self._bottleneck
        size = self._size[chosen]
        width = np.minimum(table[chosen], useful_gbps)
        rest = self._remainder_rank[free & ~chosen]
        numa = self._numa_nodes[chosen]
        order = np.lexsort((self._order_key[chosen], numa, -rest, -width, size, free))
        columns = [column[order].tolist() for column in (free, size, width, rest, numa, chosen)]
        best: dict[tuple[int, int], tuple[float, int, int]] = {}
        found: dict[tuple[int, int], list[Choice]] = {}
        for f, s, w, r, n, c in zip(*columns, strict=True):
            if best.setdefault((f, s), (w, r, n)) == (w, r, n):
                choice = Choice(c, devices_of(c), float(table[c]))
                found.setdefault((f, s), []).append(choice)
        for (f, s), ties in found.items():
            self._ties[f, s, useful_gbps, nvlink] = tuple(ties)

    def _count_numa_nodes(self) -> Ints:
        nodes = np.zeros(1 << self._count, dtype=np.int64)
        for node in sorted(set(self.graph.numa)):
            members = sum(1 << i for i, at in enumerate(self.graph.numa) if at == node)
            nodes += (self._masks & members) != 0
        return nodes

    def _rank_remainders(self) -> Ints:
        rank = np.zeros(1 << self._count, dtype=np.int64)
        for weights, table in (
            (self._nvlink_weights, self._nvlink_bottleneck),
            (self._weights, self._bottleneck),
        ):
            for level in sorted({float(v) for v in weights.flat if v > 0}):
                rank = _refine(rank, self._largest_group_sizes(table, level))
                rank = _refine(rank, self._pair_counts(weights, level))
        return rank

    def _largest_group_sizes(self, table: Floats, level: float) -> Ints:
        """For every mask the size of its largest subset whose bottleneck reaches ``level``."""
        sizes = np.where(table >= level, self._size, 0)
        for device in range(self._count):
            halves = sizes.reshape(-1, 2, 1 << device)  # without, then with the device
            np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
        return sizes

    def _pair_counts(self, weights: Floats, level: float) -> Ints:
        """For every mask how many of its pairs reach ``level``."""
        pairs = np.zeros(1 << self._count, dtype=np.int64)
        for i in range(self._count):
            for j in range(i + 1, self._count):
                if weights[i, j] >= level:
                    pairs += (self._masks >> i) & (self._masks >> j) & 1
        return pairs


@functools.lru_cache(maxsize=256)
def slot_table(graph: LinkGraph) -> SlotTable:
    """The table of a graph, computed once per distinct graph."""
    return SlotTable(graph)


def _order_keys(count: int) -> Ints:
    """For every mask a number that is smaller for lower device numbers, among masks of one size:
    minus the mask read with device 0 as its highest bit."""
    masks = np.arange(1 << count, dtype=np.int64)
    keys = np.zeros_like(masks)
    for device in range(count):
        keys -= ((masks >> device) & 1) << (count - 1 - device)
    return keys


def _refine(rank: Ints, column: Ints) -> Ints:
    """Dense ranks of (rank, column) in lexicographic order."""
    combined = rank * (int(column.max(initial=0)) + 1) + column
    ranks: Ints = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return ranks


def _row_mask(wide: Sequence[bool], skip: int) -> int:
    return sum(1 << j for j, is_wide in enumerate(wide) if is_wide and j != skip)


def _largest_clique(candidates: int, neighbours: Sequence[int]) -> int:
    """Try the lowest candidate in, then out; cut when what is left cannot win."""
    best = 0

    def grow(clique: int, left: int) -> None:
        nonlocal best
        if clique.bit_count() + left.bit_count() <= best.bit_count():
            return
        if not left:
            best = clique
            return
        low = left & -left
        grow(clique | low, left & neighbours[low.bit_length() - 1])
        grow(clique, left ^ low)

    grow(0, candidates)
    return best
