"""How much of a GPU in MIG mode stays of use to the jobs there are, and where one more instance
leaves most.

The measure is the gradient of ``fragmentation`` (Weng et al., USENIX ATC'23) over positions: of the
memory slices that no instance holds, those count as unusable to a profile that are left over when
as many instances of it as still fit have been put there. The demand mix weighs the profiles; the
growth of the mean is what a placement costs. Slices free at the wrong positions, or beyond the
compute slices that are left, so count as lost before anything runs short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from hybrid.hardware import MigPlacement, MigTable

MigDemand = Mapping[str, float]
"""How often each profile is asked for, relative to the others."""

_Mix = tuple[tuple[str, float], ...]


def mig_unusable(table: MigTable, held: Iterable[MigPlacement], demand: MigDemand) -> float:
    """Memory slices of a GPU that the demand is not expected to be able to use, beside the
    instances ``held``. Profiles that the GPU does not have can use none of them; 0 without any
    demand. Raises UnknownMigProfile for a held one."""
    return _unusable(table, tuple(sorted(held)), _mix(demand))


def mig_growth(
    table: MigTable, held: Iterable[MigPlacement], placement: MigPlacement, demand: MigDemand
) -> float:
    """By how many memory slices one more instance makes that grow; below 0 where it takes what few
    others could have used. Raises UnknownMigProfile."""
    before = tuple(sorted(held))
    mix = _mix(demand)
    after = tuple(sorted((*before, placement)))
    return _unusable(table, after, mix) - _unusable(table, before, mix)


def best_mig_placement(
    table: MigTable, held: Iterable[MigPlacement], profile: str, demand: MigDemand
) -> MigPlacement | None:
    """Where one more ``profile`` leaves most to the demand, or None when there is no room.

    Of equal positions the one that leaves the most choices open to all profiles, then the lowest.
    Raises UnknownMigProfile.
    """
    before = tuple(sorted(held))
    options = [MigPlacement(start, profile) for start in table.starts(before, profile)]
    if not options:
        return None
    return min(
        options,
        key=lambda at: (
            round(mig_growth(table, before, at, demand), 9),
            -table.choices((*before, at)),
            at.start,
        ),
    )


def _mix(demand: MigDemand) -> _Mix:
    return tuple(sorted((profile, weight) for profile, weight in demand.items() if weight > 0))


@lru_cache(maxsize=65_536)
def _unusable(table: MigTable, held: tuple[MigPlacement, ...], mix: _Mix) -> float:
    total = sum(weight for _, weight in mix)
    if not total:
        return 0.0
    free = table.memory_slices - sum(table.profile(at.profile).memory_slices for at in held)
    lost = 0.0
    for profile, weight in mix:
        usable = 0
        if profile in table.names:
            usable = _room(table, held, profile) * table.profile(profile).memory_slices
        lost += weight * (free - usable)
    return lost / total


@lru_cache(maxsize=65_536)
def _room(table: MigTable, held: tuple[MigPlacement, ...], profile: str) -> int:
    return table.room_for(held, profile)
