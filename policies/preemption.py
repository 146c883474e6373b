"""Whether a running job may be stopped for another one."""

from __future__ import annotations

from collections.abc import Mapping

from hybrid.domain.job import Job
from hybrid.domain.reasons import (
    AlreadyStopping,
    DoesNotPreempt,
    Guaranteed,
    Reason,
    SwitchedOff,
    TooMuchPreempted,
    TooYoung,
    WaitedTooLong,
)
from hybrid.domain.run import Run, RunState
from policies.document import PolicyDocument
from policies.priority import class_of


def reclaims(job: Job, policy: PolicyDocument, team_gpus: Mapping[str, int]) -> bool:
    """Whether the job, once placed, is still within what its team is guaranteed: it then takes
    back what is lent to others, whatever its class."""
    gpus = job.spec.resources.total_gpus
    guaranteed = policy.team(job.team).guaranteed_gpus
    return 0 < gpus <= guaranteed - team_gpus.get(job.team, 0)


def refusal(
    victim_run: Run,
    victim_job: Job,
    urgent_job: Job,
    policy: PolicyDocument,
    now: float,
    *,
    team_gpus: Mapping[str, int],
    lost_gpu_hours: float,
    preempted_gpu_hours: float,
) -> Reason | None:
    """Why ``victim_run`` may not be stopped for ``urgent_job``, or None.

    ``team_gpus`` are the local GPUs each team holds now; ``lost_gpu_hours`` the victim's work
    since its last checkpoint; ``preempted_gpu_hours`` what preemption has thrown away in the last
    hour, planned stops included. A team reclaiming its guarantee from another team needs no
    preempting class and waits for no minimum run.
    """
    if not policy.preemption.enabled:
        return SwitchedOff("preemption")
    if victim_run.state in (RunState.STOPPING, RunState.ENDED):
        return AlreadyStopping(victim_run.id)
    same_team = victim_job.team == urgent_job.team
    if same_team and not policy.preemption.within_team:
        return SwitchedOff("preemption within a team")
    if not same_team and not policy.preemption.between_teams:
        return SwitchedOff("preemption between teams")
    guaranteed = None if same_team else _guaranteed(victim_job, policy, team_gpus)
    if not same_team and reclaims(urgent_job, policy, team_gpus):
        return guaranteed
    return (
        _class_refusal(victim_job, urgent_job, policy)
        or _waited(victim_run, victim_job, policy)
        or _young(victim_run, policy, now)
        or guaranteed
        or _too_much(lost_gpu_hours, preempted_gpu_hours, policy)
    )


def _class_refusal(victim: Job, urgent: Job, policy: PolicyDocument) -> Reason | None:
    mine, other = class_of(urgent, policy), class_of(victim, policy)
    if mine.preempts and mine.rank > other.rank:
        return None
    return DoesNotPreempt(urgent.spec.priority, victim.spec.priority)


def _waited(run: Run, victim: Job, policy: PolicyDocument) -> Reason | None:
    waited_s = run.assigned_at - victim.submitted_at
    max_wait_s = class_of(victim, policy).max_wait
    return WaitedTooLong(waited_s, max_wait_s) if waited_s >= max_wait_s else None


def _young(run: Run, policy: PolicyDocument, now: float) -> Reason | None:
    age_s = run.age_s(now)
    least_s = policy.preemption.min_run
    return TooYoung(max(0.0, age_s), least_s) if age_s < least_s else None


def _guaranteed(victim: Job, policy: PolicyDocument, held: Mapping[str, int]) -> Reason | None:
    guaranteed = policy.team(victim.team).guaranteed_gpus
    left = held.get(victim.team, 0) - victim.spec.resources.total_gpus
    return Guaranteed(victim.team, guaranteed, max(0, left)) if left < guaranteed else None


def _too_much(lost: float, spent: float, policy: PolicyDocument) -> Reason | None:
    left = policy.preemption.max_gpu_hours_per_hour - spent
    return TooMuchPreempted(lost, left) if lost > left else None
