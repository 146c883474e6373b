"""Shares of one device: packed beside other shares where there is room, the tightest room first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid.estimation.waits import Duration
from hybrid.planning.choices import Choice, Start, Waiting
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace

if TYPE_CHECKING:
    from hybrid.planning.schedule import ChoiceState, Schedule

_SLACK = 1e-9


class Shares:
    """Devices held in shares, in one pass: how much of each is free, and until when it is held."""

    def __init__(self, ws: Workspace) -> None:
        self._now = ws.now
        self._free: dict[int, dict[int, float]] = {
            view.index: dict(view.shared) for view in ws.nodes if view.shared
        }
        self._until = dict(ws.shared_until)

    def find(self, schedule: Schedule, job: Waiting, states: Sequence[ChoiceState]) -> Start | None:
        """A start now beside other shares, on the device with the least room that suffices."""
        if job.ready_at > self._now:
            return None
        wanted = job.cls.need.share
        for state in states:
            choice = state.choice
            best: tuple[tuple[float, int, int], Start] | None = None
            for node in choice.members:
                for device, free in self._free.get(node, {}).items():
                    if not choice.fit.allowed >> device & 1 or free + _SLACK < wanted:
                        continue
                    key = (free - wanted, node, device)
                    if best is not None and key >= best[0]:
                        continue
                    start = self._start(schedule, job, choice, node, device)
                    if start is not None:
                        best = (key, start)
            if best is not None:
                return best[1]
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

    def _start(
        self, schedule: Schedule, job: Waiting, choice: Choice, node: int, device: int
    ) -> Start | None:
        if not schedule.open_to(job, node):
            return None
        need = job.cls.need
        line = schedule.lines[node]
        run_s = choice.run.mean_s
        if line.free_throughout(self._now, run_s, need.cpus, need.host_memory_gib) is None:
            return None
        end, until = self._now + run_s, self._until.get((node, device), self._now)
        if end > until:
            free = line.free_throughout(until, end - until, 0.0, 0.0)
            if free is None or not free >> device & 1:
                return None
        type_ = schedule.ws.nodes[node].type
        return Start(
            job.job_id, self._now, Duration(0.0), choice.run, (node,), (1 << device,),
            choice.fit.model, choice.speed, choice.base_micros, type_, need.share,
        )  # fmt: skip
