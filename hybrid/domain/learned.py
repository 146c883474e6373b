"""What the system has learned from its own history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hybrid.domain.ids import PoolName


@dataclass(frozen=True, slots=True)
class Estimate:
    """A running mean of ``samples`` observations."""

    mean: float
    samples: int

    def with_sample(self, value: float, *, at_most: int = 50) -> Estimate:
        """The estimate after one more observation; the oldest fade once there are ``at_most``."""
        n = min(self.samples + 1, at_most)
        return Estimate(self.mean + (value - self.mean) / n, n)


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU-seconds a team has used, decayed to ``at``."""

    gpu_s: float
    at: float

    def decayed(self, now: float, half_life_s: float) -> float:
        """What is left of it at ``now``: half after each half-life."""
        return self.gpu_s * math.pow(0.5, max(0.0, now - self.at) / half_life_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Measured quantities, by what they were measured on.

    ``boot_s`` per burst pool: from the launch call to the node's joining. ``work_s`` per job
    family: work of a whole job in seconds on the reference GPU. ``speed`` per (family, GPU model):
    relative to the reference GPU. ``checkpoint_s`` and ``restart_s`` per family.
    ``lifetime_h`` and ``interruptions`` per offer: machine-hours seen and how often one was taken.
    ``usage`` per team: of runs that have ended. ``wait_factor`` per owned pool: what the p90 of a
    predicted wait is multiplied by, so that nine of ten jobs start by what they were told.
    ``boot_failures`` per breaker scope of boots: machines in a row that never joined.
    """

    boot_s: Mapping[PoolName, Estimate] = field(default_factory=dict)
    work_s: Mapping[str, Estimate] = field(default_factory=dict)
    speed: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    checkpoint_s: Mapping[str, Estimate] = field(default_factory=dict)
    restart_s: Mapping[str, Estimate] = field(default_factory=dict)
    lifetime_h: Mapping[str, float] = field(default_factory=dict)
    interruptions: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    wait_factor: Mapping[PoolName, float] = field(default_factory=dict)
    boot_failures: Mapping[str, int] = field(default_factory=dict)
