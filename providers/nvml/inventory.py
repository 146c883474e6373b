"""Implements :class:`~hybrid.ports.gpus.GpuInventory` over NVML."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu, PartedGpu
from hybrid.ports.gpus import GpuReading, GpuSet
from providers.nvml.binding import DeviceLost, Handle, Nvml, NvmlError, NvmlUnavailable
from providers.nvml.devices import read_device
from providers.nvml.links import Matrix, read_links
from providers.nvml.mig import read_instances, read_parted

_GIB = 2**30
T = TypeVar("T")


class NvmlInventory:
    """The devices that NVML lists. One that is lost stays listed, unhealthy, under the id it had;
    one that was never seen well is listed under ``GPU-unreadable-N``. Safe for many threads."""

    def __init__(self, nvml: Nvml, *, sysfs: Path = Path("/sys")) -> None:
        self._nvml = nvml
        self._sysfs = sysfs
        self._lock = threading.Lock()
        self._known: dict[int, list[Gpu]] = {}
        self._parted: dict[int, PartedGpu] = {}
        self._linked: tuple[tuple[tuple[GpuId, bool], ...], Matrix] | None = None

    def read(self) -> GpuSet:
        """Every device, or its MIG instances, in index order."""
        with self._lock:
            try:
                return self._read()
            except NvmlUnavailable as error:
                return self._all_lost(f"the driver does not answer: {error}")

    def _read(self) -> GpuSet:
        gpus: list[Gpu] = []
        handles: list[Handle | None] = []
        self._parted.clear()
        for index in range(self._count()):
            here, handle = self._read_one(index, len(gpus))
            gpus += here
            handles += [handle] * len(here)
        return GpuSet(
            gpus=tuple(gpus),
            links_gbps=self._links(handles, gpus),
            parted=tuple(parted for _, parted in sorted(self._parted.items())),
            driver=self._driver(),
        )

    def _count(self) -> int:
        try:
            return self._nvml.count()
        except NvmlUnavailable:
            self._nvml.start()  # the driver may have been reloaded
            return self._nvml.count()

    def _driver(self) -> str:
        try:
            return self._nvml.driver()
        except NvmlError:
            return ""

    def _read_one(self, index: int, first: int) -> tuple[list[Gpu], Handle | None]:
        """A device's Gpus, numbered from ``first``, and its handle if it is whole and well."""
        try:
            device = self._nvml.device(index)
            gpu = read_device(self._nvml, device, first, self._sysfs)
            if self._is_cut(device):
                instances = read_instances(self._nvml, device, gpu, first)
                if gpu.healthy:
                    self._parted[index] = read_parted(self._nvml, device, gpu, index, instances)
                self._known[index] = instances
                return instances, None
        except NvmlUnavailable:
            raise
        except NvmlError as error:
            return self._lost(index, first, _words(error)), None
        self._known[index] = [gpu]
        return [gpu], device

    def _is_cut(self, device: Handle) -> bool:
        try:
            return self._nvml.mig_is_on(device)
        except DeviceLost:
            raise
        except NvmlError:
            return False

    def _lost(self, index: int, first: int, reason: str) -> list[Gpu]:
        known = self._known.get(index) or [
            Gpu(id=GpuId(f"GPU-unreadable-{index}"), index=first, model="unknown", memory_gib=0.0)
        ]
        return [
            replace(gpu, index=first + i, healthy=False, health_reason=reason)
            for i, gpu in enumerate(known)
        ]

    def _all_lost(self, reason: str) -> GpuSet:
        gpus: list[Gpu] = []
        for index in sorted(self._known):
            gpus += self._lost(index, len(gpus), reason)
        nothing = tuple((0.0,) * len(gpus) for _ in gpus)
        return GpuSet(gpus=tuple(gpus), links_gbps=nothing)

    def _links(self, handles: list[Handle | None], gpus: list[Gpu]) -> Matrix:
        """Links are asked for again when a device comes, goes, or is cut."""
        key = tuple((gpu.id, handle is not None) for gpu, handle in zip(gpus, handles, strict=True))
        if self._linked is None or self._linked[0] != key:
            self._linked = (key, read_links(self._nvml, handles, gpus))
        return self._linked[1]

    def telemetry(self) -> tuple[GpuReading, ...]:
        """A reading of every whole device that answers; MIG instances have no sensors."""
        with self._lock:
            found = []
            try:
                for index in range(self._count()):
                    reading = self._reading(index)
                    if reading is not None:
                        found.append(reading)
            except NvmlUnavailable:
                return ()
            return tuple(found)

    def _reading(self, index: int) -> GpuReading | None:
        nvml = self._nvml
        try:
            device = nvml.device(index)
            return GpuReading(
                gpu_id=GpuId(nvml.uuid(device)),
                utilization=_or_none(lambda: nvml.utilization(device)),
                memory_used_gib=_or_none(lambda: round(nvml.memory_bytes(device)[1] / _GIB, 3)),
                temperature_c=_or_none(lambda: nvml.temperature_c(device)),
                power_w=_or_none(lambda: nvml.power_w(device)),
                power_limit_w=_or_none(lambda: nvml.power_limit_w(device)),
                ecc_uncorrected=_or_none(lambda: nvml.uncorrected_errors(device)),
            )
        except NvmlUnavailable:
            raise
        except NvmlError:
            return None


def _or_none(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except DeviceLost:
        raise
    except NvmlError:
        return None


def _words(error: NvmlError) -> str:
    if isinstance(error, DeviceLost):
        return "the device fell off the bus or needs a reset"
    return f"the device does not answer: {error}"
