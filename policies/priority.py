"""Who goes first: class rank, growing with age, and past the class's longest wait before all."""

from __future__ import annotations

from hybrid.domain.job import Job
from hybrid.domain.money import to_micros
from hybrid.domain.reasons import ClassNotAllowed
from policies.document import PolicyDocument
from policies.sections import PriorityClass

_NO_CLASS = PriorityClass(rank=0)


def class_of(job: Job, policy: PolicyDocument) -> PriorityClass:
    """The job's priority class. A job whose class was taken out of the policy after it was
    submitted goes on with rank 0 and no value."""
    return policy.priority_classes.get(job.spec.priority, _NO_CLASS)


def refusal(priority: str, team: str, policy: PolicyDocument) -> ClassNotAllowed | None:
    """Why ``team`` may not submit with this priority, or None."""
    allowed = policy.team(team).classes or tuple(policy.classes_by_rank)
    if priority in allowed and priority in policy.priority_classes:
        return None
    return ClassNotAllowed(priority, allowed)


def overdue_at(job: Job, policy: PolicyDocument) -> float:
    """The instant from which the job goes before every class."""
    return job.submitted_at + class_of(job, policy).max_wait


def effective_rank(job: Job, policy: PolicyDocument, now: float) -> float:
    """Class rank plus what age has added; never falls as ``now`` grows.

    Past the class's ``max_wait`` it lies above what any class can reach, and grows by one with
    every hour, so that of two overdue jobs the one overdue for longer goes first. Age counts from
    submission: being stopped and queued again takes nothing away.
    """
    group = class_of(job, policy)
    age_s = max(0.0, now - job.submitted_at)
    if age_s >= group.max_wait:
        return policy.top_rank + (age_s - group.max_wait) / 3600.0
    return group.rank + min(policy.aging.max, policy.aging.per_hour * age_s / 3600.0)


def value_micros_per_hour(job: Job, policy: PolicyDocument) -> int:
    """What an hour's delay of the job costs: its own word, else its class's."""
    value = job.spec.value_per_hour
    return to_micros(class_of(job, policy).value_per_hour if value is None else value)
