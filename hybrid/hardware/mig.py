"""MIG: which GPU instance profiles exist on a GPU, where each may start, and what still fits.

A GPU in MIG mode is a row of equal *memory slices* (8 on a 7-slice GPU, 4 on a 4-slice one) and a
number of *compute slices*. A profile takes a run of memory slices that may start only at certain
positions, and some compute slices; two instances fit together when their runs do not overlap.

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles", and the positions printed
by ``nvidia-smi mig -lgipp``. NVIDIA prints positions for Ampere and Hopper; Blackwell data-centre
GPUs have the same eight memory slices and are taken to allow the same positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class UnknownMigProfile(ValueError):
    """The GPU has no such profile. ``known`` names those it has."""

    def __init__(self, table: str, profile: str, known: tuple[str, ...]) -> None:
        self.table = table
        self.profile = profile
        self.known = known
        super().__init__(f"{table} has no MIG profile {profile!r}; it has {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One kind of GPU instance.

    ``memory_gib`` is the size in its name; ``memory_slices`` is the length of its run;
    ``starts`` are the memory slices at which the run may begin; ``max_instances`` is how many one
    GPU can hold. ``media`` marks a ``+me`` profile, which takes the GPU's only JPEG and optical
    flow units, so that a GPU holds one of them.
    """

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_gib: int
    max_instances: int
    media: bool = False


@dataclass(frozen=True, slots=True, order=True)
class MigPlacement:
    """An instance of ``profile`` whose run of memory slices begins at ``start``."""

    start: int
    profile: str


@dataclass(frozen=True, slots=True)
class MigTable:
    """The profiles of one GPU and what fits beside what."""

    name: str
    compute_slices: int
    memory_slices: int
    profiles: tuple[MigProfile, ...]

    def __hash__(self) -> int:
        # hot: tables are keys of what is known of their states, and hashing all profiles takes long
        return hash(self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Profile names, smallest first."""
        return tuple(profile.name for profile in self.profiles)

    def profile(self, name: str) -> MigProfile:
        """The profile called ``name``; raises UnknownMigProfile."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise UnknownMigProfile(self.name, name, self.names)

    def starts(self, existing: Iterable[MigPlacement], profile: str) -> tuple[int, ...]:
        """Where one more ``profile`` could begin beside ``existing``, lowest first.

        Raises UnknownMigProfile for a name that the GPU does not have, here or in ``existing``.
        """
        wanted = self.profile(profile)
        held = [(placement, self.profile(placement.profile)) for placement in existing]
        used_mask = 0
        for placement, kind in held:
            used_mask |= _run(placement.start, kind.memory_slices)
        if sum(kind.compute_slices for _, kind in held) + wanted.compute_slices > (
            self.compute_slices
        ):
            return ()
        if wanted.media and any(kind.media for _, kind in held):
            return ()
        if sum(kind.name == profile for _, kind in held) >= wanted.max_instances:
            return ()
        return tuple(
            start for start in wanted.starts if not used_mask & _run(start, wanted.memory_slices)
        )

    def fits(self, existing: Sequence[MigPlacement], profile: str) -> MigPlacement | None:
        """Where to put one more ``profile``, or None when there is no room.

        Of the free positions the one is taken that leaves the most choices open, summed over all
        profiles; ties go to the lowest start. Raises UnknownMigProfile.
        """
        options = [MigPlacement(start, profile) for start in self.starts(existing, profile)]
        if not options:
            return None
        return max(options, key=lambda option: (self.choices((*existing, option)), -option.start))

    def pack(
        self, existing: Sequence[MigPlacement], profiles: Sequence[str]
    ) -> tuple[MigPlacement, ...] | None:
        """Positions for all of ``profiles`` beside ``existing``, in the order given, or None when
        they do not fit together. Complete: it finds a layout whenever there is one.

        Raises UnknownMigProfile.
        """
        # widest first: they have the fewest positions, so dead ends show early
        order = sorted(
            range(len(profiles)), key=lambda i: (-self.profile(profiles[i]).memory_slices, i)
        )
        found = self._pack(tuple(existing), [profiles[i] for i in order])
        if found is None:
            return None
        placed = dict(zip(order, found, strict=True))
        return tuple(placed[i] for i in range(len(profiles)))

    def room(self, existing: Sequence[MigPlacement]) -> dict[str, int]:
        """For each profile, how many more of it alone would fit beside ``existing``."""
        return {name: self.room_for(existing, name) for name in self.names}

    def room_for(self, existing: Sequence[MigPlacement], profile: str) -> int:
        """How many more of one profile would fit beside ``existing``. Raises UnknownMigProfile."""
        count = 0
        while self.pack(existing, [profile] * (count + 1)) is not None:
            count += 1
        return count

    def choices(self, existing: Sequence[MigPlacement]) -> int:
        """Positions at which one more instance could begin, summed over all profiles."""
        return sum(len(self.starts(existing, profile.name)) for profile in self.profiles)

    def _pack(
        self, existing: tuple[MigPlacement, ...], wanted: Sequence[str]
    ) -> tuple[MigPlacement, ...] | None:
        if not wanted:
            return ()
        for start in self.starts(existing, wanted[0]):
            here = MigPlacement(start, wanted[0])
            rest = self._pack((*existing, here), wanted[1:])
            if rest is not None:
                return (here, *rest)
        return None

    def check(self, existing: Sequence[MigPlacement]) -> str | None:
        """Why ``existing`` cannot be on one GPU, or None when it can. Raises UnknownMigProfile."""
        for i, placement in enumerate(existing):
            if placement.start not in self.starts(existing[:i], placement.profile):
                return f"{placement.profile} at {placement.start} has no room on {self.name}"
        return None


def _run(start: int, length: int) -> int:
    return ((1 << length) - 1) << start


def _seven_slices(name: str, *, one: str, one_wide: str, half: str, full: str) -> MigTable:
    """A GPU of 7 compute and 8 memory slices: A100, H100, H200, B200 and their kin.

    The arguments are the sizes that appear in the profile names, in GB: of a slice, of two, of
    four, of all.
    """
    ones, pairs = tuple(range(7)), (0, 2, 4)
    rows = (
        MigProfile(f"1g.{one}gb", 1, 1, ones, int(one), 7),
        MigProfile(f"1g.{one}gb+me", 1, 1, ones, int(one), 1, media=True),
        MigProfile(f"1g.{one_wide}gb", 1, 2, (0, 2, 4, 6), int(one_wide), 4),
        MigProfile(f"2g.{one_wide}gb", 2, 2, pairs, int(one_wide), 3),
        MigProfile(f"3g.{half}gb", 3, 4, (0, 4), int(half), 2),
        MigProfile(f"4g.{half}gb", 4, 4, (0,), int(half), 1),
        MigProfile(f"7g.{full}gb", 7, 8, (0,), int(full), 1, media=True),
    )
    return MigTable(name, compute_slices=7, memory_slices=8, profiles=rows)


def _four_slices(name: str, *, one: str, two: str, four: str, media_two: bool) -> MigTable:
    """A GPU of 4 compute and 4 memory slices: A30 and RTX PRO 6000 Blackwell."""
    rows = [
        MigProfile(f"1g.{one}gb", 1, 1, (0, 1, 2, 3), int(one), 4),
        MigProfile(f"1g.{one}gb+me", 1, 1, (0, 1, 2, 3), int(one), 1, media=True),
        MigProfile(f"2g.{two}gb", 2, 2, (0, 2), int(two), 2),
        MigProfile(f"4g.{four}gb", 4, 4, (0,), int(four), 1, media=True),
    ]
    if media_two:
        rows.insert(3, MigProfile(f"2g.{two}gb+me", 2, 2, (0, 2), int(two), 1, media=True))
    return MigTable(name, compute_slices=4, memory_slices=4, profiles=tuple(rows))


A30 = _four_slices("A30", one="6", two="12", four="24", media_two=True)
A100_40 = _seven_slices("A100 40GB", one="5", one_wide="10", half="20", full="40")
A100_80 = _seven_slices("A100 80GB", one="10", one_wide="20", half="40", full="80")
H100_80 = _seven_slices("H100 80GB", one="10", one_wide="20", half="40", full="80")
H100_94 = _seven_slices("H100 94GB", one="12", one_wide="24", half="47", full="94")
H100_96 = _seven_slices("H100 96GB", one="12", one_wide="24", half="48", full="96")
H200_141 = _seven_slices("H200 141GB", one="18", one_wide="35", half="71", full="141")
B200_180 = _seven_slices("B200 180GB", one="23", one_wide="45", half="90", full="180")
GB200_186 = _seven_slices("GB200 186GB", one="23", one_wide="47", half="93", full="186")
B300_269 = _seven_slices("B300 269GB", one="34", one_wide="67", half="135", full="269")
RTX_PRO_6000 = _four_slices(
    "RTX PRO 6000 Blackwell", one="24", two="48", four="96", media_two=False
)

TABLES: tuple[MigTable, ...] = (
    A30, A100_40, A100_80, H100_80, H100_94, H100_96, H200_141, B200_180, GB200_186, B300_269,
    RTX_PRO_6000,
)  # fmt: skip


def same_layout(one: Iterable[MigPlacement], other: Iterable[MigPlacement]) -> bool:
    """Whether two sets of instances are equal, in any order."""
    return Counter(one) == Counter(other)
