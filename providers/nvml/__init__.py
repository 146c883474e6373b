"""NVIDIA GPUs of this machine: what there is, what connects it, how it is doing.

============================  ==================================================================
:mod:`.inventory`             the GpuInventory: devices in index order, links, telemetry
:mod:`.binding`               ``nvidia-ml-py`` with its codes as typed errors
:mod:`.devices`               one device → Gpu
:mod:`.mig`                   the instances of a device in MIG mode, and what would still fit
:mod:`.answers`               what stands for an answer that a device does not give
:mod:`.links`                 NVLinks and PCIe levels → GB/s between any two
============================  ==================================================================

The binding is imported when an inventory is asked for, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from providers.nvml.inventory import NvmlInventory


def open_inventory() -> NvmlInventory | None:
    """The GPUs of this machine; None where there is no driver, no GPU, or no ``nvidia-ml-py``
    (which the extra ``nvidia`` installs)."""
    try:
        import pynvml  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        return None
    from providers.nvml.binding import Nvml, NvmlUnavailable
    from providers.nvml.inventory import NvmlInventory

    try:
        inventory = NvmlInventory(Nvml())
    except NvmlUnavailable:
        return None
    found = inventory.read()
    return inventory if found.gpus or found.parted else None
