"""What nodes say of MIG instances is believed only where it can be true."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu, MigInstance, MigRoom, PartedGpu
from hybrid.runtime.sensible import sensible
from tests.doubles.build import a_node_report

PARENT = GpuId("GPU-0")


def instance(index: int, profile: str, start: Any, size: Any, number: Any = None) -> Gpu:
    return Gpu(
        id=GpuId(f"MIG-{index}"),
        index=index,
        model=f"a100-sxm4-80gb:{profile}",
        memory_gib=9.5,
        mig=MigInstance(
            parent=PARENT, number=index if number is None else number, start=start, size=size
        ),
    )


def reported(*gpus: Gpu, parted: tuple[PartedGpu, ...] = ()) -> tuple[Gpu, ...]:
    count = len(gpus)
    links = ((0.0,) * count,) * count
    return sensible(a_node_report(gpus=gpus, links_gbps=links, parted=parted)).gpus


def test_instances_side_by_side_are_believed() -> None:
    gpus = (
        instance(0, "3g.40gb", 0, 4),
        instance(1, "2g.20gb", 4, 2),
        instance(2, "1g.10gb", 6, 1),
    )
    assert reported(*gpus) == gpus


def test_overlapping_instances_are_refused_with_the_pair_named() -> None:
    gpus = (
        instance(0, "3g.40gb", 0, 4),
        instance(1, "2g.20gb", 2, 2),
        instance(2, "1g.10gb", 6, 1),
    )
    one, other, apart = reported(*gpus)
    words = "MIG instances MIG-0 and MIG-1 overlap on GPU-0: slices 0 to 3 and 2 to 3"
    assert [(g.healthy, g.health_reason) for g in (one, other)] == [(False, words)] * 2
    assert apart.healthy


def test_compute_instances_of_one_gpu_instance_may_be_at_one_place() -> None:
    gpus = tuple(instance(i, "1c.3g.40gb", 4, 4, number=1) for i in range(3))
    assert reported(*gpus) == gpus


def test_two_gpu_instances_at_one_place_may_not() -> None:
    gpus = tuple(instance(i, "3g.40gb", 4, 4) for i in range(2))
    assert not any(gpu.healthy for gpu in reported(*gpus))


@pytest.mark.parametrize(
    ("start", "size"),
    [(math.nan, 1), (0, math.nan), (-1, 1), (0, 0), (5, 4), (None, 2), (0, None), (True, 1)],
)
def test_a_place_that_no_instance_can_have_takes_nothing(start: Any, size: Any) -> None:
    (gpu,) = reported(instance(0, "1g.10gb", start, size))
    words = f"MIG instance of {size} memory slices from {start} on, and GPU-0 has 8"
    assert (gpu.healthy, gpu.health_reason) == (False, words)
    assert gpu.mig == MigInstance(parent=PARENT)


def test_a_gpu_listed_whole_beside_its_instance_is_refused_with_it() -> None:
    whole = Gpu(id=PARENT, index=0, model="a100-sxm4-80gb", memory_gib=79.0)
    found = reported(whole, instance(1, "1g.10gb", 0, 1))
    words = "MIG-1 is an instance of GPU-0, which is listed whole too"
    assert [(g.healthy, g.health_reason) for g in found] == [(False, words)] * 2


def test_room_beyond_the_gpu_is_none() -> None:
    odd: Any = (0, -1, 8, math.nan)
    parted = PartedGpu(
        id=PARENT,
        index=0,
        model="a100-sxm4-80gb",
        room=(MigRoom(profile="1g.10gb", starts=odd), MigRoom(profile="2g.20gb", starts=(9,))),
    )
    found = sensible(a_node_report(parted=(parted,))).parted
    assert found == (replace(parted, room=(MigRoom(profile="1g.10gb", starts=(0,)),)),)


PLACES = st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9)), max_size=6)


@given(PLACES)
def test_of_two_instances_that_overlap_neither_is_used(places: list[tuple[int, int]]) -> None:
    gpus = [instance(i, "1g.10gb", start, size) for i, (start, size) in enumerate(places)]
    used = [gpu.mig for gpu in reported(*gpus) if gpu.healthy and gpu.mig is not None]
    runs = [set(range(m.start or 0, (m.start or 0) + (m.size or 0))) for m in used]
    assert all(run and run <= set(range(8)) for run in runs)
    assert all(not one & other for one, other in combinations(runs, 2))
