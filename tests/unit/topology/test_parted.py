"""Machines parted into more devices than one table holds."""

from __future__ import annotations

import math

import pytest

from hybrid.domain.job_spec import LinkClass
from hybrid.topology import InvalidTopology, PartedSlots, SlotTable, check_links, preset, slots_of

MIG = "a100-sxm4-80gb:1g.10gb"
A100 = "a100-sxm4-80gb"


def mixed() -> PartedSlots:
    """Four whole GPUs on NVLink, the other four in seven instances each: 32 devices."""
    whole = preset("nvswitch", A100, 4).gbps
    gbps = tuple(
        tuple(whole[i][j] if i < 4 and j < 4 else 0.0 for j in range(32)) for i in range(32)
    )
    made = slots_of(gbps, (0,) * 32, (A100,) * 4 + (MIG,) * 28)
    assert isinstance(made, PartedSlots)
    return made


def test_a_small_machine_has_the_table_it_always_had() -> None:
    assert isinstance(slots_of(preset("nvswitch", A100, 4).gbps, (0,) * 4, (A100,) * 4), SlotTable)


def test_an_instance_is_taken_before_a_linked_device() -> None:
    found = mixed().choose((1 << 32) - 1, 1)
    assert found is not None
    assert (found.devices, found.bottleneck_gbps) == ((4,), math.inf)


def test_linked_devices_are_chosen_as_in_a_machine_of_their_own() -> None:
    slots = mixed()
    found = slots.choose((1 << 32) - 1, 2, link=LinkClass.NVLINK)
    assert found is not None
    assert found.devices == (0, 1)
    assert found.bottleneck_gbps == slots.bottleneck_gbps(0b11) > 100
    assert slots.ring_order(0b1111) == (0, 1, 2, 3)


def test_instances_together_have_no_link() -> None:
    slots = mixed()
    free = 0b111 << 10
    assert slots.choose(free, 2, link=LinkClass.NVLINK) is None
    loose = slots.choose(free, 2)
    assert loose is not None
    assert (loose.devices, loose.bottleneck_gbps) == ((10, 11), 0.0)
    assert slots.bottleneck_gbps(1 << 10 | 1) == 0.0
    assert slots.best_gbps(free, 4) == -1.0
    assert slots.choose(free, 4) is None
    assert slots.ring_order(0b101 << 10) == (10, 12)


def test_more_linked_devices_than_a_machine_has_are_refused() -> None:
    gbps = tuple(tuple(0.0 if i == j else 25.0 for j in range(20)) for i in range(20))
    with pytest.raises(InvalidTopology, match="20 linked devices"):
        check_links(gbps, (A100,) * 20)


@pytest.mark.parametrize(("value", "back"), [(math.nan, math.nan), (-1.0, -1.0), (5.0, 4.0)])
def test_a_large_matrix_is_checked_as_a_small_one(value: float, back: float) -> None:
    rows = [[0.0] * 20 for _ in range(20)]
    rows[3][7], rows[7][3] = value, back
    with pytest.raises(InvalidTopology) as told:
        check_links(tuple(map(tuple, rows)), (MIG,) * 20)
    assert told.value.pair == (3, 7)
