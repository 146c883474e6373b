"""The demand mix of one plan, and the fragmentation of the nodes under it: for placing shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hybrid.planning.classes import JobClass
from hybrid.planning.nodes import NodeView
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from hybrid.topology import DemandClass, Fragmentation

WHOLE_MILLI = 1000


class Demand:
    """Jobs that wait or run, grouped by what they ask of a node, each group weighted by its jobs;
    and what is free now, before the plan has placed anything."""

    def __init__(self, ws: Workspace, lines: list[Timeline]) -> None:
        self._ws = ws
        self._devices = max((len(view.node.gpus) for view in ws.nodes), default=0)
        # nodes of one set of models are one model here: a class fits all of them, or none
        kinds: dict[tuple[tuple[str, ...], int], int] = {}
        shapes = [view.type.shape for view in ws.nodes]
        self._kind = [kinds.setdefault((s.models, s.replicas), len(kinds)) for s in shapes]
        self._types: dict[int, set[int]] = {}
        for view, kind in zip(ws.nodes, self._kind, strict=True):
            self._types.setdefault(kind, set()).add(view.type.index)
        self._position: dict[tuple[int, int], int] = {}
        self.classes = tuple(self._grouped())
        self.fragmentation = Fragmentation(
            self.classes,
            np.array([self.free_milli(v, lines[v.index], v.shared) for v in ws.nodes], np.int64),
            np.array([max(lines[v.index].cpus[0], 0.0) for v in ws.nodes]),
            np.array([max(lines[v.index].memory[0], 0.0) for v in ws.nodes]),
            np.array(self._kind, np.int64),
        )

    def position(self, cls: JobClass, share: float) -> int:
        """Where a class stands in the mix with what it takes of a device."""
        return self._position[cls.index, _milli(share)]

    def free_milli(
        self, view: NodeView, line: Timeline, rooms: dict[int, float]
    ) -> NDArray[np.int64]:
        """Thousandths of each device that are free now; those of MIG instances are none of this."""
        free: NDArray[np.int64] = np.zeros(self._devices, dtype=np.int64)
        mig = view.type.shape.mig
        for device in range(len(view.node.gpus)):
            if mig >> device & 1:
                continue
            if device in rooms:
                free[device] = min(max(round(rooms[device] * WHOLE_MILLI), 0), WHOLE_MILLI)
            elif line.masks[0] >> device & 1:
                free[device] = WHOLE_MILLI
        return free

    def _grouped(self) -> list[DemandClass]:
        ws = self._ws
        counts = Counter(ws.classes.of(job).index for _, job in sorted(ws.snapshot.jobs.items()))
        groups: dict[DemandClass, int] = {}
        weights: list[float] = []
        for cls in ws.classes.all:
            count = counts.get(cls.index, 0)
            if cls.need.mig_profile is not None:
                continue
            for asks in self._asks(cls):
                at = groups.setdefault(asks, len(groups))
                self._position[cls.index, asks.share_milli] = at
                if at == len(weights):
                    weights.append(0.0)
                weights[at] += count * cls.nodes
        return [replace(c, weight=w) for c, w in zip(groups, weights, strict=True)]

    def _asks(self, cls: JobClass) -> Iterator[DemandClass]:
        """One for each share of a device: a slice of memory is more of a small one."""
        need, ws = cls.need, self._ws
        fitting: dict[int, set[int]] = {}
        for kind, types in self._types.items():
            for index in types:
                found = ws.fits_of(cls, ws.types[index])
                for fit in found if isinstance(found, tuple) else ():
                    fitting.setdefault(_milli(fit.share), set()).add(kind)
        for milli, kinds in sorted(fitting.items()) or [(_milli(need.share), set())]:
            yield DemandClass(
                gpus=need.gpus,
                share_milli=milli,
                cpus=need.cpus,
                memory_gib=need.host_memory_gib,
                models=frozenset(kinds),
            )


def _milli(share: float) -> int:
    return max(round(share * WHOLE_MILLI), 1)
