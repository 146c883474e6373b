"""From what NVML reports about a pair of devices to GB/s.

NVML tells two things: how many NVLinks are active between two GPUs (or from a GPU to the switches),
and where their PCIe paths meet. The first is a bandwidth; the second is turned into one with the
shares below.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hybrid.hardware.model import PCIE_LANE_GBPS
from hybrid.topology.graph import InvalidTopology, LinkGraph


class PcieLevel(IntEnum):
    """Where the PCIe paths of two devices meet, nearest first, with NVML's own numbers
    (``nvmlGpuTopologyLevel_t``) and the names ``nvidia-smi topo -m`` prints."""

    SAME_BOARD = 0
    PIX = 10
    PXB = 20
    PHB = 30
    NODE = 40
    SYS = 50


PCIE_EFFICIENCY = 0.8
"""The part of PCIe's raw rate that peer-to-peer copies reach: packet headers and flow control."""

LEVEL_SHARE = {
    PcieLevel.SAME_BOARD: 1.0,
    PcieLevel.PIX: 1.0,
    PcieLevel.PXB: 0.95,
    PcieLevel.PHB: 0.8,
    PcieLevel.NODE: 0.7,
    PcieLevel.SYS: 0.5,
}
"""The part of that which is left after the path: one switch, several, the CPU's host bridge, two
host bridges of a socket, the link between sockets. Estimates, in the order and about the ratios of
the paths that NCCL prefers; a pool may declare measured bandwidths instead."""

NVLINK_GBPS_PER_LINK = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
"""GB/s in one direction of one link, by NVLink generation. Source: NVIDIA's P100, V100, A100, H100
and Blackwell architecture whitepapers. GPUs with graphics memory have narrower links (14.06): give
the rate of their model."""

_NVML_NVLINK_GENERATION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}


def nvlink_generation(nvml_version: int) -> int:
    """The generation behind ``nvmlDeviceGetNvLinkVersion`` (1 = 1.0, 2 = 2.0, 3 = 2.2, 4 = 3.0,
    5 = 3.1, 6 = 4.0, 7 = 5.0). Raises ValueError for a number NVML does not define."""
    try:
        return _NVML_NVLINK_GENERATION[nvml_version]
    except KeyError:
        raise ValueError(f"NVML defines no NVLink version {nvml_version}") from None


def pcie_gbps(level: PcieLevel, generation: int, lanes: int = 16) -> float:
    """GB/s in one direction between two devices whose paths meet at ``level``."""
    return round(PCIE_LANE_GBPS[generation] * lanes * PCIE_EFFICIENCY * LEVEL_SHARE[level], 3)


def from_levels(
    levels: Sequence[Sequence[int]],
    nvlinks: Sequence[Sequence[int]],
    *,
    pcie_generation: int,
    pcie_lanes: int = 16,
    nvlink_generation: int | None = None,
    nvlink_gbps_per_link: float | None = None,
    switch_links: Sequence[int] | None = None,
    numa: Sequence[int] | None = None,
) -> LinkGraph:
    """The graph of what NVML reports.

    ``levels[i][j]`` is the common ancestor (NVML's number or a PcieLevel), ``nvlinks[i][j]`` the
    number of active NVLinks from ``i`` straight to ``j``, ``switch_links[i]`` the number from ``i``
    to NVSwitches; two devices on the switches reach each other with the fewer of the two. A link
    runs at ``nvlink_gbps_per_link``, or at the rate of ``nvlink_generation``. The better of NVLink
    and PCIe counts. Raises InvalidTopology naming the pair.
    """
    count = len(levels)
    per_link = nvlink_gbps_per_link
    if per_link is None:
        if nvlink_generation is not None and nvlink_generation not in NVLINK_GBPS_PER_LINK:
            raise InvalidTopology(f"NVLink has no generation {nvlink_generation}")
        per_link = NVLINK_GBPS_PER_LINK[nvlink_generation] if nvlink_generation else 0.0
    if pcie_generation not in PCIE_LANE_GBPS:
        raise InvalidTopology(f"PCIe has no generation {pcie_generation}")
    if len(nvlinks) != count or (switch_links is not None and len(switch_links) != count):
        raise InvalidTopology(f"levels are of {count} devices, links are not")
    gbps = [[0.0] * count for _ in range(count)]
    nvlink = [0] * count
    for i in range(count):
        if len(levels[i]) != count or len(nvlinks[i]) != count:
            raise InvalidTopology("a row has not one entry per device", (i, count))
        for j in range(count):
            if i == j:
                continue
            links = nvlinks[i][j]
            if switch_links is not None:
                links = max(links, min(switch_links[i], switch_links[j]))
            if links < 0:
                raise InvalidTopology(f"{links} links", (i, j))
            if links and not per_link:
                raise InvalidTopology("NVLinks are active but their generation is unknown", (i, j))
            over_pcie = pcie_gbps(_level(levels[i][j], (i, j)), pcie_generation, pcie_lanes)
            gbps[i][j] = max(over_pcie, links * per_link)
            if links:
                nvlink[i] |= 1 << j
    numa_of = tuple(numa) if numa is not None else (0,) * count
    return LinkGraph(tuple(map(tuple, gbps)), numa_of, tuple(nvlink))


def _level(value: int, pair: tuple[int, int]) -> PcieLevel:
    try:
        return PcieLevel(value)
    except ValueError:
        raise InvalidTopology(f"{value} is no PCIe level", pair) from None
