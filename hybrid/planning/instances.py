"""Which MIG instance a job takes: of those of its profile that are free, the one whose use leaves
the most of its GPU to the jobs there are.

The slices that no run holds, whether parted already or not, can still be parted as the queue asks;
so an instance goes where what others could use of its GPU shrinks least (``topology.mig_room``), of
equal ones where the GPU is fullest. Where positions are not known, the first is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hybrid.domain.snapshot import Snapshot
from hybrid.hardware import MigPlacement, UnknownMigProfile
from hybrid.planning.fit import Shape
from hybrid.planning.parting import profile_of, table_of
from hybrid.topology import devices_of, mig_growth

_EXACT = 9
"""Digits to which growths are compared: sums of floats in another order are no difference."""


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A free instance: by how many memory slices the unusable part of its GPU grows when it is
    taken, how many of that GPU no run holds before, and the mask of the device. Less is better."""

    growth: float
    left: int
    mask: int


class Instances:
    """The free instances of one plan, judged under its demand mix: the jobs that ask for MIG
    profiles, waiting or running."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._demand: dict[str, float] | None = None
        self._found: dict[tuple[int, int, int], Instance | None] = {}
        self._known: dict[tuple[int, int, int], Instance] = {}
        self._siblings: dict[int, tuple[int, ...]] = {}

    def best(self, shape: Shape, allowed: int, free: int) -> Instance | None:
        """The best of the ``allowed`` devices that are ``free``; None where there is none."""
        key = (id(shape), allowed, free)
        if key not in self._found:
            self._found[key] = min(
                (self._one(shape, device, free) for device in devices_of(allowed & free)),
                default=None,
            )
        return self._found[key]

    def _one(self, shape: Shape, device: int, free: int) -> Instance:
        # hot: what is held on other GPUs of the machine does not matter, so few states are new
        siblings = self._siblings.get(id(shape))
        if siblings is None:
            siblings = self._siblings[id(shape)] = _siblings(shape)
        held = siblings[device] & ~free
        key = (id(shape), device, held)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._judged(shape, device, held)
        return found

    def _judged(self, shape: Shape, device: int, busy: int) -> Instance:
        table = table_of(shape.models[device])
        taken = self._placement(shape, device)
        if table is None or taken is None:
            return Instance(0.0, 0, 1 << device)
        beside = [self._placement(shape, other) for other in devices_of(busy)]
        held = {at for at in beside if at is not None}
        try:
            left = table.memory_slices - sum(table.profile(a.profile).memory_slices for a in held)
            # another compute instance of a GPU instance in use takes no more of it
            grown = 0.0 if taken in held else mig_growth(table, held, taken, self._mix())
        except UnknownMigProfile:
            return Instance(0.0, 0, 1 << device)
        return Instance(round(grown, _EXACT), left, 1 << device)

    def _placement(self, shape: Shape, device: int) -> MigPlacement | None:
        starts = shape.parting.starts
        start = starts[device] if starts else None
        return None if start is None else MigPlacement(start, profile_of(shape.models[device]))

    def _mix(self) -> dict[str, float]:
        if self._demand is None:
            counts: Counter[str] = Counter()
            for job in self._snapshot.jobs.values():
                resources = job.spec.resources
                if resources.gpu.mig_profile is not None:
                    counts[resources.gpu.mig_profile] += resources.nodes
            self._demand = {profile: float(count) for profile, count in counts.items()}
        return self._demand


def _siblings(shape: Shape) -> tuple[int, ...]:
    """For each device the mask of those on the same GPU, itself among them."""
    parent_of = shape.parting.parent_of or (None,) * len(shape.models)
    masks: dict[int | None, int] = {}
    for device, parent in enumerate(parent_of):
        masks[parent] = masks.get(parent, 0) | 1 << device
    return tuple(0 if parent is None else masks[parent] for parent in parent_of)
