"""How the GPUs of a machine are parted into MIG instances, told without names: machines parted
alike are alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Node
from hybrid.domain.reasons import HardwareMismatch
from hybrid.hardware import MODELS, MigTable

_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")

Room = tuple[str, str, tuple[int, ...]]
"""GPU model, profile, and the memory slices at which one more instance could begin."""


@dataclass(frozen=True, slots=True)
class Parting:
    """``parent_of`` and ``starts`` have an entry for each device: the number of the GPU that it is
    an instance of, and its first memory slice; None for a device that is none, and where nobody
    says. ``room`` is what would fit beside the instances."""

    parent_of: tuple[int | None, ...] = ()
    starts: tuple[int | None, ...] = ()
    room: tuple[Room, ...] = ()


NOT_PARTED = Parting()


def parting_of(node: Node) -> Parting:
    """The parting of a machine; ``NOT_PARTED`` for one without any."""
    # hot: once per node
    parts = [gpu.mig for gpu in node.gpus]
    if not node.parted and not any(parts):
        return NOT_PARTED
    numbers: dict[GpuId, int] = {}
    for mig in parts:
        if mig is not None:
            numbers.setdefault(mig.parent, len(numbers))
    rooms = {(gpu.model, room.profile, room.starts) for gpu in node.parted for room in gpu.room}
    return Parting(
        tuple([None if mig is None else numbers[mig.parent] for mig in parts]),
        tuple([None if mig is None else mig.start for mig in parts]),
        tuple(sorted(rooms)),
    )


def profile_of(model: str) -> str:
    """The GPU instance profile of a device's model, ``3g.40gb`` of ``KEY:1c.3g.40gb``; empty for a
    whole device."""
    return _COMPUTE_INSTANCE.sub("", model.partition(":")[2])


def table_of(model: str) -> MigTable | None:
    """The MIG profiles of the GPU that a device is, or is an instance of."""
    known = MODELS.get(model.partition(":")[0])
    return None if known is None else known.mig


def no_instance(profile: str, models: tuple[str, ...], parting: Parting) -> HardwareMismatch:
    """Why a machine has no instance of a profile, and whether it could get one."""
    others = sorted({model.partition(":")[2] for model in models if ":" in model})
    has = ", ".join(others) or "no MIG instances"
    rooms = {(model, starts) for model, name, starts in parting.room if name == profile}
    if rooms:
        told = "; ".join(f"{model} at memory slice {either(at)}" for model, at in sorted(rooms))
        return HardwareMismatch("MIG profile", profile, f"{has}, and room for one on {told}")
    for key in sorted({model.partition(":")[0] for model in models}):
        table = table_of(key)
        if table is not None and profile not in table.names:
            return HardwareMismatch(
                "MIG profile", profile, f"{has}; {key} can be parted into {', '.join(table.names)}"
            )
    return HardwareMismatch("MIG profile", profile, has)


def either(starts: tuple[int, ...]) -> str:
    """Memory slices in words."""
    *most, last = map(str, starts)
    return f"{', '.join(most)} or {last}" if most else last
