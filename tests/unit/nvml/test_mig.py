"""GPUs in MIG mode: where their instances are, and what would still fit."""

from __future__ import annotations

import pytest

from hybrid.domain.ids import GpuId
from hybrid.domain.node import MigInstance, MigRoom, PartedGpu
from providers.nvml import open_inventory
from providers.nvml.binding import Nvml
from providers.nvml.inventory import NvmlInventory
from tests.doubles.fake_nvml import FakeMachine

A100 = "NVIDIA A100-SXM4-80GB"
A100_MIB = 81_920
PARENT = GpuId("GPU-00000000-0000-0000-0000-000000000000")
ALL_FREE = (
    MigRoom(profile="1g.10gb", starts=(0, 1, 2, 3, 4, 5, 6)),
    MigRoom(profile="1g.10gb+me", starts=(0, 1, 2, 3, 4, 5, 6)),
    MigRoom(profile="1g.20gb", starts=(0, 2, 4, 6)),
    MigRoom(profile="2g.20gb", starts=(0, 2, 4)),
    MigRoom(profile="3g.40gb", starts=(0, 4)),
    MigRoom(profile="4g.40gb", starts=(0,)),
    MigRoom(profile="7g.80gb", starts=(0,)),
)


@pytest.fixture
def parted(machine: FakeMachine) -> FakeMachine:
    """One A100 with a 3g.40gb in its first half and a 1g.10gb in slice 6."""
    machine.gpu(A100, A100_MIB, mig=1)
    machine.instance(0, 0, "3g.40gb", 40_192, gi=1, start=0, size=4)
    machine.instance(0, 1, "1g.10gb", 9_728, gi=9, start=6, size=1)
    return machine


def inventory() -> NvmlInventory:
    return NvmlInventory(Nvml())


def test_an_instance_says_on_which_gpu_and_where_it_is(parted: FakeMachine) -> None:
    del parted
    wide, small = inventory().read().gpus
    assert wide.mig == MigInstance(parent=PARENT, number=1, start=0, size=4)
    assert small.mig == MigInstance(parent=PARENT, number=9, start=6, size=1)


def test_room_beside_the_instances_follows_from_the_catalogue(parted: FakeMachine) -> None:
    del parted
    (gpu,) = inventory().read().parted
    assert (gpu.id, gpu.index, gpu.model) == (PARENT, 0, "a100-sxm4-80gb")
    assert {room.profile: room.starts for room in gpu.room} == {
        "1g.10gb": (4, 5),
        "1g.10gb+me": (4, 5),
        "1g.20gb": (4,),
        "2g.20gb": (4,),
    }


def test_where_the_driver_tells_positions_those_count(parted: FakeMachine) -> None:
    parted.say("profile 0 19", "unused 1 0")  # NVML numbers its profiles below 18
    parted.say("profile 0 0", "1g.10gb 1 2 0 1 2 3 4 5 6")
    parted.say("profile 0 1", "2g.20gb 2 1 0 2 4")
    parted.say("profile 0 2", "3g.40gb 4 0 0 4")
    (gpu,) = inventory().read().parted
    assert gpu.room == (
        MigRoom(profile="1g.10gb", starts=(4, 5)),
        MigRoom(profile="2g.20gb", starts=(4,)),
    )


def test_without_privileges_the_parent_is_known_and_no_place_is(parted: FakeMachine) -> None:
    parted.say("privileged", 0)
    found = inventory().read()
    assert [gpu.mig for gpu in found.gpus] == [
        MigInstance(parent=PARENT, number=1),
        MigInstance(parent=PARENT, number=9),
    ]
    assert found.parted == (PartedGpu(id=PARENT, index=0, model="a100-sxm4-80gb"),)


def test_compute_instances_of_one_gpu_instance_are_at_one_place(machine: FakeMachine) -> None:
    machine.gpu(A100, A100_MIB, mig=1)
    for slot in (0, 1):
        machine.instance(0, slot, "1c.3g.40gb", 40_192, gi=1, start=4, size=4)
    found = inventory().read()
    assert {gpu.mig for gpu in found.gpus} == {
        MigInstance(parent=PARENT, number=1, start=4, size=4)
    }
    assert {r.profile: r.starts for r in found.parted[0].room}["3g.40gb"] == (0,)


def test_a_gpu_in_mig_mode_without_instances_is_no_device_but_has_room(
    machine: FakeMachine,
) -> None:
    machine.gpu(A100, A100_MIB, mig=1)
    opened = open_inventory()
    assert opened is not None
    found = opened.read()
    assert found.gpus == ()
    assert found.parted == (PartedGpu(id=PARENT, index=0, model="a100-sxm4-80gb", room=ALL_FREE),)


def test_a_gpu_that_is_not_in_mig_mode_any_more_is_not_parted(parted: FakeMachine) -> None:
    reads = inventory()
    assert len(reads.read().parted) == 1
    parted.say("gpu 0 mig", 0)
    found = reads.read()
    assert (found.parted, [gpu.id for gpu in found.gpus]) == ((), [PARENT])


def test_a_lost_gpu_has_no_room(parted: FakeMachine) -> None:
    reads = inventory()
    reads.read()
    parted.say("gpu 0 lost", 1)
    found = reads.read()
    assert found.parted == ()
    assert [gpu.healthy for gpu in found.gpus] == [False, False]
