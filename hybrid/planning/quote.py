"""What a job would get if it were there: the plan of a world with one more job. No side effects."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.job import Job
from hybrid.domain.plan import Decision
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.planner import plan
from policies.document import PolicyDocument


def quote(snapshot: Snapshot, policy: PolicyDocument, policy_version: int, job: Job) -> Decision:
    """The decision that the next plan would make for a pending ``job`` that is not in the
    snapshot, or is in it in another form."""
    jobs = {**snapshot.jobs, job.id: job}
    made = plan(replace(snapshot, jobs=jobs), policy, policy_version)
    return next(decision for decision in made.decisions if decision.job_id == job.id)
