"""EASY backfill, as it is published: the measure that a local schedule is held against.

First come, first served; while the job at the head has to wait, others may overtake it if they do
not delay the instant at which it is expected to start (Lifka, "The ANL/IBM SP Scheduling System",
JSSPP 1995). Ends are expected at the walltime. A job takes equal parts of machines, the fullest on
which they fit first; on one machine as large as the cluster GPUs are only counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NEVER = float("inf")

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Request:
    """A job: when it comes, its GPUs, how long it truly runs and how long it says at most."""

    arrives_s: float
    gpus: int
    runtime_s: float
    walltime_s: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What a job takes: so many machines, and so many GPUs on each."""

    machines: int
    gpus: int


@dataclass(slots=True)
class _Cluster:
    free: Ints
    """(machines,) free GPUs of each."""
    running: list[tuple[float, int]]
    """(true end, job), soonest first."""
    expected: dict[int, float]
    """When each running job is expected to have ended."""
    held: dict[int, Ints]
    """The machines of each running job."""


@dataclass(slots=True)
class _Schedule:
    jobs: Sequence[Request]
    parts: Sequence[Parts]
    cluster: _Cluster
    starts: list[float]

    def start(self, index: int, machines: Ints, now: float) -> None:
        cluster, job = self.cluster, self.jobs[index]
        self.starts[index] = now
        cluster.free[machines] -= self.parts[index].gpus
        cluster.held[index] = machines
        cluster.expected[index] = now + job.walltime_s
        heapq.heappush(cluster.running, (now + job.runtime_s, index))

    def end(self) -> None:
        """The job that ends soonest has ended."""
        cluster = self.cluster
        _, index = heapq.heappop(cluster.running)
        del cluster.expected[index]
        cluster.free[cluster.held.pop(index)] += self.parts[index].gpus

    def serve(self, queue: list[int], now: float) -> list[int]:
        """Start what may start now; returns those that go on waiting."""
        free, head = self.cluster.free, 0
        while head < len(queue):
            machines = _fullest(free, self.parts[queue[head]])
            if machines is None:
                break
            self.start(queue[head], machines, now)
            head += 1
        queue = queue[head:]
        if not queue or not free.any():
            return queue
        shadow_at, later = self._reservation(queue[0])
        left = [queue[0]]
        for index in queue[1:]:
            if now + self.jobs[index].walltime_s <= shadow_at:
                machines = _fullest(free, self.parts[index])
            else:
                machines = _beside(free, self.parts[index], later, self.parts[queue[0]])
            if machines is None:
                left.append(index)
            else:
                self.start(index, machines, now)
        return left

    def _reservation(self, head: int) -> tuple[float, Ints]:
        """When the job at the head is expected to start, and what is free on each machine then."""
        cluster, shadow_at = self.cluster, _NEVER
        later = cluster.free.copy()
        for at, index in sorted((at, index) for index, at in cluster.expected.items()):
            if at > shadow_at:
                break
            later[cluster.held[index]] += self.parts[index].gpus
            if shadow_at == _NEVER and _fits(later, self.parts[head]):
                shadow_at = at
        return shadow_at, later


def easy_starts(
    jobs: Sequence[Request], parts: Sequence[Parts], machines: Sequence[int]
) -> list[float]:
    """When each of the jobs, which are in order of arrival, starts on machines with so many GPUs,
    in seconds. Raises ValueError for a job that they do not hold."""
    free = np.array(machines, dtype=np.int64)
    for wanted in parts:
        if not _fits(free, wanted):
            raise ValueError(
                f"{wanted.machines} × {wanted.gpus} GPUs do not fit on {len(machines)} machines"
            )
    schedule = _Schedule(jobs, parts, _Cluster(free, [], {}, {}), [0.0] * len(jobs))
    running = schedule.cluster.running
    queue: list[int] = []
    coming = 0
    while coming < len(jobs) or running:
        ends_at = running[0][0] if running else _NEVER
        now = min(ends_at, jobs[coming].arrives_s if coming < len(jobs) else _NEVER)
        while running and running[0][0] <= now:
            schedule.end()
        while coming < len(jobs) and jobs[coming].arrives_s <= now:
            queue.append(coming)
            coming += 1
        queue = schedule.serve(queue, now)
    return schedule.starts


def _fits(free: Ints, parts: Parts) -> bool:
    return int((free >= parts.gpus).sum()) >= parts.machines


def _fullest(free: Ints, parts: Parts) -> Ints | None:
    """The machines with least free on which the parts fit."""
    enough = np.flatnonzero(free >= parts.gpus)
    if len(enough) < parts.machines:
        return None
    return enough[np.argsort(free[enough], kind="stable")][: parts.machines]


def _beside(free: Ints, parts: Parts, later: Ints, head: Parts) -> Ints | None:
    """Machines for the parts that leave the head its place; what they take is then off ``later``.
    A job of one part may take any machine, one of several takes the fullest."""
    enough = np.flatnonzero(free >= parts.gpus)
    if len(enough) < parts.machines:
        return None
    enough = enough[np.argsort(free[enough], kind="stable")]
    single = parts.machines == 1
    for machines in np.split(enough, len(enough)) if single else [enough[: parts.machines]]:
        later[machines] -= parts.gpus
        if _fits(later, head):
            return machines
        later[machines] += parts.gpus
    return None
