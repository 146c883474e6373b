"""Which places on the premises the job and the policy allow."""

from __future__ import annotations

from functools import lru_cache

from hybrid.domain.job import Job
from hybrid.domain.job_spec import Profile
from hybrid.domain.reasons import KeptForOthers, NotAllowedThere, Reason
from hybrid.hardware import resolve
from policies.document import PolicyDocument
from policies.sections import Reservation


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
    """Whether the job takes the GPU that draws least among those fast enough."""
    return policy.placement.prefer_efficient and job.spec.profile is Profile.LATENCY


@lru_cache(maxsize=256)
def _models(reservation: Reservation) -> frozenset[str]:
    return frozenset().union(*(resolve(name) for name in reservation.models))
