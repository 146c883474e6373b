"""A first estimate of what others gain when a job leaves a long queue: the time it sets free is
shared by all that start after it in the same pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybrid.domain.ids import PoolName
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.schedule import Schedule
from hybrid.planning.workspace import Workspace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Relief:
    """The estimate for one pass, in micro-dollars."""

    def __init__(self, ws: Workspace, schedule: Schedule, waiting: Sequence[Waiting]) -> None:
        self._now = ws.now
        gpus: dict[PoolName, int] = {}
        for view in ws.nodes:
            if not view.type.held:
                count = view.type.shape.healthy.bit_count()
                gpus[view.type.pool] = gpus.get(view.type.pool, 0) + count
        self._gpus = gpus
        self._leads = schedule.starts.led_by
        self._behind = self._totals(schedule, waiting)

    def of(self, start: Start) -> float:
        """What those behind a start save."""
        if start.at <= self._now or start.type.pool not in self._behind:
            return 0.0
        times, values = self._behind[start.type.pool]
        # those that start strictly later
        count = int(times.searchsorted(-start.at))
        return float(values[count]) * self._freed_s(start)

    def of_followers(self, leads: Ints, at: Floats) -> Floats:
        """The same for starts at these instants that follow these leads."""
        pools = [lead.start.type.pool for lead in self._leads]
        freed_s = np.array([self._freed_s(lead.start) for lead in self._leads])
        saved = np.zeros(len(at))
        for pool, (times, values) in self._behind.items():
            here = np.array([name == pool for name in pools])[leads]
            saved[here] = values[times.searchsorted(-at[here])] * freed_s[leads[here]]
        return saved

    def _freed_s(self, start: Start) -> float:
        """The time that it sets free, in seconds of the whole pool."""
        gpus = self._gpus.get(start.type.pool)
        if not gpus:
            return 0.0
        devices = sum(mask.bit_count() for mask in start.masks) * start.share
        return devices * start.run.mean_s / gpus

    def _totals(
        self, schedule: Schedule, waiting: Sequence[Waiting]
    ) -> dict[PoolName, tuple[Floats, Floats]]:
        """By pool: the instants of all later starts, negated and so from the last to the first,
        and before each of them what a second is worth to all up to there."""
        starts = schedule.starts
        instants: dict[PoolName, list[float]] = {}
        values: dict[PoolName, list[float]] = {}
        for job in waiting:
            start = starts.found.get(job.job_id)
            if start is not None and start.at > self._now:
                instants.setdefault(start.type.pool, []).append(start.at)
                values.setdefault(start.type.pool, []).append(job.cls.value_per_s)
        leads = np.array(starts.leads, dtype=np.int64)
        pools = [lead.start.type.pool for lead in self._leads]
        at_of = np.array([lead.start.at for lead in self._leads])
        value_of = np.array([lead.cls.value_per_s for lead in self._leads])
        delays_s = np.array(starts.delays_s)
        found = {}
        for pool in sorted({*instants, *pools}):
            at, value = np.array(instants.get(pool, [])), np.array(values.get(pool, []))
            if len(leads):
                here = np.flatnonzero(np.array([name == pool for name in pools])[leads])
                at = np.concatenate((at, at_of[leads[here]] + delays_s[here]))
                value = np.concatenate((value, value_of[leads[here]]))
            order = np.lexsort((value, at))[::-1]
            found[pool] = -at[order], np.concatenate(([0.0], np.cumsum(value[order])))
        return found
