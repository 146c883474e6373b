"""Replicas of time-sliced GPUs: slots of which each is the whole GPU for a part of the time.

In a pool with ``time_slicing`` each GPU has so many, and nothing else: a job that wants a GPU whole
would be slowed by its neighbours, and they by it. A replica is told the same part of the memory. It
is taken to run at the same part of the GPU's speed, as if its neighbours were always busy, whatever
they do now: what is predicted must not depend on who comes later.
"""

from __future__ import annotations

from hybrid.domain.job_spec import GpuRequest
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.reasons import TimeSliced

_SLACK = 1e-9


def replicas_in(pool: LocalPool | BurstPool | None) -> int:
    """How many slots each GPU of a pool has; 1 where GPUs are not time-sliced."""
    if not isinstance(pool, LocalPool) or pool.time_slicing is None:
        return 1
    return pool.time_slicing.replicas


def refused_replica(asked: GpuRequest, gpus: int, replicas: int) -> TimeSliced | None:
    """Why one of so many replicas will not do for a job that uses GPUs; how much memory it wants is
    another question."""
    slice_alone = asked.slice_memory is not None and asked.share == 1
    if asked.time_slicing or slice_alone or asked.share <= 1 / replicas + _SLACK:
        return None
    return TimeSliced(replicas, gpus, asked.share)
