"""What a pass learns: boot times, work of finished jobs, checkpoint times, interruptions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TypeVar

from hybrid.domain.breaker import boot_scopes
from hybrid.domain.claim import Claim
from hybrid.domain.ids import PoolName
from hybrid.domain.job import Job
from hybrid.domain.learned import Estimate, Learned, Usage
from hybrid.domain.run import Run

K = TypeVar("K", bound=Hashable)

LATE_WANTED = 0.1
"""The part of jobs that may start after the p90 they were told."""

_WAIT_STEP = 0.3
"""By how much one late start lengthens the p90 told next, as a logarithm."""
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 64.0


class Lessons:
    """Collects the observations of one pass."""

    def __init__(self, learned: Learned) -> None:
        self._before = learned
        self.learned = learned

    @property
    def changed(self) -> bool:
        """Whether anything was learned."""
        return self.learned is not self._before

    def booted(self, claim: Claim, seconds: float) -> None:
        """A claim's machine took so long from its request to its joining."""
        self.learned = replace(
            self.learned, boot_s=_with_sample(self.learned.boot_s, claim.pool, seconds)
        )
        failed = self.learned.boot_failures
        if any(scope in failed for scope in boot_scopes(claim.offer)):
            left = {k: n for k, n in failed.items() if k not in boot_scopes(claim.offer)}
            self.learned = replace(self.learned, boot_failures=left)

    def never_joined(self, claim: Claim) -> dict[str, int]:
        """A claim's machine did not join in time; how many in a row that makes, by scope."""
        before = self.learned.boot_failures
        counts = {scope: before.get(scope, 0) + 1 for scope in boot_scopes(claim.offer)}
        self.learned = replace(self.learned, boot_failures={**before, **counts})
        return counts

    def started(self, pool: PoolName, *, late: bool) -> None:
        """A job that was told to wait for the pool has started: after its p90, or by it.

        The factor moves so that in the long run exactly one start in ten is late, whatever waits
        are distributed like: up by nine for a late one, down by one for each other (Gibbs & Candès,
        "Adaptive conformal inference under distribution shift", NeurIPS 2021).
        """
        factors = self.learned.wait_factor
        step = _WAIT_STEP * (float(late) - LATE_WANTED)
        factor = factors.get(pool, 1.0) * math.exp(step)
        factor = min(max(factor, _LEAST_FACTOR), _MOST_FACTOR)
        self.learned = replace(self.learned, wait_factor={**factors, pool: factor})

    def finished(self, job: Job, run: Run, seconds: float) -> None:
        """A job of a family ran through in one run, in so many seconds at the run's speed."""
        family = job.spec.family
        if family is None or job.attempts != 1 or seconds <= 0:
            return
        if any(slot.replicas > 1 for slot in run.slots):
            return  # how much of the GPU its neighbours took is not known
        self.learned = replace(
            self.learned,
            work_s=_with_sample(self.learned.work_s, family, seconds * run.speed),
            speed=_with_speed(self.learned, family, run, seconds),
        )

    def checkpointed(self, job: Job, seconds: float) -> None:
        """A checkpoint of the job took so long to commit."""
        key = job.spec.family or str(job.id)
        self.learned = replace(
            self.learned, checkpoint_s=_with_sample(self.learned.checkpoint_s, key, seconds)
        )

    def used(self, team: str, gpu_s: float, now: float, half_life_s: float) -> None:
        """A run of the team held so many GPU-seconds."""
        before = self.learned.usage.get(team, Usage(0.0, now))
        usage = Usage(before.decayed(now, half_life_s) + gpu_s, now)
        self.learned = replace(self.learned, usage={**self.learned.usage, team: usage})

    def ended(self, claim: Claim, hours: float, *, interrupted: bool) -> None:
        """A machine of an offer lived so long, and was taken or not."""
        offer = str(claim.offer.id)
        lifetime = {**self.learned.lifetime_h}
        lifetime[offer] = lifetime.get(offer, 0.0) + hours
        taken = {**self.learned.interruptions}
        taken[offer] = taken.get(offer, 0) + int(interrupted)
        self.learned = replace(self.learned, lifetime_h=lifetime, interruptions=taken)


def _with_sample(before: Mapping[K, Estimate], key: K, value: float) -> dict[K, Estimate]:
    return {**before, key: before.get(key, Estimate(value, 0)).with_sample(value)}


def _with_speed(
    learned: Learned, family: str, run: Run, seconds: float
) -> Mapping[tuple[str, str], Estimate]:
    """Speed relative to the reference GPU, from the family's mean work on it.

    The first model that a family finishes on cannot tell work from speed: its guessed speed stands,
    and what is learned of the others is relative to it.
    """
    work = learned.work_s.get(family)
    if work is None or not run.gpu_model:
        return learned.speed
    return _with_sample(learned.speed, (family, run.gpu_model), work.mean / seconds)
