"""Compute Engine's own listing of a machine type, joined with the hardware catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid.hardware.catalogue import UnknownGpuModel, identify_gce
from hybrid.hardware.machine_types import UnknownMachineType, machine_type
from hybrid.topology.graph import InvalidTopology
from hybrid.topology.presets import default_preset, preset
from providers.gcp.names import read_type
from providers.offering import MachineFacts


def facts(written: str, row: Mapping[str, Any]) -> MachineFacts | None:
    """What a machine of the type that a pool writes has, given the listing of its base type; None
    when its GPU is in no catalogue."""
    accelerator, count = gpus(written, row)
    common: dict[str, Any] = {
        "cpus": float(row["guestCpus"]),
        "memory_gib": float(row["memoryMb"]) / 1024,
        "architecture": "aarch64" if row.get("architecture") == "ARM64" else "x86_64",
    }
    if count == 0:
        return MachineFacts(gpus=0, gpu_model="", gpu_memory_gib=0.0, links_gbps=(), **common)
    try:
        model = identify_gce(accelerator)
        graph = preset(_links(written, model.key, count), model.key, count)
    except (UnknownGpuModel, InvalidTopology):
        return None
    return MachineFacts(
        gpus=count,
        gpu_model=model.key,
        gpu_memory_gib=model.usable_memory_gib,
        links_gbps=graph.gbps,
        **common,
    )


def gpus(written: str, row: Mapping[str, Any]) -> tuple[str, int]:
    """The accelerator type of a machine, and how many of it there are."""
    read = read_type(written)
    if read.accelerator:
        return read.accelerator, read.count
    listed = row.get("accelerators") or ()
    if not listed:
        return "", 0
    return str(listed[0]["guestAcceleratorType"]), int(listed[0]["guestAcceleratorCount"])


def _links(written: str, model_key: str, count: int) -> str:
    """The link preset: Compute Engine does not list how GPUs are connected, the catalogue does."""
    try:
        return machine_type(written).links
    except UnknownMachineType:
        return default_preset(model_key, count)
