"""What one GPU model is: the figures that placement and speed guesses rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from hybrid.hardware.mig import MigTable

MEMORY_TOLERANCE = 0.02
"""The part of the asked-for memory that may be missing: what driver and firmware keep for
themselves on a GPU whose box is right. In-band ECC costs a sixteenth (6.25 %) and is not forgiven.
"""

_TERA = 1e12


class Architecture(StrEnum):
    """NVIDIA's name for a generation of chips."""

    KEPLER = "kepler"
    MAXWELL = "maxwell"
    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class Fabric(StrEnum):
    """How a GPU's NVLinks are wired in the boxes it is sold in."""

    BRIDGE = "bridge"
    MESH = "mesh"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class NvlinkPort:
    """The NVLinks of one GPU. ``gbps_per_link`` is GB/s in one direction."""

    generation: int
    links: int
    gbps_per_link: float
    fabric: Fabric

    @property
    def gbps(self) -> float:
        """GB/s in one direction over all links together."""
        return self.links * self.gbps_per_link


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One GPU model, never merged with a variant that differs.

    ``key`` is our name for it everywhere. ``memory_gib`` is the size on the box (what people call
    "80 GB"), ``usable_memory_gib`` what a program can allocate from with the defaults the model
    ships with (ECC on where it is on): the total that NVML reports. Rates are dense (no sparsity)
    tensor-core TFLOP/s with FP32 accumulation, or None where the chip has no such units.
    ``memory_bandwidth_gbps`` is GB/s. ``source`` names where the figures were published.
    ``family``, ``form`` and ``size`` are the words of the key that requests may leave out.
    """

    key: str
    name: str
    family: str
    form: str
    size: str
    architecture: Architecture
    compute_capability: tuple[int, int]
    memory_gib: int
    usable_memory_gib: float
    memory_bandwidth_gbps: float
    fp32_tflops: float
    fp16_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    boost_clock_mhz: int
    pcie_generation: int
    tdp_w: float
    source: str
    pcie_lanes: int = 16
    nvlink: NvlinkPort | None = None
    mig: MigTable | None = None
    nvml_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def dense_tflops(self) -> float:
        """The best dense rate for 16-bit training, TFLOP/s: BF16 or FP16 on tensor cores, else
        FP16 on the cores, else FP32."""
        return max(self.bf16_tflops or 0.0, self.fp16_tflops or 0.0, self.fp32_tflops)

    @property
    def pcie_gbps(self) -> float:
        """Raw PCIe GB/s in one direction after line coding, before protocol overhead."""
        return PCIE_LANE_GBPS[self.pcie_generation] * self.pcie_lanes

    @property
    def mig_profiles(self) -> tuple[str, ...]:
        """Names of its MIG profiles, smallest first; empty where it has none."""
        return self.mig.names if self.mig else ()

    @property
    def roofline_ridge(self) -> float:
        """FLOPs per byte above which a program is bound by compute."""
        return self.dense_tflops * _TERA / (self.memory_bandwidth_gbps * 1e9)


PCIE_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s per lane and direction. Source: PCI-SIG, PCI Express base specifications 1.0 to 6.0."""


def satisfies_memory(usable_gib: float, asked_gib: float) -> bool:
    """Whether a GPU with ``usable_gib`` satisfies a request for ``asked_gib``.

    People ask in the sizes on the box, and a GPU never shows quite that: an "80 GB" H100 shows
    79.6. So up to ``MEMORY_TOLERANCE`` (2 %) may be missing. A "48 GB" A40 with in-band ECC shows
    45.0 and does not satisfy 48, nor would 46. Raises ValueError for NaN or negative figures.
    """
    if not (math.isfinite(usable_gib) and math.isfinite(asked_gib)):
        raise ValueError(f"memory must be a finite number, got {usable_gib} and {asked_gib}")
    if usable_gib < 0 or asked_gib < 0:
        raise ValueError(f"memory cannot be negative, got {usable_gib} and {asked_gib}")
    return usable_gib >= asked_gib * (1 - MEMORY_TOLERANCE)
