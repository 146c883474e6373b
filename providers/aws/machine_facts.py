"""EC2's own listing of a machine type, joined with the hardware catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hybrid.hardware.catalogue import UnknownGpuModel, identify_ec2
from hybrid.hardware.machine_types import UnknownMachineType, machine_type
from hybrid.hardware.model import GpuModel
from hybrid.topology.presets import default_preset, join, preset
from providers.offering import MachineFacts


def facts(listing: Iterable[Mapping[str, Any]]) -> dict[str, MachineFacts]:
    """By machine type; types whose GPU is in no catalogue are left out."""
    found = {}
    for row in listing:
        made = _facts(row)
        if made is not None:
            found[str(row["InstanceType"])] = made
    return found


def fabric_adapters(listing: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many Elastic Fabric Adapters a machine of each type can have, 0 for those without."""
    found = {}
    for row in listing:
        network = row.get("NetworkInfo", {})
        most = int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1))
        found[str(row["InstanceType"])] = most if network.get("EfaSupported") else 0
    return found


def _facts(row: Mapping[str, Any]) -> MachineFacts | None:
    architectures = row.get("ProcessorInfo", {}).get("SupportedArchitectures", ["x86_64"])
    cpus = float(row["VCpuInfo"]["DefaultVCpus"])
    memory_gib = float(row["MemoryInfo"]["SizeInMiB"]) / 1024
    architecture = "aarch64" if "arm64" in architectures else "x86_64"
    listed = row.get("GpuInfo", {}).get("Gpus", ())
    if not listed:
        return MachineFacts(
            gpus=0,
            gpu_model="",
            gpu_memory_gib=0.0,
            links_gbps=(),
            cpus=cpus,
            memory_gib=memory_gib,
            architecture=architecture,
        )
    groups: list[tuple[GpuModel, int]] = []
    for each in listed:
        try:
            model = identify_ec2(each["Name"], float(each["MemoryInfo"]["SizeInMiB"]))
        except UnknownGpuModel:
            return None
        groups.append((model, int(each["Count"])))
    first, count = groups[0]
    graph = preset(_links(str(row["InstanceType"]), first.key, count), first.key, count)
    for model, more in groups[1:]:
        # GPUs of two models meet over PCIe
        other = preset(default_preset(model.key, more), model.key, more)
        graph = join(graph, other, min(first.pcie_gbps, model.pcie_gbps))
    mixed = len({model.key for model, _ in groups}) > 1
    return MachineFacts(
        gpus=graph.count,
        gpu_model=first.key,
        gpu_memory_gib=first.usable_memory_gib,
        links_gbps=graph.gbps,
        cpus=cpus,
        memory_gib=memory_gib,
        architecture=architecture,
        devices=tuple((m.key, m.usable_memory_gib) for m, n in groups for _ in range(n))
        if mixed
        else (),
    )


def _links(name: str, model_key: str, count: int) -> str:
    """The link preset: EC2 does not list how GPUs are connected, the catalogue does."""
    try:
        return machine_type(name).links
    except UnknownMachineType:
        return default_preset(model_key, count)
