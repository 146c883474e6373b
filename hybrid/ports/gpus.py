"""The port to the GPUs of the machine an agent runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu, PartedGpu


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What one device says of itself now; None where it does not say.

    ``utilization`` is the fraction of the last sample period in which a kernel ran.
    """

    gpu_id: GpuId
    utilization: float | None = None
    memory_used_gib: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSet:
    """The devices of a machine and what connects them, read together.

    ``links_gbps[i][j]`` belongs to ``gpus[i]`` and ``gpus[j]``: GB/s per direction, symmetric,
    diagonal 0. ``parted`` has the GPUs in MIG mode, whose instances are among ``gpus``.
    ``driver`` is empty when there is none.
    """

    gpus: tuple[Gpu, ...] = ()
    links_gbps: tuple[tuple[float, ...], ...] = ()
    parted: tuple[PartedGpu, ...] = ()
    driver: str = ""


class GpuInventory(Protocol):
    """Where an agent learns of its devices. No method raises for a device that is lost or broken:
    it is listed as unhealthy, with the reason."""

    def read(self) -> GpuSet:
        """Every device in index order; devices that fell off the bus stay listed."""
        ...

    def telemetry(self) -> tuple[GpuReading, ...]:
        """A reading of every device that answers."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredGpus:
    """Devices that somebody declared: virtual ones, or none at all. They have no telemetry."""

    declared: GpuSet = GpuSet()

    def read(self) -> GpuSet:
        """The declaration."""
        return self.declared

    def telemetry(self) -> tuple[GpuReading, ...]:
        """Nothing: a declaration has no sensors."""
        return ()
