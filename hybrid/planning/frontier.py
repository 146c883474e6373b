"""Nodes in order of when they could start something next: the index that keeps backfill from
looking at every node for every job.

A frontier serves all classes that take as many devices of the same types for about as long. It
keeps a lower bound per node, brought up to date only when the node comes to the top: in one pass
what is free only shrinks, so an old bound is still a bound.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence

from hybrid.planning.timeline import Timeline

EDGES_S = (0.0, 900.0, 3600.0, 14_400.0)
"""Durations from which on a job shares a frontier: one of two hours is not shown holes of one."""


def edge_index(duration_s: float) -> int:
    """Which of the edges holds for a duration."""
    return bisect_right(EDGES_S, duration_s) - 1


class Frontier:
    """The nodes of some types, by a lower bound of when ``count`` of the ``allowed`` devices are
    free together for the edge's duration. ``versions`` counts the changes of each node."""

    __slots__ = ("_allowed", "_count", "_edge_s", "_heap", "_lines", "_versions")

    def __init__(
        self,
        lines: Sequence[Timeline],
        versions: Sequence[int],
        first_free: Sequence[tuple[float, int]],
        allowed: int,
        count: int,
        edge_s: float,
    ) -> None:
        self._lines = lines
        self._versions = versions
        self._allowed = allowed
        self._count = count
        self._edge_s = edge_s
        # sorted already, and so a heap
        self._heap = [(at, node, 0) for at, node in first_free]

    def soonest(self) -> float:
        """The lower bound of the first node; infinite when there is none."""
        heap = self._heap
        while heap:
            at, node, version = heap[0]
            now = self._versions[node]
            if version == now:
                return at
            spot = self._lines[node].earliest(
                at, self._edge_s, self._allowed, self._count, -math.inf, -math.inf
            )
            if spot is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (spot[0], node, now))
        return math.inf

    def pop(self) -> tuple[float, int]:
        """Take the first node out, with its bound. Call after ``soonest`` was finite."""
        at, node, _ = heapq.heappop(self._heap)
        return at, node

    def push(self, at: float, node: int) -> None:
        """Put a node back with its bound."""
        heapq.heappush(self._heap, (at, node, self._versions[node]))
