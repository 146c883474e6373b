"""The definitions of slot choice, by trying everything: slow, sharing nothing with the tables."""

from __future__ import annotations

import itertools
import math

from hybrid.topology import LinkGraph, devices_of


def ring_bottleneck(gbps: tuple[tuple[float, ...], ...], members: tuple[int, ...]) -> float:
    """Over every order of the members in a ring, the best slowest link."""
    if len(members) < 2:
        return math.inf
    first, *others = members
    return max(
        min(gbps[a][b] for a, b in zip((first, *order), (*order, first), strict=True))
        for order in itertools.permutations(others)
    )


def nvlink_only(graph: LinkGraph) -> tuple[tuple[float, ...], ...]:
    n = range(graph.count)
    return tuple(tuple(graph.gbps[i][j] if graph.is_nvlink(i, j) else 0.0 for j in n) for i in n)


class Oracle:
    """Answers about one graph, remembered per set."""

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph
        self.fast = nvlink_only(graph)
        self._rings: dict[tuple[bool, int], float] = {}

    def ring(self, mask: int, *, nvlink: bool = False) -> float:
        key = (nvlink, mask)
        if key not in self._rings:
            matrix = self.fast if nvlink else self.graph.gbps
            self._rings[key] = ring_bottleneck(matrix, devices_of(mask))
        return self._rings[key]

    def remainder(self, mask: int) -> list[tuple[int, int]]:
        """(largest group, pairs) per bandwidth: NVLink's, then all, slowest first."""
        worth = []
        for nvlink, matrix in ((True, self.fast), (False, self.graph.gbps)):
            levels = {v for row in matrix for v in row if v > 0}
            for level in sorted(levels):
                subsets = [s for s in submasks(mask) if self.ring(s, nvlink=nvlink) >= level]
                largest = max((s.bit_count() for s in subsets), default=0)
                pairs = sum(
                    matrix[a][b] >= level for a, b in itertools.combinations(devices_of(mask), 2)
                )
                worth.append((largest, pairs))
        return worth

    def choose(self, free: int, count: int, *, nvlink: bool = False) -> int | None:
        """The mask of the best set."""
        sets = [s for s in submasks(free) if s.bit_count() == count]
        if not sets:
            return None

        def merit(mask: int) -> tuple[object, ...]:
            numa = {self.graph.numa[i] for i in devices_of(mask)}
            low_ids = tuple(-i for i in devices_of(mask))
            return (
                self.ring(mask, nvlink=nvlink),
                self.remainder(free & ~mask),
                -len(numa),
                low_ids,
            )

        return max(sets, key=merit)


def submasks(mask: int) -> list[int]:
    """Every subset of a mask that is not empty."""
    found, sub = [], mask
    while sub:
        found.append(sub)
        sub = (sub - 1) & mask
    return found
