"""``nvidia-ml-py`` with its return codes as typed errors, mapped once, by code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml


class NvmlError(Exception):
    """Base of what NVML may answer instead of a value. ``code`` is NVML's own."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        super().__init__(words)


class NvmlUnavailable(NvmlError):
    """There is no driver, no library, or they do not fit each other: nothing can be read."""


class DeviceLost(NvmlError):
    """The device fell off the bus, or needs a reset before anything else."""


class NotTold(NvmlError):
    """This device, driver or library does not tell that."""


_KINDS: dict[int, type[NvmlError]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: NvmlUnavailable,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NvmlUnavailable,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NvmlUnavailable,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NvmlUnavailable,
    pynvml.NVML_ERROR_NO_PERMISSION: NotTold,
    pynvml.NVML_ERROR_GPU_IS_LOST: DeviceLost,
    pynvml.NVML_ERROR_RESET_REQUIRED: DeviceLost,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NotTold,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: NotTold,
    pynvml.NVML_ERROR_NOT_FOUND: NotTold,
    pynvml.NVML_ERROR_NO_DATA: NotTold,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: NotTold,
}

Handle = Any


class Nvml:
    """The library, initialised. Every call raises NvmlError and nothing else.

    A method of this class per question; a code that no table has is a plain NvmlError.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Initialise, or do so again after the driver was reloaded; raises NvmlUnavailable."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(error.value, str(error)) from error

    def count(self) -> int:
        """How many devices there are, lost ones included."""
        return int(self._ask(pynvml.nvmlDeviceGetCount))

    def driver(self) -> str:
        """The driver's version."""
        return str(self._ask(pynvml.nvmlSystemGetDriverVersion))

    def device(self, index: int) -> Handle:
        """The device at an index."""
        return self._ask(pynvml.nvmlDeviceGetHandleByIndex, index)

    def name(self, device: Handle) -> str:
        """What the device calls itself."""
        return str(self._ask(pynvml.nvmlDeviceGetName, device))

    def uuid(self, device: Handle) -> str:
        """``GPU-…`` or ``MIG-…``, as CUDA_VISIBLE_DEVICES takes it."""
        return str(self._ask(pynvml.nvmlDeviceGetUUID, device))

    def memory_bytes(self, device: Handle) -> tuple[int, int]:
        """Total and used."""
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo, device)
        return int(memory.total), int(memory.used)

    def bus_id(self, device: Handle) -> str:
        """``00000000:3b:00.0``, in lower case."""
        return _bus_id(self._ask(pynvml.nvmlDeviceGetPciInfo, device))

    def common_ancestor(self, one: Handle, other: Handle) -> int:
        """Where two devices' PCIe paths meet (``nvmlGpuTopologyLevel_t``)."""
        return int(self._ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other))

    def pcie(self, device: Handle) -> tuple[int, int]:
        """Generation and lanes that device and slot can both do."""
        return (
            self._ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, device),
            self._ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, device),
        )

    def nvlink_is_active(self, device: Handle, link: int) -> bool:
        """Whether a link is up; NotTold past the last one."""
        return bool(self._ask(pynvml.nvmlDeviceGetNvLinkState, device, link))

    def nvlink_version(self, device: Handle, link: int) -> int:
        """NVML's number for the link's version (see :func:`topology.nvlink_generation`)."""
        return int(self._ask(pynvml.nvmlDeviceGetNvLinkVersion, device, link))

    def nvlink_is_to_a_switch(self, device: Handle, link: int) -> bool:
        """Whether an NVSwitch is at the other end; NotTold by old drivers."""
        kind = self._ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, link)
        return bool(kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)

    def nvlink_peer(self, device: Handle, link: int) -> str:
        """The bus id of what is at the other end."""
        return _bus_id(self._ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link))

    def mig_is_on(self, device: Handle) -> bool:
        """Whether the device is cut into instances."""
        current = self._ask(pynvml.nvmlDeviceGetMigMode, device)[0]
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)

    def mig_slots(self, device: Handle) -> int:
        """How many instances there may be."""
        return int(self._ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, device))

    def mig_device(self, device: Handle, index: int) -> Handle:
        """One instance; NotTold where there is none."""
        return self._ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)

    def gpu_instance_number(self, instance: Handle) -> int:
        """The number of the GPU instance that a MIG device belongs to."""
        return int(self._ask(pynvml.nvmlDeviceGetGpuInstanceId, instance))

    def gpu_instance_run(self, device: Handle, number: int) -> tuple[int, int]:
        """First memory slice and number of them of a GPU instance; for privileged users."""
        instance = self._ask(pynvml.nvmlDeviceGetGpuInstanceById, device, number)
        placement = self._ask(pynvml.nvmlGpuInstanceGetInfo, instance).placement
        return int(placement.start), int(placement.size)

    def gpu_instance_profiles(self, device: Handle) -> list[tuple[int, str]]:
        """The id and the name (``1g.10gb``) of each GPU instance profile of the device."""
        found = []
        for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = self._ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, device, profile)
            except NotTold:
                continue  # not one of this device
            found.append((int(info.id), _text(info.name).removeprefix("MIG ")))
        return found

    def gpu_instances_left(self, device: Handle, profile_id: int) -> int:
        """How many more of a profile could be created now; for privileged users."""
        return int(self._ask(pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity, device, profile_id))

    def possible_runs(self, device: Handle, profile_id: int) -> list[tuple[int, int]]:
        """First memory slice and number of them of each position of a profile, taken or not; for
        privileged users."""
        count = ctypes.c_uint()
        ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
        self._ask(ask, device, profile_id, None, ctypes.byref(count))
        found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        self._ask(ask, device, profile_id, found, ctypes.byref(count))
        return [(int(at.start), int(at.size)) for at in found[: count.value]]

    def uncorrected_errors(self, device: Handle) -> int:
        """Uncorrectable memory errors since the driver was loaded."""
        return int(
            self._ask(
                pynvml.nvmlDeviceGetTotalEccErrors,
                device,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
        )

    def row_remapping_failed(self, device: Handle) -> bool:
        """Whether broken memory could not be replaced by spare rows."""
        return bool(self._ask(pynvml.nvmlDeviceGetRemappedRows, device)[3])

    def temperature_c(self, device: Handle) -> float:
        """Of the chip."""
        return float(
            self._ask(pynvml.nvmlDeviceGetTemperature, device, pynvml.NVML_TEMPERATURE_GPU)
        )

    def power_w(self, device: Handle) -> float:
        """Drawn now."""
        return float(self._ask(pynvml.nvmlDeviceGetPowerUsage, device) / 1000.0)

    def power_limit_w(self, device: Handle) -> float:
        """Drawn at most."""
        return float(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, device) / 1000.0)

    def utilization(self, device: Handle) -> float:
        """Part of the last sample period in which a kernel ran."""
        return float(self._ask(pynvml.nvmlDeviceGetUtilizationRates, device).gpu) / 100.0

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise _KINDS.get(error.value, NvmlError)(error.value, str(error)) from error


def _bus_id(pci: Any) -> str:
    return _text(pci.busId).lower()


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
