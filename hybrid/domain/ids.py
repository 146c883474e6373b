"""Names of things. Each is a ``str`` at run time and a type of its own to the checker."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)
ClaimId = NewType("ClaimId", str)
NodeId = NewType("NodeId", str)
GpuId = NewType("GpuId", str)
"""What CUDA calls the device: ``GPU-<uuid>`` or ``MIG-<uuid>``."""
PoolName = NewType("PoolName", str)
OfferId = NewType("OfferId", str)
MachineId = NewType("MachineId", str)
"""The cloud's own name of a machine (EC2 instance id, GCE numeric id)."""
BudgetName = NewType("BudgetName", str)


def run_id(job: JobId, attempt: int) -> RunId:
    """The id of a job's ``attempt``-th run (from 1).

    Derived, not drawn: planning the same attempt twice names the same run, so a plan that is
    repeated after a crash cannot make a second one.
    """
    return RunId(f"{job}.{attempt}")


def claim_id(job: JobId, attempt: int, rank: int, serial: int) -> ClaimId:
    """The id of the claim for one machine: the job it is opened for, that job's next attempt, the
    machine's rank in the gang, and how many claims this job has had before (``serial``)."""
    return ClaimId(f"c-{job}-{attempt}-{rank}-{serial}")
