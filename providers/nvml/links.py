"""What connects the devices: active NVLinks, NVSwitches, and where PCIe paths meet."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid.domain.node import Gpu
from hybrid.hardware import MODELS
from hybrid.topology import InvalidTopology, PcieLevel, from_levels, nvlink_generation
from providers.nvml.binding import Handle, Nvml, NvmlError

MAX_LINKS = 36
_PCIE_GENERATION, _PCIE_LANES = 3, 16

Matrix = tuple[tuple[float, ...], ...]


def read_links(nvml: Nvml, devices: Sequence[Handle | None], gpus: Sequence[Gpu]) -> Matrix:
    """GB/s in one direction between any two of ``gpus``; a handle of None (a device that is lost,
    or a MIG instance, which has no links of its own) reaches nobody."""
    there = [i for i, device in enumerate(devices) if device is not None]
    if len(there) < 2:
        return _nothing(len(devices))
    handles = [devices[i] for i in there]
    reader = _LinkReader(nvml, handles)
    count = range(len(there))
    levels = [[reader.level(i, j) for j in count] for i in count]
    links, switch_links, version = reader.nvlinks()
    generation, lanes = _pcie(nvml, handles, [gpus[i] for i in there])
    model = MODELS.get(gpus[there[0]].model)
    port = model.nvlink if model is not None else None
    try:
        graph = from_levels(
            levels,
            links,
            pcie_generation=generation,
            pcie_lanes=lanes,
            nvlink_generation=_generation(version),
            nvlink_gbps_per_link=port.gbps_per_link if port else None,
            switch_links=switch_links,
        )
    except InvalidTopology:
        # A report that contradicts itself promises nothing.
        return _nothing(len(devices))
    rows = [[0.0] * len(devices) for _ in devices]
    for a, i in enumerate(there):
        for b, j in enumerate(there):
            rows[i][j] = graph.gbps[a][b]
    return tuple(map(tuple, rows))


class _LinkReader:
    def __init__(self, nvml: Nvml, devices: Sequence[Handle]) -> None:
        self._nvml = nvml
        self._devices = devices
        self._at_bus: dict[str, int] = {}
        for i, device in enumerate(devices):
            try:
                self._at_bus[nvml.bus_id(device)] = i
            except NvmlError:
                continue

    def level(self, i: int, j: int) -> int:
        """The common ancestor of two devices; the farthest where nobody says."""
        if i == j:
            return PcieLevel.SAME_BOARD
        low, high = min(i, j), max(i, j)
        try:
            return self._nvml.common_ancestor(self._devices[low], self._devices[high])
        except NvmlError:
            return PcieLevel.SYS

    def nvlinks(self) -> tuple[list[list[int]], list[int], int | None]:
        """Active links between devices (the fewer of what both ends say), from each device to
        switches, and the links' version."""
        count = len(self._devices)
        direct = [[0] * count for _ in range(count)]
        to_switches = [0] * count
        version: int | None = None
        for i, device in enumerate(self._devices):
            for link in range(MAX_LINKS):
                try:
                    if not self._nvml.nvlink_is_active(device, link):
                        continue
                    peer = self._peer(device, link)
                    version = version or self._nvml.nvlink_version(device, link)
                except NvmlError:
                    break  # past the last link
                if peer is None:
                    to_switches[i] += 1
                elif peer != i:
                    direct[i][peer] += 1
        both = [[min(direct[i][j], direct[j][i]) for j in range(count)] for i in range(count)]
        return both, to_switches, version

    def _peer(self, device: Handle, link: int) -> int | None:
        """The device at the other end; None for a switch (whatever is there and is none of our
        devices counts as one, as on drivers that do not tell the type)."""
        try:
            if self._nvml.nvlink_is_to_a_switch(device, link):
                return None
        except NvmlError:
            pass
        try:
            return self._at_bus.get(self._nvml.nvlink_peer(device, link))
        except NvmlError:
            return None


def _generation(version: int | None) -> int | None:
    try:
        return None if version is None else nvlink_generation(version)
    except ValueError:
        return None


def _pcie(nvml: Nvml, devices: Sequence[Handle], gpus: Sequence[Gpu]) -> tuple[int, int]:
    """The slowest slot counts for all: a path is as fast as its slower end."""
    slots = []
    for device, gpu in zip(devices, gpus, strict=True):
        known = MODELS.get(gpu.model)
        try:
            slots.append(nvml.pcie(device))
        except NvmlError:
            slots.append(
                (known.pcie_generation, known.pcie_lanes)
                if known
                else (_PCIE_GENERATION, _PCIE_LANES)
            )
    generation, lanes = min(slots, key=lambda slot: (2 ** slot[0] * slot[1], slot))
    return min(6, max(1, generation)), max(1, lanes)


def _nothing(count: int) -> Matrix:
    return tuple((0.0,) * count for _ in range(count))
