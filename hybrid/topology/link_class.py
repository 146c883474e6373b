"""What a job's word for its links means on a machine, and what slow links cost it."""

from __future__ import annotations

import math

from hybrid.domain.job_spec import LinkClass
from hybrid.hardware import GpuModel
from hybrid.topology.levels import PcieLevel, pcie_gbps

MINIMUM_GBPS = {
    LinkClass.ANY: 0.0,
    LinkClass.PCIE: pcie_gbps(PcieLevel.NODE, generation=3),
    LinkClass.NVLINK: 20.0,
}
"""The least usable bottleneck, in GB/s, that each word accepts.

``any``: none needed. ``pcie``: what two GPUs on one socket reach over PCIe 3.0 x16, so that a
PCIe 3.0 path between sockets does not do and a PCIe 4.0 one does. ``nvlink``: one link of the
first generation, and every link of the ring must be NVLink: PCIe 5.0 reaches 50 GB/s, but shares
it with everything else on the way.
"""

COMMUNICATION_SHARE = 0.05
"""The part of a multi-GPU job's step that is spent waiting for links at the model's own best link.
An estimate for data-parallel training, most of whose communication hides behind computation."""

HOST_STAGED_GBPS = 3.0
"""GB/s between two GPUs with no direct path: each copy passes through host memory twice."""


def reference_gbps(model: GpuModel) -> float:
    """GB/s in one direction of the best link two GPUs of this model can have: NVLink, else one
    PCIe switch."""
    over_pcie = pcie_gbps(PcieLevel.PIX, model.pcie_generation, model.pcie_lanes)
    return max(model.nvlink.gbps if model.nvlink else 0.0, over_pcie)


def link_efficiency(bottleneck_gbps: float, model: GpuModel) -> float:
    """The part of its speed that a multi-GPU job keeps on links of this usable bottleneck.

    With c = COMMUNICATION_SHARE of a step spent on links of the reference bandwidth r, a step on
    links of bandwidth b < r takes (1 − c) + c·r/b as long: the rate is 1 / ((1 − c) + c·r/b),
    in (0, 1], 1 from r upwards and for one GPU (infinite bottleneck). Amdahl's law for the links;
    an estimate, replaced by learned speeds once there are any. Raises ValueError for NaN or a
    negative bandwidth.
    """
    if math.isnan(bottleneck_gbps) or bottleneck_gbps < 0:
        raise ValueError(f"{bottleneck_gbps} is not a bandwidth")
    slowdown = reference_gbps(model) / max(bottleneck_gbps, HOST_STAGED_GBPS)
    return 1.0 / ((1 - COMMUNICATION_SHARE) + COMMUNICATION_SHARE * max(slowdown, 1.0))
