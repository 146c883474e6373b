"""The rows a bundle of actions rests on, as they were read: what changed since refuses it."""

from __future__ import annotations

from hybrid.domain.claim import Claim
from hybrid.domain.job import Job
from hybrid.domain.node import Node
from hybrid.domain.plan import RowRef
from hybrid.domain.run import Run


def job_ref(job: Job) -> RowRef:
    """The job's row, as it was read."""
    return RowRef(kind="job", id=str(job.id), version=job.version)


def run_ref(run: Run) -> RowRef:
    """The run's row, as it was read."""
    return RowRef(kind="run", id=str(run.id), version=run.version)


def claim_ref(claim: Claim) -> RowRef:
    """The claim's row, as it was read."""
    return RowRef(kind="claim", id=str(claim.id), version=claim.version)


def node_ref(node: Node) -> RowRef:
    """The node's row, as it was read."""
    return RowRef(kind="node", id=str(node.id), version=node.version)
