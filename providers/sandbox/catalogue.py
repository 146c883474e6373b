"""What the sandbox sells: machine types, their vCPUs, devices and list prices.

Which types there are, and their vCPUs, is moto's copy of the EC2 type listing, so that the types a
client can describe and the types it can launch agree; their devices and links are those of the
hardware catalogue. List prices are the published on-demand Linux
prices of us-east-1 as of 2026-07-20 (karpenter-provider-aws, Apache-2.0), in USD per hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from hybrid.hardware.machine_types import UnknownMachineType, machine_type

ON_DEMAND_USD_PER_HOUR: Final = MappingProxyType(
    {
        name: Decimal(price)
        for name, price in {
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


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type on sale. ``virtual_gpus`` is ``model:count:links``, empty without GPUs."""

    name: str
    vcpus: int
    memory_mib: int
    gpu_count: int
    virtual_gpus: str


def describe(name: str) -> MachineType | None:
    """The type as EC2 lists it, or None when EC2 does not know it."""
    # moto's listing is 1,400 types and takes a second to load: only who sells machines pays it
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    row = INSTANCE_TYPES.get(name)
    if row is None:
        return None
    try:
        known = machine_type(name)
    except UnknownMachineType:
        gpus, virtual = 0, ""
    else:
        gpus, virtual = known.gpus, f"{known.gpu}:{known.gpus}:{known.links}"
    return MachineType(
        name=name,
        vcpus=int(row["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(row["MemoryInfo"]["SizeInMiB"]),
        gpu_count=gpus,
        virtual_gpus=virtual,
    )


def quota_group(name: str) -> str:
    """The EC2 quota a type counts against: ``G and VT``, ``P``, ``Inf``, ``Trn``, ``Standard``."""
    family = name.split(".", 1)[0].lower()
    if family.startswith(("inf", "trn")):
        return "Inf" if family.startswith("inf") else "Trn"
    if family.startswith(("g", "vt")):
        return "G and VT"
    if family.startswith("p"):
        return "P"
    return "Standard"
