"""The six strategies as bundles of settings: what a document says when it says nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from policies.sections import Strategy

CLASSES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "low": {"rank": 0, "value_per_hour": "0.25", "max_wait": "3d"},
        "normal": {"rank": 100, "value_per_hour": "2", "max_wait": "1d"},
        "high": {"rank": 200, "value_per_hour": "8", "max_wait": "8h"},
        "urgent": {"rank": 300, "value_per_hour": "40", "max_wait": "1h", "preempts": True},
    }
)
"""The priority classes that exist in every document; what is written refines them."""

_OFF: Mapping[str, Any] = {"enabled": False}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        Strategy.FIFO: {
            "aging": {"per_hour": 0, "max": 0},
            "burst": _OFF,
            "preemption": _OFF,
        },
        Strategy.PRIORITY: {"burst": _OFF},
        Strategy.FAIR_SHARE: {
            "fair_share": {"rank_bucket": 1_000_000_000},
            "burst": _OFF,
        },
        Strategy.SHORTEST_PREDICTED: {"burst": _OFF, "preemption": _OFF},
        Strategy.BEST_FIT: {
            "burst": _OFF,
            "placement": {"strategy": "pack", "prefer_efficient": True},
        },
        Strategy.BREAK_EVEN: {
            "burst": {"enabled": True},
            "preemption": {"enabled": True},
            "return_home": {"enabled": True},
        },
    }
)

ABOUT: Mapping[str, str] = MappingProxyType(
    {
        Strategy.FIFO: "First come, first served, on the premises only.",
        Strategy.PRIORITY: "By class and age; a higher class may preempt. On the premises only.",
        Strategy.FAIR_SHARE: "The team with the smallest share is next. On the premises only.",
        Strategy.SHORTEST_PREDICTED: (
            "Within a class the job that keeps others waiting least per dollar of its time is next."
            " On the premises only."
        ),
        Strategy.BEST_FIT: (
            "Within a class the widest job is next, in the tightest place. On the premises only."
        ),
        Strategy.BREAK_EVEN: (
            "By class, age and fair share; wait, burst, preempt or return by what costs least."
        ),
    }
)
"""Each strategy in one sentence."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid upon ``base``: mappings are merged key by key, anything else replaces."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
