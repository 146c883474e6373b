"""Weighted dominant-share fairness between teams over decayed usage.

A job's demand is its dominant resource in GPU equivalents (Ghodsi et al., "Dominant Resource
Fairness", NSDI 2011): GPUs, or CPU cores or memory where a job takes more of those than goes with
its GPUs. A team's share is its usage over its weight; the team with the smallest share is next.
"""

from __future__ import annotations

import math

from hybrid.domain.job_spec import Resources
from hybrid.hardware import MODELS, REFERENCE_KEY
from policies.document import PolicyDocument

_REFERENCE_GIB = MODELS[REFERENCE_KEY].usable_memory_gib
"""Of the GPU that a slice of memory is measured by: which one it will be on is not known yet."""

_MIG_SLICES = 7.0
"""Compute slices of a GPU that can be cut into MIG instances (four on an A30: counted alike)."""


def demand_gpus(resources: Resources, policy: PolicyDocument) -> float:
    """The dominant resource of the whole gang in GPU equivalents."""
    terms = policy.fair_share
    gpus = resources.gpus * resources.gpu.share_of(_REFERENCE_GIB)
    profile = resources.gpu.mig_profile
    if profile and profile[0].isdigit():
        gpus = int(profile[0]) / _MIG_SLICES
    dominant = max(
        gpus, resources.cpus / terms.cpus_per_gpu, resources.memory / terms.memory_gib_per_gpu
    )
    return resources.nodes * dominant


def decayed(usage_gpu_s: float, elapsed_s: float, policy: PolicyDocument) -> float:
    """What is left of past usage after ``elapsed_s``: half after each half-life."""
    return usage_gpu_s * math.pow(0.5, max(0.0, elapsed_s) / policy.fair_share.half_life)


def share(team: str, usage_gpu_s: float, policy: PolicyDocument) -> float:
    """The team's usage in GPU-seconds over its weight: the smaller, the sooner it is its turn."""
    return usage_gpu_s / policy.team(team).weight
