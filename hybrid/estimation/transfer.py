"""Bringing data to a machine off the premises, and back."""

from __future__ import annotations

from hybrid.domain.job import Job
from hybrid.domain.pool_spec import BurstPool

_BYTES_PER_GIB = 2.0**30


def checkpoint_gib(job: Job) -> float:
    """The size of the job's checkpoint: measured, else as written; 0 if it makes none."""
    if job.checkpoint is not None:
        return job.checkpoint.size_bytes / _BYTES_PER_GIB
    return job.spec.checkpoint.size if job.spec.checkpoint.enabled else 0.0


def inbound_s(job: Job, pool: BurstPool) -> float:
    """Seconds to bring the input, and the checkpoint if there is one, to a machine of the pool."""
    size = job.spec.data.input + (checkpoint_gib(job) if job.checkpoint is not None else 0.0)
    return size / pool.transfer_gib_per_s


def restore_s(job: Job, pool: BurstPool) -> float:
    """Seconds to bring input and checkpoint to the machine that takes over from a lost one."""
    return (job.spec.data.input + checkpoint_gib(job)) / pool.transfer_gib_per_s


def outbound_s(job: Job, pool: BurstPool) -> float:
    """Seconds to bring the output back, while the machine is still paid for."""
    return job.spec.data.output / pool.transfer_gib_per_s


def egress_gib(job: Job) -> float:
    """GiB expected to leave the cloud: the output."""
    return job.spec.data.output


def egress_bound_gib(job: Job) -> float:
    """The most that leaves the cloud: the output, and one checkpoint to go on with elsewhere."""
    return job.spec.data.output + checkpoint_gib(job)
