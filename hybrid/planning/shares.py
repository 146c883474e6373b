"""Shares of one device: on the device where what stays free is of most use to others.

Among devices that cost the same, a share goes where the expected unusable GPU of its node grows
least under the demand mix of now (``hybrid.topology.fragmentation``), beside other shares or on a
device of its own; of equal ones where the room is tightest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hybrid.estimation.waits import Duration
from hybrid.planning.choices import Choice, Start, Waiting
from hybrid.planning.demand import Demand
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from hybrid.topology import Fragmentation

if TYPE_CHECKING:
    from hybrid.planning.schedule import ChoiceState, Schedule

_SLACK = 1e-9


class Shares:
    """Devices held in shares, in one pass: how much of each is free, and until when it is held."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._now = ws.now
        self._free: dict[int, dict[int, float]] = {
            view.index: dict(view.shared) for view in ws.nodes if view.shared
        }
        self._until = dict(ws.shared_until)
        self._demand: Demand | None = None
        self._fragmentation: Fragmentation | None = None
        self.changed: set[int] = set()
        """Nodes that hold more than the fragmentation has been told of."""

    def find(self, schedule: Schedule, job: Waiting, states: Sequence[ChoiceState]) -> Start | None:
        """A start now on a part of a device: on the cheapest choice, the device of the best score
        that will do."""
        if job.ready_at > self._now:
            return None
        # choices of one cost are one: the score tells their nodes apart
        choices = (s.choice for s in states)
        for (_, share), alike in groupby(choices, key=lambda c: (c.base_micros, c.fit.share)):
            choice_of = {node: choice for choice in alike for node in choice.members}
            for node, device in self._best_first(schedule, job, choice_of, share):
                start = self._start(schedule, job, choice_of[node], node, device)
                if start is not None:
                    return start
        return None

    def take(self, line: Timeline, node: int, mask: int, start: Start, variance: float) -> None:
        """Hold the share; the device stays closed to whole jobs until its last share ends."""
        device = mask.bit_length() - 1
        end = start.at + start.run.mean_s
        until = self._until.get((node, device))
        if start.at > self._now or device not in self._free.get(node, {}):
            line.hold(start.at, end, mask, 0.0, 0.0, variance=variance)
        elif until is not None and end > until:
            line.hold(until, end, mask, 0.0, 0.0, variance=variance)
        if start.at <= self._now:
            rooms = self._free.setdefault(node, {})
            rooms[device] = rooms.get(device, 1.0) - start.share
            self._until[node, device] = max(until or 0.0, end)

    def _best_first(
        self, schedule: Schedule, job: Waiting, choice_of: Mapping[int, Choice], share: float
    ) -> Iterator[tuple[int, int]]:
        """Nodes with room for the share, and a device of each, best first."""
        demand, fragmentation = self._told(schedule)
        position = demand.position(job.cls, share)
        members = np.array(sorted(choice_of), dtype=np.int64)
        for node in fragmentation.order(position, members).tolist():
            growth = fragmentation.growths(position, node)
            rooms, allowed = self._free.get(node, {}), choice_of[node].fit.allowed
            devices = [
                (round(grown, 9), rooms.get(device, 1.0), device)
                for first, grown in growth.items()
                for device in self._equals(schedule, node, first)
                if allowed >> device & 1
            ]
            for _, _, device in sorted(devices):
                yield node, device

    def _equals(self, schedule: Schedule, node: int, first: int) -> Iterator[int]:
        """The devices of a node that are as free as its first such one."""
        view = self._ws.nodes[node]
        assert self._demand is not None
        free = self._demand.free_milli(view, schedule.lines[node], self._free.get(node, {}))
        yield from np.flatnonzero(free == free[first]).tolist()

    def _told(self, schedule: Schedule) -> tuple[Demand, Fragmentation]:
        """The fragmentation as it is after what this pass has placed."""
        if self._demand is None or self._fragmentation is None:
            self._demand = schedule.choices.demand()
            self._fragmentation = self._demand.fragmentation.copy()
        for node in sorted(self.changed):
            view, line = self._ws.nodes[node], schedule.lines[node]
            free = self._demand.free_milli(view, line, self._free.get(node, {}))
            cpus, memory = max(line.cpus[0], 0.0), max(line.memory[0], 0.0)
            self._fragmentation.set_node(node, free, cpus, memory)
        self.changed.clear()
        return self._demand, self._fragmentation

    def _start(
        self, schedule: Schedule, job: Waiting, choice: Choice, node: int, device: int
    ) -> Start | None:
        if not schedule.open_to(job, node):
            return None
        need = job.cls.need
        room = self._free.get(node, {}).get(device)
        if room is not None and room + _SLACK < choice.fit.share:
            return None
        line = schedule.lines[node]
        run_s = choice.run.mean_s
        free = line.free_throughout(self._now, run_s, need.cpus, need.host_memory_gib)
        if free is None or (room is None and not free >> device & 1):
            return None
        end, until = self._now + run_s, self._until.get((node, device), self._now)
        if room is not None and end > until:
            free = line.free_throughout(until, end - until, 0.0, 0.0)
            if free is None or not free >> device & 1:
                return None
        type_ = schedule.ws.nodes[node].type
        return Start(
            job.job_id, self._now, Duration(0.0), choice.run, (node,), (1 << device,),
            choice.fit.model, choice.speed, choice.base_micros, type_, choice.fit.share,
        )  # fmt: skip
