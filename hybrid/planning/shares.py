"""Shares of one device: on the device where what stays free is of most use to others.

Among devices that cost the same, a share goes where the expected unusable GPU of its node grows
least under the demand mix of now (``hybrid.topology.fragmentation``), beside other shares or on a
device of its own; of equal ones where the room is tightest. A share that has to wait does so for
the first room that other shares leave it, or for a device of its own.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hybrid.estimation.waits import Duration
from hybrid.planning.choices import Choice, Start, Waiting
from hybrid.planning.demand import Demand
from hybrid.planning.rooms import (
    SLACK,
    Hold,
    ending,
    first_room,
    least_free,
    next_change,
    uncovered,
)
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from hybrid.topology import Fragmentation

if TYPE_CHECKING:
    from hybrid.planning.schedule import ChoiceState, Schedule

_Hope = tuple[float, int, int, int, float]
"""What a start on a part of a device costs at best; the node, the device, the choice's position;
and when that would be."""


@dataclass(slots=True)
class _Hopes:
    """What a class may hope for: a heap, how many of the devices were looked at for it, and the
    positions of the choices that it has on each owned node."""

    choices: dict[int, list[int]]
    heap: list[_Hope] = field(default_factory=list)
    seen: int = 0


class Shares:
    """Devices held in shares, in one pass: how much of each is free, and what holds it."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._now = ws.now
        self._free: dict[int, dict[int, float]] = {
            view.index: dict(view.shared) for view in ws.nodes if view.shared
        }
        self._holds: dict[tuple[int, int], Sequence[Hold]] = {**ws.shared_holds}
        self._devices = list(self._holds)
        """In the order in which they came to be held in shares."""
        self._hopes: dict[int, _Hopes] = {}
        """By class."""
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

    def later(
        self, schedule: Schedule, job: Waiting, states: Sequence[ChoiceState], limit: float
    ) -> Start | None:
        """The cheapest start on a part of an owned device of which others hold shares, once enough
        of these have ended, below ``limit`` (micro-dollars).

        Hot: what is held only grows in one pass, so what a device costs at best stays true, and
        only those are looked at again that could be the best.
        """
        hopes = self._hopes_of(job, states)
        best: _Hope | None = None
        tried = []
        while hopes and hopes[0][0] < limit:
            _, node, device, index, after = heapq.heappop(hopes)
            choice = states[index].choice
            at = self._soonest(schedule, job, choice, (node, device), after)
            if at is None:
                continue
            micros = choice.base_micros + job.cls.value_per_s * (at - self._now)
            hope = (micros, node, device, index, at)
            tried.append(hope)
            if micros < limit:
                best, limit = hope, micros
        for hope in tried:
            heapq.heappush(hopes, hope)
        if best is None:
            return None
        _, node, device, index, at = best
        behind = ending(self._holds[node, device], at)
        sd_s = math.sqrt(behind.variance) if behind is not None else 0.0
        return self._start_at(job, states[index].choice, (node, device), at, sd_s)

    def take(self, line: Timeline, node: int, mask: int, start: Start, variance: float) -> None:
        """Hold the share; the device stays closed to whole jobs until its last share ends."""
        device = mask.bit_length() - 1
        end = start.at + start.run.mean_s
        holds = self._holds.get((node, device), ())
        for begins, ends in uncovered(holds, start.at, end):
            line.hold(begins, ends, mask, 0.0, 0.0, variance=variance)
        if not holds:
            self._devices.append((node, device))
        self._holds[node, device] = (*holds, Hold(start.at, end, start.share, variance))
        if start.at <= self._now:
            rooms = self._free.setdefault(node, {})
            rooms[device] = rooms.get(device, 1.0) - start.share

    def _hopes_of(self, job: Waiting, states: Sequence[ChoiceState]) -> list[_Hope]:
        """What the job's class may hope for on the devices that are held in shares: a heap."""
        hopes = self._hopes.get(job.cls.index)
        if hopes is None:
            hopes = self._hopes[job.cls.index] = _Hopes({})
            for index, state in enumerate(states):
                # held machines are taken now, never waited for
                for node in () if state.choice.held else state.choice.members:
                    hopes.choices.setdefault(node, []).append(index)
        for node, device in self._devices[hopes.seen :]:
            for index in hopes.choices.get(node, ()):
                choice = states[index].choice
                if choice.fit.allowed >> device & 1:
                    at = first_room(self._holds[node, device], choice.fit.share, self._now)
                    micros = choice.base_micros + job.cls.value_per_s * (at - self._now)
                    heapq.heappush(hopes.heap, (micros, node, device, index, at))
        hopes.seen = len(self._devices)
        return hopes.heap

    def _soonest(
        self, schedule: Schedule, job: Waiting, choice: Choice, place: tuple[int, int], after: float
    ) -> float | None:
        """The first instant from ``after`` on at which a part of a device (its node, its position)
        is free for the whole run; None where there is none, ever."""
        node, device = place
        need, run_s, line = job.cls.need, choice.run.mean_s, schedule.lines[node]
        holds = self._holds[place]
        at = after
        while True:
            spot = line.earliest(at, run_s, 0, 0, need.cpus, need.host_memory_gib)
            if spot is None:
                return None
            at = spot[0]
            enough = least_free(holds, at, at + run_s) + SLACK >= choice.fit.share
            if enough and self._alone(line, holds, device, at, at + run_s):
                return at
            changes = (next_change(holds, at), line.next_change(at))
            at = min((change for change in changes if change is not None), default=math.inf)
            if at == math.inf:
                return None

    def _alone(
        self, line: Timeline, holds: Sequence[Hold], device: int, start: float, end: float
    ) -> bool:
        """Whether nobody is to have the device whole between two instants."""
        for begins, ends in uncovered(holds, start, end):
            free = line.free_throughout(begins, ends - begins, 0.0, 0.0)
            if free is None or not free >> device & 1:
                return False
        return True

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
        line, run_s = schedule.lines[node], choice.run.mean_s
        if line.free_throughout(self._now, run_s, need.cpus, need.host_memory_gib) is None:
            return None
        end = self._now + run_s
        holds = self._holds.get((node, device), ())
        if least_free(holds, self._now, end) + SLACK < choice.fit.share:
            return None
        if not self._alone(line, holds, device, self._now, end):
            return None
        return self._start_at(job, choice, (node, device), self._now)

    def _start_at(
        self, job: Waiting, choice: Choice, place: tuple[int, int], at: float, sd_s: float = 0.0
    ) -> Start:
        node, device = place
        wait = Duration(at - self._now, sd_s)
        micros = choice.base_micros + job.cls.value_per_s * wait.mean_s
        return Start(
            job.job_id, at, wait, choice.run, (node,), (1 << device,),
            choice.fit.model, choice.speed, micros, self._ws.nodes[node].type, choice.fit.share,
        )  # fmt: skip
