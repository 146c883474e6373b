"""What nodes say of GPUs in MIG mode, as far as it can be true.

Two instances on the same memory slices, or an instance of a GPU that is listed whole beside it,
would be given out twice: neither takes runs, and each names the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hybrid.domain.node import Gpu, MigInstance, MigRoom, PartedGpu
from hybrid.hardware import MODELS

_MOST_SLICES = 64
"""Of a GPU that the catalogue does not know; those that it does have 4 or 8."""


def sensible_instances(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The devices, with instances whose place cannot be marked as not healthy."""
    if all(gpu.mig is None for gpu in gpus):
        return gpus
    found = [_placed(gpu) for gpu in gpus]
    for (i, one), (j, other) in combinations(list(enumerate(found)), 2):
        fault = _clash(one, other)
        if fault is not None:
            for k in (i, j):
                if found[k].healthy:
                    found[k] = replace(found[k], healthy=False, health_reason=fault)
    return tuple(found)


def sensible_parted(parted: tuple[PartedGpu, ...]) -> tuple[PartedGpu, ...]:
    """GPUs in MIG mode, with room only where there can be any."""
    told = tuple([replace(gpu, room=tuple(_room(gpu))) for gpu in parted])
    return parted if told == parted else told


def _room(gpu: PartedGpu) -> Iterator[MigRoom]:
    most = _slices(gpu.model)
    for room in gpu.room:
        starts = tuple(s for s in room.starts if _whole(s) and 0 <= s < most)
        if starts:
            yield room if starts == room.starts else replace(room, starts=starts)


def _placed(gpu: Gpu) -> Gpu:
    """The device, without a place that no instance can have."""
    fault = None if gpu.mig is None else _fault(gpu.mig, _slices(gpu.model))
    if fault is None:
        return gpu
    nowhere = None if gpu.mig is None else MigInstance(parent=gpu.mig.parent)
    return replace(gpu, mig=nowhere, healthy=False, health_reason=fault)


def _fault(mig: MigInstance, most: int) -> str | None:
    # whatever their types say: engines are other people's code
    start: Any = mig.start
    size: Any = mig.size
    if start is None and size is None:
        return None
    if not (_whole(start) and _whole(size)) or start < 0 or size < 1 or start + size > most:
        return f"MIG instance of {size} memory slices from {start} on, and {mig.parent} has {most}"
    return None


def _clash(one: Gpu, other: Gpu) -> str | None:
    for part, whole in ((one, other), (other, one)):
        if part.mig is not None and whole.mig is None and part.mig.parent == whole.id:
            return f"{part.id} is an instance of {whole.id}, which is listed whole too"
    if one.mig is None or other.mig is None or one.mig.parent != other.mig.parent:
        return None
    runs = [_run(one.mig), _run(other.mig)]
    if None in runs or not set(runs[0] or ()) & set(runs[1] or ()):
        return None
    if one.mig == other.mig and one.mig.number is not None:
        return None  # compute instances of one GPU instance
    told = " and ".join(_words(run) for run in runs if run is not None)
    return f"MIG instances {one.id} and {other.id} overlap on {one.mig.parent}: slices {told}"


def _run(mig: MigInstance) -> range | None:
    if mig.start is None or mig.size is None:
        return None
    return range(mig.start, mig.start + mig.size)


def _words(run: Sequence[int]) -> str:
    return f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}"


def _slices(model: str) -> int:
    known = MODELS.get(model.partition(":")[0])
    return _MOST_SLICES if known is None or known.mig is None else known.mig.memory_slices


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
