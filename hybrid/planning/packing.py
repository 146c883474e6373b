"""Which node to fill next among those that are free now and equally good for a job.

Fragmentation first: a choice is scored by the bandwidth it cuts, the sum of the links between the
devices taken and the free ones left behind. A single-GPU job so takes the odd device of a broken
NVLink pair before it breaks another pair, and a small node before a large one; of MIG instances the
one whose use leaves most of its GPU to the jobs there are. Then fullest node first, then by id.
When the policy spreads, jobs of whole GPUs go where most stay free before all else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from hybrid.domain.job_spec import LinkClass
from hybrid.planning.choices import Choice
from hybrid.planning.fit import Fit, Shape
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from hybrid.topology import devices_of
from policies.sections import Spread

Score = tuple[float, float]
_Key = tuple[int, int, int, LinkClass]


@dataclass(slots=True)
class _Heap:
    entries: list[tuple[Score, int]] = field(default_factory=list)
    seen: int = 0
    """How far in the log of changes this heap has been brought up to date."""


class Packing:
    """Nodes in the order in which to fill them, per type, devices allowed, count and link class.

    Heaps are lazy: an entry counts only while its score is still the node's.
    """

    def __init__(self, ws: Workspace, lines: list[Timeline]) -> None:
        self._ws = ws
        self._lines = lines
        self._spread = ws.policy.placement.strategy is Spread.SPREAD
        self._heaps: dict[_Key, _Heap] = {}
        self._log: dict[int, list[int]] = {}
        self._scores = ws.scores

    def changed(self, type_index: int, node: int) -> None:
        """A node of a type holds more than before."""
        self._log.setdefault(type_index, []).append(node)

    def best_first(
        self, choice: Choice, count: int, link: LinkClass
    ) -> Iterator[tuple[Score, int]]:
        """Nodes of a choice that have ``count`` devices free now, best first.

        What the iterator yields stays in the heap.
        """
        type_index, fit = choice.types[0].index, choice.fit
        key = (type_index, fit.allowed, count, link)
        heap = self._heaps.get(key)
        log = self._log.get(type_index, [])
        if heap is None:
            heap = self._heaps[key] = _Heap()
            for node in self._ws.members[type_index]:
                score = self._score(node, fit, count, link)
                if score is not None:
                    heap.entries.append((score, node))
            heapq.heapify(heap.entries)
        else:
            for node in log[heap.seen :]:
                score = self._score(node, fit, count, link)
                if score is not None:
                    heapq.heappush(heap.entries, (score, node))
        heap.seen = len(log)
        aside = []
        wanted = None  # hot: all of the type's nodes, but for jobs that avoid some
        if len(choice.members) < len(self._ws.members[type_index]):
            wanted = frozenset(choice.members)
        last = None
        try:
            while heap.entries:
                entry = heapq.heappop(heap.entries)
                if entry == last or self._score(entry[1], fit, count, link) != entry[0]:
                    continue
                last = entry
                aside.append(entry)
                if wanted is None or entry[1] in wanted:
                    yield entry
        finally:
            for entry in aside:
                heapq.heappush(heap.entries, entry)

    def _score(self, node: int, fit: Fit, count: int, link: LinkClass) -> Score | None:
        line = self._lines[node]
        if count == 0:
            # CPU jobs: nodes without devices first, then the fullest
            devices = float(self._shape(node).healthy.bit_count())
            return devices, -line.cpus[0] if self._spread else line.cpus[0]
        free = line.masks[0]
        shape = self._shape(node)
        if shape.mig & fit.allowed:
            return self._judge_instances(shape, free, fit)
        key = (id(shape), free & fit.allowed, count, link)
        found = self._scores.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._scores[key] = self._judge(shape, free, fit, count, link)
        return found

    def _judge_instances(self, shape: Shape, free: int, fit: Fit) -> Score | None:
        found = self._ws.instances.best(shape, fit.allowed, free)
        if found is None:
            return None
        return found.growth, float(-found.left if self._spread else found.left)

    def _shape(self, node: int) -> Shape:
        return self._ws.nodes[node].type.shape

    def _judge(
        self, shape: Shape, free: int, fit: Fit, count: int, link: LinkClass
    ) -> Score | None:
        if (free & fit.allowed).bit_count() < count:
            return None
        choice = shape.table.choose(free & fit.allowed, count, link=link)
        if choice is None:
            return None
        rest = free & ~choice.mask
        gbps = shape.table.gbps
        cut = sum(gbps[i][j] for i in choice.devices for j in devices_of(rest))
        left = float(rest.bit_count())
        return (-left, cut) if self._spread else (cut, left)


_UNKNOWN: tuple[float, float] = (float("nan"), float("nan"))
