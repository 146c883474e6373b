"""Which places on the premises the job and the policy allow."""

from __future__ import annotations

from functools import lru_cache

from hybrid.domain.job import Job
from hybrid.domain.job_spec import Profile
from hybrid.domain.reasons import KeptForOthers, NotAllowedThere, Reason
from hybrid.hardware import resolve
from policies.document import PolicyDocument
from policies.sections import Reservation

TRIAL_S = 600.0
"""A job whose hard limit is no longer is a trial: it is to show that something runs at all."""

FAST_ENOUGH = 1.25
"""A card is fast enough if the job takes no longer on it than so many times the least at home."""


def refusal(job: Job, pool: str, gpu_model: str, policy: PolicyDocument) -> Reason | None:
    """Why the job may not run on ``gpu_model`` (empty for a CPU job) of the local pool, or None.

    A job's ``where.providers`` and ``where.regions`` speak of clouds; they keep no job from home.
    """
    pools = job.spec.where.pools
    if pools and pool not in pools:
        return NotAllowedThere("pool", pool, "the job")
    return reserved(job, gpu_model, policy) if gpu_model else None


def reserved(job: Job, gpu_model: str, policy: PolicyDocument) -> KeptForOthers | None:
    """Whom the model is kept for, if not for this job. Being on one of several reservations of
    the model is enough."""
    keeping = [r for r in policy.placement.reserved if gpu_model in _models(r)]
    if not keeping or any(job.team in r.teams or job.spec.priority in r.classes for r in keeping):
        return None
    whom = {f"team {team}" for r in keeping for team in r.teams}
    whom |= {f"priority {name}" for r in keeping for name in r.classes}
    return KeptForOthers(gpu_model, tuple(sorted(whom)))


def prefers_efficient(job: Job, policy: PolicyDocument) -> bool:
    """Whether the job takes the GPU that draws least among those fast enough: a small one (one
    GPU), bound by latency or so short that it is a trial."""
    spec = job.spec
    small = spec.resources.total_gpus == 1
    wants = spec.profile is Profile.LATENCY or spec.walltime <= TRIAL_S
    return policy.placement.prefer_efficient and small and wants


@lru_cache(maxsize=256)
def _models(reservation: Reservation) -> frozenset[str]:
    return frozenset().union(*(resolve(name) for name in reservation.models))
