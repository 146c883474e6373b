"""EASY backfill, as it is published: the measure that a local schedule is held against.

First come, first served; while the job at the head has to wait, others may overtake it if they do
not delay the instant at which it is expected to start (Lifka, "The ANL/IBM SP Scheduling System",
JSSPP 1995). Ends are expected at the walltime. GPUs are counted, not placed: a job is never kept
waiting because free GPUs are on different machines, which is in favour of this schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Request:
    """A job: when it comes, its GPUs, how long it truly runs and how long it says at most."""

    arrives_s: float
    gpus: int
    runtime_s: float
    walltime_s: float


@dataclass(slots=True)
class _Cluster:
    free: int
    running: list[tuple[float, int]]
    """(true end, job), soonest first."""
    expected: dict[int, float]
    """When each running job is expected to have ended."""


def easy_starts(jobs: Sequence[Request], gpus: int) -> list[float]:
    """When each of the jobs, which are in order of arrival, starts on so many GPUs, in seconds.
    Raises ValueError for a job wider than the cluster."""
    for job in jobs:
        if job.gpus > gpus:
            raise ValueError(f"a job of {job.gpus} GPUs does not fit on {gpus}")
    starts = [0.0] * len(jobs)
    cluster = _Cluster(gpus, [], {})
    queue: list[int] = []
    coming = 0
    while coming < len(jobs) or cluster.running:
        ends_at = cluster.running[0][0] if cluster.running else _NEVER
        now = min(ends_at, jobs[coming].arrives_s if coming < len(jobs) else _NEVER)
        while cluster.running and cluster.running[0][0] <= now:
            ended = heapq.heappop(cluster.running)[1]
            del cluster.expected[ended]
            cluster.free += jobs[ended].gpus
        while coming < len(jobs) and jobs[coming].arrives_s <= now:
            queue.append(coming)
            coming += 1
        queue = _pass(jobs, queue, cluster, now, starts)
    return starts


def _pass(
    jobs: Sequence[Request], queue: list[int], cluster: _Cluster, now: float, starts: list[float]
) -> list[int]:
    """Start what may start now; returns those that go on waiting."""
    head = 0
    while head < len(queue) and jobs[queue[head]].gpus <= cluster.free:
        _start(jobs, queue[head], cluster, now, starts)
        head += 1
    queue = queue[head:]
    if not queue or not cluster.free:
        return queue
    shadow_at, extra = _reservation(jobs, queue[0], cluster)
    left = [queue[0]]
    for index in queue[1:]:
        job = jobs[index]
        in_time = now + job.walltime_s <= shadow_at
        if job.gpus <= cluster.free and (in_time or job.gpus <= extra):
            if not in_time:
                extra -= job.gpus
            _start(jobs, index, cluster, now, starts)
        else:
            left.append(index)
    return left


def _start(
    jobs: Sequence[Request], index: int, cluster: _Cluster, now: float, starts: list[float]
) -> None:
    starts[index] = now
    cluster.free -= jobs[index].gpus
    cluster.expected[index] = now + jobs[index].walltime_s
    heapq.heappush(cluster.running, (now + jobs[index].runtime_s, index))


def _reservation(jobs: Sequence[Request], head: int, cluster: _Cluster) -> tuple[float, int]:
    """When the job at the head is expected to start, and how many GPUs are free beside it then."""
    free = cluster.free
    shadow_at = _NEVER
    for at, index in sorted((at, index) for index, at in cluster.expected.items()):
        if free >= jobs[head].gpus and at > shadow_at:
            break
        free += jobs[index].gpus
        if free >= jobs[head].gpus:
            shadow_at = at
    return shadow_at, free - jobs[head].gpus
