"""Compute Engine's GPU quotas: which one a machine counts against, and what is left of it.

The regional quotas stand in regions.get, ``GPUS_ALL_REGIONS`` in projects.get, both with what is in
use ("Allocation quotas", Compute Engine documentation). Spot machines count against the
``PREEMPTIBLE_`` quota of their GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Quota

ALL_REGIONS: Final = "GPUS_ALL_REGIONS"

METRICS: Final = MappingProxyType(
    {
        "nvidia-tesla-k80": "NVIDIA_K80_GPUS",
        "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
        "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
        "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
        "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
        "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
        "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
        "nvidia-l4": "NVIDIA_L4_GPUS",
        "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
        "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
        "nvidia-h200-141gb": "NVIDIA_H200_GPUS",
        "nvidia-b200": "NVIDIA_B200_GPUS",
        "nvidia-gb200": "NVIDIA_GB200_GPUS",
    }
)


def metric(accelerator: str) -> str:
    """The quota of an accelerator type; empty when it has none that we know."""
    return METRICS.get(accelerator.rsplit("/", 1)[-1], "")


def market_metric(name: str, market: Market) -> str:
    """The quota that a machine of that market counts against."""
    return f"PREEMPTIBLE_{name}" if market is Market.SPOT else name


Use = tuple[float, float]
"""A limit in GPUs, and what is in use of it."""


def read(quotas: Iterable[Mapping[str, Any]]) -> dict[str, Use]:
    """By metric."""
    return {
        str(each["metric"]): (float(each.get("limit", 0)), float(each.get("usage", 0)))
        for each in quotas
        if "metric" in each
    }


def tightest(
    needs: Mapping[str, tuple[float, float, str, int]],
    regional: Mapping[str, Use],
    everywhere: Mapping[str, Use],
    *,
    region: str,
    at: float,
) -> dict[tuple[str, Market], Quota]:
    """By written machine type and market: the quota that leaves the fewest machines.

    ``needs`` gives each type's accelerator and number of GPUs.
    """
    found = {}
    for written, (_, _, accelerator, gpus) in needs.items():
        if not gpus:
            continue
        for market in Market:
            name = market_metric(metric(accelerator), market)
            uses = (
                (f"{name} in {region}", regional.get(name)),
                (f"{ALL_REGIONS} of the project", everywhere.get(ALL_REGIONS)),
            )
            known = [
                Quota(
                    limit=int(use[0]),
                    used=int(use[1]),
                    per_machine=gpus,
                    unit="GPU",
                    name=named,
                    at=at,
                )
                for named, use in uses
                if use is not None
            ]
            if known:
                found[(written, market)] = min(known, key=lambda each: each.machines_left)
    return found
