"""Where a job goes on that has failed: on another node, then in another pool, then on another
market of the same pool; where it has failed before only if nothing else will do.

Pauses between tries and the nodes themselves are the job's own row (``not_before``,
``avoid_nodes``); this is about whole pools. One failure may be the node's; from ``TRIES`` on
others are preferred, whatever they cost.
"""

from __future__ import annotations

from collections import Counter

from hybrid.domain.ids import PoolName
from hybrid.domain.job import Job
from hybrid.domain.job_spec import Market

TRIES = 2
"""Failures in a pool, or on a market of it, from which on others are preferred."""


def failed_pools(job: Job) -> frozenset[PoolName]:
    """The pools in which the job has failed too often."""
    if len(job.failed_at) < TRIES:
        return frozenset()  # hot: nearly all jobs
    counts = Counter(place.pool for place in job.failed_at)
    return frozenset(pool for pool, count in counts.items() if count >= TRIES)


def detour(job: Job, pool: PoolName, market: Market | None) -> int:
    """How far down the list of places this one is: 0 in a pool in which the job may be tried, 1 in
    one in which it has failed too often, though on another market, 2 on that market itself."""
    if pool not in failed_pools(job):
        return 0
    there = sum((place.pool, place.market) == (pool, market) for place in job.failed_at)
    return 1 if there < TRIES else 2


def words(job: Job) -> str:
    """Where it is not tried again while there is another place; empty for most jobs."""
    failed = sorted(failed_pools(job))
    return f"it has failed {TRIES} times or more in {' and '.join(failed)}" if failed else ""
