"""Where one more MIG instance leaves most to the jobs there are, against trying everything."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest

from hybrid.hardware import MigPlacement, MigProfile, MigTable, UnknownMigProfile
from hybrid.hardware.mig import A30, A100_80, B200_180, H100_94, H200_141, RTX_PRO_6000
from hybrid.topology import best_mig_placement, mig_growth, mig_unusable

Layout = frozenset[MigPlacement]


def reachable(table: MigTable) -> set[Layout]:
    """Every state that a GPU can come to by creating instances one after the other, by the rules
    as NVIDIA states them: a run of free memory slices at one of the profile's positions, compute
    slices left, one set of media units, so many instances at most."""
    found: set[Layout] = {frozenset()}
    edge = [frozenset[MigPlacement]()]
    while edge:
        grown = {after for before in edge for after in successors(table, before)} - found
        found |= grown
        edge = list(grown)
    return found


def successors(table: MigTable, before: Layout) -> Iterator[Layout]:
    for profile in table.profiles:
        for start in profile.starts:
            after = before | {MigPlacement(start, profile.name)}
            if len(after) > len(before) and possible(table, after):
                yield after


def possible(table: MigTable, layout: Layout) -> bool:
    kinds = [_kinds(table)[at.profile] for at in layout]
    slices = [
        at.start + i
        for at, kind in zip(layout, kinds, strict=True)
        for i in range(kind.memory_slices)
    ]
    return (
        len(slices) == len(set(slices))
        and sum(kind.compute_slices for kind in kinds) <= table.compute_slices
        and sum(kind.media for kind in kinds) <= 1
        and all(kinds.count(kind) <= kind.max_instances for kind in kinds)
    )


@functools.cache
def _kinds(table: MigTable) -> dict[str, MigProfile]:
    return {profile.name: profile for profile in table.profiles}


@functools.cache
def most_more(table: MigTable, layout: Layout, profile: str) -> int:
    """How many more of a profile fit, by trying every set of its positions."""
    spots = [MigPlacement(s, profile) for s in table.profile(profile).starts]
    spots = [at for at in spots if at not in layout]
    return max(
        size
        for size in range(len(spots) + 1)
        for chosen in itertools.combinations(spots, size)
        if possible(table, layout | set(chosen))
    )


def lost(table: MigTable, layout: Layout, demand: dict[str, float]) -> float:
    kinds = {p.name: p for p in table.profiles}
    free = table.memory_slices - sum(kinds[at.profile].memory_slices for at in layout)
    unusable = {
        name: free - most_more(table, layout, name) * kinds[name].memory_slices
        if name in kinds
        else free
        for name in demand
    }
    return sum(demand[name] * unusable[name] for name in demand) / sum(demand.values())


MIXES: list[dict[str, float]] = [
    {"1g.10gb": 1},
    {"3g.40gb": 1},
    {"1g.10gb": 5, "2g.20gb": 2, "3g.40gb": 1},
    {"7g.80gb": 1, "4g.40gb": 3, "1g.20gb": 2},
    {"1g.5gb": 1, "2g.20gb": 1},  # one that the GPU does not have
]


def test_room_and_best_position_are_those_of_trying_everything_in_every_reachable_state() -> None:
    states = reachable(A100_80)
    assert len(states) > 200
    for layout in sorted(states, key=sorted):
        for profile in A100_80.names:
            expected = [
                MigPlacement(s, profile)
                for s in A100_80.profile(profile).starts
                if layout | {MigPlacement(s, profile)} in states
                and MigPlacement(s, profile) not in layout
            ]
            assert A100_80.starts(layout, profile) == tuple(at.start for at in expected)
            assert A100_80.room_for(tuple(layout), profile) == most_more(A100_80, layout, profile)
            for demand in MIXES[2:3]:
                found = best_mig_placement(A100_80, layout, profile, demand)
                assert (found is None) == (not expected)
                if found is None:
                    continue
                least = min(lost(A100_80, layout | {at}, demand) for at in expected)
                assert lost(A100_80, layout | {found}, demand) == pytest.approx(least)


@pytest.mark.parametrize("table", [A30, RTX_PRO_6000], ids=lambda t: t.name)
def test_a_gpu_of_four_slices_is_measured_as_by_trying_everything(table: MigTable) -> None:
    demand = {name: float(i + 1) for i, name in enumerate(table.names)}
    for layout in sorted(reachable(table), key=sorted):
        assert mig_unusable(table, layout, demand) == pytest.approx(lost(table, layout, demand))
        for after in successors(table, layout):
            (at,) = after - layout
            grown = lost(table, after, demand) - lost(table, layout, demand)
            assert mig_growth(table, layout, at, demand) == pytest.approx(grown)


@pytest.mark.parametrize("demand", MIXES, ids=str)
def test_the_measure_is_that_of_the_definition(demand: dict[str, float]) -> None:
    for layout in sorted(reachable(A100_80), key=sorted)[::7]:
        assert mig_unusable(A100_80, layout, demand) == pytest.approx(lost(A100_80, layout, demand))


@pytest.mark.parametrize("table", [H100_94, H200_141, B200_180], ids=lambda t: t.name)
def test_gpus_of_seven_slices_have_the_same_states(table: MigTable) -> None:
    renamed = {p.name: q.name for p, q in zip(A100_80.profiles, table.profiles, strict=True)}
    same = {
        frozenset(MigPlacement(at.start, renamed[at.profile]) for at in layout)
        for layout in reachable(A100_80)
    }
    assert reachable(table) == same


def test_a_small_instance_goes_beside_the_half_that_is_broken_already() -> None:
    held = (MigPlacement(0, "1g.10gb"),)
    assert best_mig_placement(A100_80, held, "1g.10gb", {"3g.40gb": 1}) == MigPlacement(
        1, "1g.10gb"
    )


def test_where_it_goes_follows_the_demand() -> None:
    """Slice 6 serves no 2g; but whoever asks for 3g wants the second half whole."""
    held = (MigPlacement(0, "2g.20gb"),)
    assert best_mig_placement(A100_80, held, "1g.10gb", {"2g.20gb": 1}) == MigPlacement(
        6, "1g.10gb"
    )
    assert best_mig_placement(A100_80, held, "1g.10gb", {"3g.40gb": 1}) == MigPlacement(
        2, "1g.10gb"
    )


def test_without_demand_the_position_that_leaves_most_choices_is_taken() -> None:
    assert best_mig_placement(A100_80, (), "1g.10gb", {}) == A100_80.fits((), "1g.10gb")
    assert mig_unusable(A100_80, (), {}) == 0.0


def test_taking_what_nobody_else_could_use_is_a_gain() -> None:
    held = (MigPlacement(0, "4g.40gb"), MigPlacement(4, "1g.10gb"))
    assert mig_growth(A100_80, held, MigPlacement(5, "1g.10gb"), {"3g.40gb": 1}) == -1.0


def test_a_profile_of_another_gpu_has_no_position() -> None:
    with pytest.raises(UnknownMigProfile):
        best_mig_placement(A30, (), "3g.40gb", {})
