"""The GPU catalogue: what each model can do, and every name it goes by. The lowest layer."""

from hybrid.hardware.catalogue import (
    MODELS,
    REFERENCE_KEY,
    AmbiguousGpuModel,
    ProductLabel,
    UnknownGpuModel,
    gpu_model,
    identify,
    identify_ec2,
    identify_gce,
    identify_label,
    nearest_names,
    resolve,
)
from hybrid.hardware.machine_types import MachineType, machine_type, machine_types
from hybrid.hardware.mig import MigPlacement, MigProfile, MigTable, UnknownMigProfile
from hybrid.hardware.model import (
    Architecture,
    Fabric,
    GpuModel,
    NvlinkPort,
    satisfies_memory,
)
from hybrid.hardware.part import part_of_gpu

__all__ = [
    "MODELS",
    "REFERENCE_KEY",
    "AmbiguousGpuModel",
    "Architecture",
    "Fabric",
    "GpuModel",
    "MachineType",
    "MigPlacement",
    "MigProfile",
    "MigTable",
    "NvlinkPort",
    "ProductLabel",
    "UnknownGpuModel",
    "UnknownMigProfile",
    "gpu_model",
    "identify",
    "identify_ec2",
    "identify_gce",
    "identify_label",
    "machine_type",
    "machine_types",
    "nearest_names",
    "part_of_gpu",
    "resolve",
    "satisfies_memory",
]
