"""MIG: the instances of a device as Gpus, where on it they are, and what would still fit.

What a program without privileges may not ask (placements, positions) is taken from the catalogue
where that suffices, and not told where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu, MigInstance, MigRoom, PartedGpu
from hybrid.hardware import MODELS, MigPlacement, UnknownMigProfile
from providers.nvml.answers import told
from providers.nvml.binding import Handle, NotTold, Nvml

_GIB = 2**30
_MIG_NAME = re.compile(r"\s+MIG\s+(?P<profile>\S+)\s*$")
_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")

_Run = tuple[int, int]
"""First memory slice and number of them."""


def read_instances(nvml: Nvml, device: Handle, parent: Gpu, index: int) -> list[Gpu]:
    """The MIG instances of a device, numbered from ``index``; the model is ``KEY:PROFILE``."""
    found: list[Gpu] = []
    for slot in range(told(lambda: nvml.mig_slots(device), 0)):
        try:
            instance = nvml.mig_device(device, slot)
        except NotTold:
            continue  # no instance in this slot
        total, _ = nvml.memory_bytes(instance)
        profile = _MIG_NAME.search(nvml.name(instance))
        found.append(
            Gpu(
                id=GpuId(nvml.uuid(instance)),
                index=index + len(found),
                model=f"{parent.model}:{profile['profile'] if profile else 'mig'}",
                memory_gib=round(total / _GIB, 3),
                numa=parent.numa,
                healthy=parent.healthy,
                health_reason=parent.health_reason,
                mig=_where(nvml, device, instance, parent.id),
            )
        )
    return found


def read_parted(
    nvml: Nvml, device: Handle, parent: Gpu, index: int, instances: Sequence[Gpu]
) -> PartedGpu:
    """A device in MIG mode, at NVML's ``index``, and what would fit beside its instances."""
    room = told(lambda: _room_by_driver(nvml, device, instances), None)
    if room is None:
        room = _room_by_catalogue(parent.model, instances)
    return PartedGpu(id=parent.id, index=index, model=parent.model, room=tuple(room))


def _where(nvml: Nvml, device: Handle, instance: Handle, parent: GpuId) -> MigInstance:
    number = told(lambda: nvml.gpu_instance_number(instance), None)
    if number is None:
        return MigInstance(parent=parent)
    run = told(lambda: nvml.gpu_instance_run(device, number), None)
    start, size = (None, None) if run is None else run
    return MigInstance(parent=parent, number=number, start=start, size=size)


def _room_by_driver(nvml: Nvml, device: Handle, instances: Sequence[Gpu]) -> list[MigRoom] | None:
    """None where an instance's place is not known, or the driver tells no profiles."""
    held, profiles = _runs(instances), nvml.gpu_instance_profiles(device)
    if held is None or not profiles:
        return None
    found: list[tuple[int, MigRoom]] = []
    for id_, name in profiles:
        if nvml.gpu_instances_left(device, id_) == 0:
            continue
        possible = nvml.possible_runs(device, id_)
        free = [run for run in possible if not any(_overlap(run, other) for other in held)]
        if free:
            room = MigRoom(profile=name, starts=tuple(sorted(start for start, _ in free)))
            found.append((free[0][1], room))
    return [room for _, room in sorted(found, key=lambda each: (each[0], each[1].profile))]


def _room_by_catalogue(model: str, instances: Sequence[Gpu]) -> list[MigRoom]:
    known = MODELS.get(model)
    held = _placements(instances)
    if known is None or known.mig is None or held is None:
        return []
    try:
        starts = {name: known.mig.starts(held, name) for name in known.mig.names}
    except UnknownMigProfile:
        return []
    return [MigRoom(profile=name, starts=at) for name, at in starts.items() if at]


def _placements(instances: Iterable[Gpu]) -> set[MigPlacement] | None:
    """Compute instances of one GPU instance are at one place."""
    found = set()
    for gpu in instances:
        if gpu.mig is None or gpu.mig.start is None:
            return None
        profile = _COMPUTE_INSTANCE.sub("", gpu.model.partition(":")[2])
        found.add(MigPlacement(gpu.mig.start, profile))
    return found


def _runs(instances: Iterable[Gpu]) -> set[_Run] | None:
    found = set()
    for gpu in instances:
        if gpu.mig is None or gpu.mig.start is None or gpu.mig.size is None:
            return None
        found.add((gpu.mig.start, gpu.mig.size))
    return found


def _overlap(one: _Run, other: _Run) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]
