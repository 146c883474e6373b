"""What the sandbox's Compute Engine sells: machine types, accelerators, and prices of their parts.

Types with GPUs of their own are those of the hardware catalogue; N1 types take attached ones.
Prices of parts are list prices of us-central1 as of 2025-10 (Compute Engine price list), in USD per
hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from hybrid.hardware.machine_types import machine_types

ACCELERATORS: Final = MappingProxyType(
    {
        "nvidia-tesla-t4": ("Nvidia Tesla T4 GPU", Decimal("0.35"), "NVIDIA_T4_GPUS"),
        "nvidia-tesla-p100": ("Nvidia Tesla P100 GPU", Decimal("1.46"), "NVIDIA_P100_GPUS"),
        "nvidia-tesla-v100": ("Nvidia Tesla V100 GPU", Decimal("2.48"), "NVIDIA_V100_GPUS"),
        "nvidia-l4": ("Nvidia L4 GPU", Decimal("0.56004"), "NVIDIA_L4_GPUS"),
        "nvidia-tesla-a100": ("Nvidia Tesla A100 GPU", Decimal("2.933908"), "NVIDIA_A100_GPUS"),
        "nvidia-a100-80gb": (
            "Nvidia Tesla A100 80GB GPU",
            Decimal("3.92931"),
            "NVIDIA_A100_80GB_GPUS",
        ),
    }
)
"""Accelerator type → its SKU's name, list price, and quota."""

SERIES: Final = MappingProxyType(
    {
        "n1": ("N1 Predefined", Decimal("0.031611"), Decimal("0.004237")),
        "g2": ("G2", Decimal("0.024988"), Decimal("0.002927")),
        "a2": ("A2", Decimal("0.031611"), Decimal("0.004237")),
    }
)
"""Series → its name in SKUs, and the list prices of a vCPU and a GiB."""

_OWN_GPU: Final = MappingProxyType(
    {
        "l4": "nvidia-l4",
        "a100-sxm4-40gb": "nvidia-tesla-a100",
        "a100-sxm4-80gb": "nvidia-a100-80gb",
    }
)


@dataclass(frozen=True, slots=True)
class GceType:
    """A machine type as the API lists it; ``accelerator`` is empty without GPUs of its own."""

    name: str
    vcpus: int
    memory_mib: int
    accelerator: str = ""
    gpus: int = 0

    @property
    def series(self) -> str:
        return self.name.partition("-")[0]


def _types() -> dict[str, GceType]:
    found = {
        f"n1-standard-{vcpus}": GceType(f"n1-standard-{vcpus}", vcpus, vcpus * 3840)
        for vcpus in (1, 2, 4, 8, 16, 32)
    }
    for each in machine_types("gcp"):
        accelerator = _OWN_GPU.get(each.gpu)
        if accelerator is not None and each.name.partition("-")[0] in SERIES:
            memory_mib = int(each.memory_gib * 1024)
            found[each.name] = GceType(each.name, each.vcpus, memory_mib, accelerator, each.gpus)
    return found


TYPES: Final = MappingProxyType(_types())


def quota_metric(accelerator: str, *, spot: bool) -> str:
    """The quota that GPUs of a type count against in a market."""
    metric = ACCELERATORS[accelerator][2]
    return f"PREEMPTIBLE_{metric}" if spot else metric
