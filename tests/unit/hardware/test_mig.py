"""MIG placement: what fits beside what, and where."""

from __future__ import annotations

import itertools

import pytest

from hybrid.hardware import MigPlacement, MigTable, UnknownMigProfile, part_of_gpu
from hybrid.hardware.mig import (
    A30,
    A100_40,
    A100_80,
    B200_180,
    H100_80,
    H100_94,
    H100_96,
    H200_141,
    RTX_PRO_6000,
    TABLES,
    same_layout,
)


def layouts(table: MigTable) -> list[tuple[MigPlacement, ...]]:
    """Every set of instances that can be on one GPU, by trying all: an instance may be added
    where its memory slices are free, compute slices suffice and media units are not taken."""
    spots = [
        (MigPlacement(start, p.name), p)
        for p in table.profiles
        if not p.name.endswith("+me")
        for start in p.starts
    ]
    found: list[tuple[MigPlacement, ...]] = []
    for size in range(table.compute_slices + 1):
        for chosen in itertools.combinations(spots, size):
            used = [s for at, p in chosen for s in range(at.start, at.start + p.memory_slices)]
            compute = sum(p.compute_slices for _, p in chosen)
            if len(used) == len(set(used)) and compute <= table.compute_slices:
                found.append(tuple(at for at, _ in chosen))
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_profiles_lie_inside_the_gpu_and_one_of_each_fits_an_empty_one(table: MigTable) -> None:
    for profile in table.profiles:
        assert all(0 <= s <= table.memory_slices - profile.memory_slices for s in profile.starts)
        assert table.starts((), profile.name) == profile.starts
    assert table.room(())[table.profiles[-1].name] == 1


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_as_many_of_a_profile_fit_as_the_guide_says(table: MigTable) -> None:
    assert table.room(()) == {p.name: p.max_instances for p in table.profiles}


def test_names_of_the_tables_are_those_nvidia_prints() -> None:
    assert A30.names == ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb")
    assert A100_40.names == ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb",
                             "7g.40gb")  # fmt: skip
    assert H100_94.names[-2:] == ("4g.47gb", "7g.94gb")
    assert H100_96.names[-2:] == ("4g.48gb", "7g.96gb")
    assert H200_141.names == ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb",
                              "7g.141gb")  # fmt: skip
    assert B200_180.names[:3] == ("1g.23gb", "1g.23gb+me", "1g.45gb")
    assert RTX_PRO_6000.names == ("1g.24gb", "1g.24gb+me", "2g.48gb", "4g.96gb")


@pytest.mark.parametrize(
    "profiles",
    [
        ("4g.40gb", "3g.40gb"),
        ("3g.40gb", "3g.40gb"),
        ("4g.40gb", "2g.20gb", "1g.10gb"),
        ("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"),
        ("3g.40gb", "2g.20gb", "1g.10gb"),
        ("1g.10gb",) * 7,
        ("1g.20gb",) * 4,
    ],
)
def test_published_combinations_fit_together(profiles: tuple[str, ...]) -> None:
    placed = A100_80.pack((), profiles)
    assert placed is not None
    assert tuple(p.profile for p in placed) == profiles
    assert A100_80.check(placed) is None


@pytest.mark.parametrize(
    "profiles",
    [
        ("4g.40gb", "4g.40gb"),
        ("7g.80gb", "1g.10gb"),
        ("3g.40gb", "3g.40gb", "1g.10gb"),  # compute is left but no memory
        ("2g.20gb",) * 4,
        ("1g.10gb",) * 8,
        ("1g.20gb",) * 5,
        ("1g.10gb+me", "1g.10gb+me"),  # one GPU has one set of media units
    ],
)
def test_combinations_beyond_the_gpu_do_not_fit(profiles: tuple[str, ...]) -> None:
    assert H100_80.pack((), profiles) is None


def test_a_wide_profile_waits_for_its_position_although_slices_are_free() -> None:
    # 3g needs slices 0-3 or 4-7; one small instance in each half blocks both
    existing = (MigPlacement(0, "1g.10gb"), MigPlacement(4, "1g.10gb"))
    assert A100_80.fits(existing, "3g.40gb") is None
    assert A100_80.fits(existing, "2g.20gb") == MigPlacement(2, "2g.20gb")


def test_a_small_instance_goes_where_it_blocks_least() -> None:
    # slice 6 serves no 2g and only the second half's 3g
    assert A100_80.fits((), "1g.10gb") == MigPlacement(6, "1g.10gb")
    assert A30.fits((MigPlacement(0, "1g.6gb"),), "1g.6gb") == MigPlacement(1, "1g.6gb")


def test_what_fits_is_exactly_what_an_enumeration_of_layouts_allows() -> None:
    for table in (A30, A100_40, RTX_PRO_6000):
        every = layouts(table)
        possible = {frozenset(layout) for layout in every}
        for layout in every:
            for profile in table.profiles:
                if profile.name.endswith("+me"):
                    continue
                grown = any(
                    frozenset((*layout, MigPlacement(start, profile.name))) in possible
                    for start in profile.starts
                    if MigPlacement(start, profile.name) not in layout
                )
                placement = table.fits(layout, profile.name)
                assert (placement is not None) == grown, (layout, profile.name)


def test_only_one_instance_has_the_media_units() -> None:
    existing = (MigPlacement(6, "1g.10gb+me"),)
    assert A100_80.fits(existing, "1g.10gb+me") is None
    assert A100_80.fits(existing, "1g.10gb") is not None


def test_an_impossible_layout_is_explained() -> None:
    overlapping = (MigPlacement(0, "3g.40gb"), MigPlacement(2, "2g.20gb"))
    assert A100_80.check(overlapping) == "2g.20gb at 2 has no room on A100 80GB"
    assert A100_80.check((MigPlacement(3, "2g.20gb"),)) is not None
    assert A100_80.check((MigPlacement(4, "2g.20gb"), MigPlacement(0, "4g.40gb"))) is None


def test_a_profile_of_another_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownMigProfile, match=r"A30 has no MIG profile '3g\.40gb'") as refused:
        A30.fits((), "3g.40gb")
    assert refused.value.known == A30.names


def test_packing_beside_what_is_there_keeps_it() -> None:
    existing = (MigPlacement(0, "3g.40gb"),)
    assert A100_80.pack(existing, ("3g.40gb",)) == (MigPlacement(4, "3g.40gb"),)
    assert A100_80.room(existing)["1g.10gb"] == 3


def test_layouts_are_equal_in_any_order() -> None:
    one = (MigPlacement(0, "3g.40gb"), MigPlacement(4, "3g.40gb"))
    assert same_layout(one, reversed(one))
    assert not same_layout(one, one[:1])


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("a100-sxm4-80gb:1g.10gb", 1 / 7),
        ("a100-sxm4-80gb:1g.20gb", 1 / 7),
        ("h100-sxm5-80gb:3g.40gb", 3 / 7),
        ("h100-sxm5-80gb:1c.3g.40gb", 1 / 7),
        ("a30:2g.12gb+me", 2 / 4),
        ("a100-sxm4-80gb:7g.80gb", 1.0),
        ("a100-sxm4-80gb", 1.0),
        ("a100-sxm4-80gb:1g.99gb", 1.0),
        ("somebody-elses:1g.10gb", 1.0),
        ("", 1.0),
    ],
)
def test_an_instance_is_the_part_of_its_gpu_that_its_compute_slices_are(
    model: str, part: float
) -> None:
    assert part_of_gpu(model) == part
