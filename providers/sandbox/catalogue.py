"""What the sandbox sells: machine types, their vCPUs, devices and list prices.

vCPU counts and device counts come from moto's copy of the EC2 type listing, so that the types a
client can describe and the types it can launch agree. List prices are the published on-demand Linux
prices of us-east-1 as of 2026-07-20 (karpenter-provider-aws, Apache-2.0), in USD per hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

ON_DEMAND_USD_PER_HOUR: Final = MappingProxyType(
    {
        machine_type: Decimal(price)
        for machine_type, price in {
            "g4dn.xlarge": "0.526",
            "g4dn.2xlarge": "0.752",
            "g4dn.4xlarge": "1.204",
            "g4dn.8xlarge": "2.176",
            "g4dn.16xlarge": "4.352",
            "g4dn.12xlarge": "3.912",
            "g4dn.metal": "7.824",
            "g5.xlarge": "1.006",
            "g5.2xlarge": "1.212",
            "g5.12xlarge": "5.672",
            "g5.48xlarge": "16.288",
            "g6.xlarge": "0.8048",
            "g6.2xlarge": "0.9776",
            "g6.4xlarge": "1.3232",
            "g6.12xlarge": "4.6016",
            "g6.48xlarge": "13.3504",
            "g6e.xlarge": "1.861",
            "g6e.12xlarge": "10.49264",
            "g6e.48xlarge": "30.13118",
            "p3dn.24xlarge": "31.212",
            "p4d.24xlarge": "21.957642",
            "p4de.24xlarge": "27.44705",
            "p5.4xlarge": "6.88",
            "p5.48xlarge": "55.04",
            "p5en.48xlarge": "63.296",
            "p6-b200.48xlarge": "113.9328",
        }.items()
    }
)

# Where no spot series is scripted, spot sells at this share of the list price: about what GPU
# families have cost in the long run. It is a default of the double, not a claim about a market.
DEFAULT_SPOT_SHARE: Final = Decimal("0.35")

# How the devices of one machine are joined, by family. Everything else is plain PCIe.
_LINK_BY_FAMILY: Final = MappingProxyType(
    {
        "p3dn": "nvlink",
        "p4d": "nvswitch",
        "p4de": "nvswitch",
        "p5": "nvswitch",
        "p5e": "nvswitch",
        "p5en": "nvswitch",
        "p6-b200": "nvswitch",
        "p6-b300": "nvswitch",
    }
)

# EC2's device names with the memory that tells two variants apart → the model's name in pools.
_MODEL_BY_DEVICE: Final = MappingProxyType(
    {
        ("A100", 40960): "a100-40gb",
        ("A100", 81920): "a100-80gb",
        ("V100", 32768): "v100-32gb",
    }
)


@dataclass(frozen=True, slots=True)
class MachineType:
    """One row of the cloud's type listing. ``gpu_memory_mib`` is per device."""

    name: str
    vcpus: int
    memory_mib: int
    gpu_count: int
    gpu_name: str
    gpu_memory_mib: int

    @property
    def family(self) -> str:
        return self.name.split(".", 1)[0]

    @property
    def virtual_gpus(self) -> str:
        """The devices as ``model:count:links``, as a node agent declares them without NVML."""
        if self.gpu_count == 0:
            return ""
        model = _MODEL_BY_DEVICE.get(
            (self.gpu_name, self.gpu_memory_mib), self.gpu_name.lower().replace(" ", "-")
        )
        return f"{model}:{self.gpu_count}:{_LINK_BY_FAMILY.get(self.family, 'pcie')}"


def describe(machine_type: str) -> MachineType | None:
    """The type as EC2 lists it, or None when EC2 does not know it."""
    # moto's listing is 1,400 types and costs a second to load: only who sells machines pays it
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    row = INSTANCE_TYPES.get(machine_type)
    if row is None:
        return None
    gpus = row.get("GpuInfo", {}).get("Gpus", [{}])
    return MachineType(
        name=machine_type,
        vcpus=int(row["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(row["MemoryInfo"]["SizeInMiB"]),
        gpu_count=int(gpus[0].get("Count", 0)),
        gpu_name=str(gpus[0].get("Name", "")),
        gpu_memory_mib=int(gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0)),
    )


def quota_group(machine_type: str) -> str:
    """The EC2 quota a type counts against: ``G and VT``, ``P``, ``Inf``, ``Trn``, ``Standard``."""
    family = machine_type.split(".", 1)[0].lower()
    if family.startswith(("inf", "trn")):
        return "Inf" if family.startswith("inf") else "Trn"
    if family.startswith(("g", "vt")):
        return "G and VT"
    if family.startswith("p"):
        return "P"
    return "Standard"
