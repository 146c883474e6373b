"""Whether a spot machine is good enough for a job, and a chance of being late small enough."""

from __future__ import annotations

from hybrid.domain.job import Job
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer
from hybrid.domain.reasons import (
    CannotCheckpoint,
    InterruptedTooOften,
    MissesDeadline,
    NoticeTooShort,
    Reason,
)
from policies.document import PolicyDocument


def refusal(job: Job, offer: Offer, checkpoint_s: float, policy: PolicyDocument) -> Reason | None:
    """Why the job may not take this spot offer, or None; None for any other market.

    ``checkpoint_s`` is how long the job takes to save its work. One that has accepted a restart
    (``retries.on_spot_restart``) needs neither checkpoints nor a notice long enough for one.
    """
    if offer.market is not Market.SPOT:
        return None
    per_hour = job.spec.resources.nodes * offer.interruptions_per_hour
    accepts_restart = job.spec.retries.on_spot_restart
    if not job.spec.checkpoint.enabled and not accepts_restart:
        return CannotCheckpoint()
    if per_hour > policy.spot.max_interruptions_per_hour:
        return InterruptedTooOften(per_hour)
    needed_s = checkpoint_s + policy.spot.notice_margin
    if not accepts_restart and needed_s > offer.notice_s:
        return NoticeTooShort(offer.notice_s, needed_s)
    return None


def deadline_refusal(
    late_by_s: float, miss_probability: float, policy: PolicyDocument
) -> MissesDeadline | None:
    """Why an option is too late: expected after the deadline by ``late_by_s`` > 0, or missing it
    with more than the tolerated probability; else None."""
    if late_by_s > 0 or miss_probability > policy.spot.deadline_miss_probability:
        return MissesDeadline(late_by_s, miss_probability)
    return None
