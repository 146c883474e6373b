"""What is free on one node from now on: the profile that backfill fits jobs into.

A timeline is a list of segments; the last one lasts for ever. Each has the mask of the devices
that are wholly free, the CPU cores and the memory left, and the variance (s²) of the instant at
which it begins, which is how sure the end of whoever was there before is.
Hot: plain lists and integer masks, no objects per segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

_SLACK = 1e-9
"""Float dust in sums of cores and GiB."""


class Timeline:
    """The segments of one node."""

    __slots__ = ("cpus", "masks", "memory", "times", "variance")

    def __init__(self, now: float, mask: int, cpus: float, memory_gib: float) -> None:
        self.times = [now]
        self.masks = [mask]
        self.cpus = [cpus]
        self.memory = [memory_gib]
        self.variance = [0.0]

    def copy(self) -> Timeline:
        """Another one, equal and independent."""
        twin = Timeline.__new__(Timeline)
        twin.times = self.times.copy()
        twin.masks = self.masks.copy()
        twin.cpus = self.cpus.copy()
        twin.memory = self.memory.copy()
        twin.variance = self.variance.copy()
        return twin

    def hold(
        self,
        start: float,
        end: float,
        mask: int,
        cpus: float,
        memory_gib: float,
        *,
        variance: float = 0.0,
    ) -> None:
        """Take resources from ``start`` until ``end``, whose variance is given."""
        first = self._split(start, 0.0)
        last = self._split(end, variance)
        keep = ~mask
        for i in range(first, last):
            self.masks[i] &= keep
            self.cpus[i] -= cpus
            self.memory[i] -= memory_gib

    def earliest(
        self,
        after: float,
        duration_s: float,
        allowed: int,
        count: int,
        cpus: float,
        memory_gib: float,
        usable: Callable[[int], bool] | None = None,
    ) -> tuple[float, int, float] | None:
        """The first instant from ``after`` on at which ``count`` of the ``allowed`` devices, the
        cores and the memory are free for the whole duration.

        Returns it with the mask of devices free throughout and the variance of the instant; None
        when there is none, ever. ``usable`` may refuse a mask for its links.
        """
        times, masks, cores, memory = self.times, self.masks, self.cpus, self.memory
        cpus -= _SLACK
        memory_gib -= _SLACK
        n = len(times)
        i = bisect_right(times, after) - 1
        if i < 0:
            i = 0
        while i < n:
            begins = times[i]
            start = begins if begins > after else after  # noqa: FURB136 (hot)
            end = start + duration_s
            mask = allowed
            k = i
            while True:
                mask &= masks[k]
                if mask.bit_count() < count or cores[k] < cpus or memory[k] < memory_gib:
                    break
                k += 1
                if k == n or times[k] >= end:
                    if usable is None or usable(mask):
                        return start, mask, self.variance[i] if start == begins else 0.0
                    k = i
                    break
            # where too little is free by itself, no earlier start gets across
            i = k + 1 if k > i and (allowed & masks[k]).bit_count() < count else i + 1
        return None

    def free_throughout(
        self, start: float, duration_s: float, cpus: float, memory_gib: float
    ) -> int | None:
        """The devices free from ``start`` for the whole duration; None when cores or memory are
        not."""
        times = self.times
        i = max(bisect_right(times, start) - 1, 0)
        end = start + duration_s
        mask = -1
        for k in range(i, len(times)):
            if k > i and times[k] >= end:
                break
            if self.cpus[k] + _SLACK < cpus or self.memory[k] + _SLACK < memory_gib:
                return None
            mask &= self.masks[k]
        return mask

    def next_change(self, after: float) -> float | None:
        """The first instant after another at which something is taken or freed."""
        i = bisect_right(self.times, after)
        return self.times[i] if i < len(self.times) else None

    def all_free_at(self, devices: int) -> float:
        """The first instant at which all of these devices are free."""
        for at, mask in zip(self.times, self.masks, strict=True):
            if mask & devices == devices:
                return at
        return self.times[-1]

    def _split(self, at: float, variance: float) -> int:
        """The index of the segment that begins at ``at``, made if there is none."""
        times = self.times
        i = bisect_right(times, at)
        if i == 0:
            return 0
        if times[i - 1] == at:
            self.variance[i - 1] = max(self.variance[i - 1], variance)
            return i - 1
        times.insert(i, at)
        self.masks.insert(i, self.masks[i - 1])
        self.cpus.insert(i, self.cpus[i - 1])
        self.memory.insert(i, self.memory[i - 1])
        self.variance.insert(i, variance)
        return i
