"""One device as a Gpu."""

from __future__ import annotations

import re
from pathlib import Path

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu
from hybrid.hardware import UnknownGpuModel, identify
from providers.nvml.answers import told
from providers.nvml.binding import Handle, Nvml

_GIB = 2**30


def model_key(name: str, memory_bytes: int) -> str:
    """The catalogue's key of the model; for one it does not have, the name in lower-case words,
    so that a job may still ask for it by that."""
    try:
        return identify(name, memory_bytes / 2**20).key
    except UnknownGpuModel:
        words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        return words.removeprefix("nvidia-") or "unknown"


def read_device(nvml: Nvml, device: Handle, index: int, sysfs: Path) -> Gpu:
    """A whole device; raises DeviceLost or NvmlError when it cannot even say what it is."""
    total, _ = nvml.memory_bytes(device)
    reason = health_reason(nvml, device)
    return Gpu(
        id=GpuId(nvml.uuid(device)),
        index=index,
        model=model_key(nvml.name(device), total),
        memory_gib=round(total / _GIB, 3),
        numa=numa_node(nvml, device, sysfs),
        healthy=not reason,
        health_reason=reason,
    )


def health_reason(nvml: Nvml, device: Handle) -> str:
    """Why nothing should be started on the device; empty when it is well."""
    errors = told(lambda: nvml.uncorrected_errors(device), 0)
    if errors:
        return f"{errors} uncorrectable memory error(s) since the driver was loaded"
    if told(lambda: nvml.row_remapping_failed(device), False):
        return "broken memory rows could not be replaced"
    return ""


def numa_node(nvml: Nvml, device: Handle, sysfs: Path) -> int:
    """The NUMA node that the device hangs on; 0 where nobody says."""
    bus_id = told(lambda: nvml.bus_id(device), "")
    # The kernel writes domains with four digits, NVML with eight.
    path = sysfs / "bus/pci/devices" / bus_id[-12:] / "numa_node"
    try:
        return max(0, int(path.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return 0
