"""What NVML says of a machine, as the planner is to see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid.domain.ids import GpuId
from providers.nvml import open_inventory
from providers.nvml.binding import Nvml
from providers.nvml.inventory import NvmlInventory
from tests.doubles.fake_nvml import FakeMachine

A100 = "NVIDIA A100-SXM4-80GB"
A100_MIB = 81_920
H100 = "NVIDIA H100 80GB HBM3"
H100_MIB = 81_559


def inventory_of(machine: FakeMachine, sysfs: Path = Path("/nowhere")) -> NvmlInventory:
    return NvmlInventory(Nvml(), sysfs=sysfs)


def test_devices_are_listed_in_index_order_under_their_catalogue_names(
    machine: FakeMachine,
) -> None:
    machine.gpu(A100, A100_MIB)
    machine.gpu(H100, H100_MIB)
    found = inventory_of(machine).read()
    assert [(gpu.index, gpu.model, gpu.memory_gib) for gpu in found.gpus] == [
        (0, "a100-sxm4-80gb", 80.0),
        (1, "h100-sxm5-80gb", 79.647),
    ]
    assert found.gpus[0].id == "GPU-00000000-0000-0000-0000-000000000000"
    assert all(gpu.healthy and not gpu.virtual for gpu in found.gpus)
    assert found.driver == "580.00"


def test_a_model_that_the_catalogue_lacks_keeps_its_own_name(machine: FakeMachine) -> None:
    machine.gpu("NVIDIA Z999-PCIE-512GB", 512 * 1024)
    assert inventory_of(machine).read().gpus[0].model == "z999-pcie-512gb"


def test_direct_nvlinks_give_their_rate_and_other_pairs_that_of_pcie(machine: FakeMachine) -> None:
    for _ in range(3):
        machine.gpu(A100, A100_MIB)
    machine.nvlinks(0, 1, 12)
    machine.say("ancestor 0 2", 30)
    links = inventory_of(machine).read().links_gbps
    assert links[0][1] == links[1][0] == 300.0
    assert 0 < links[1][2] < links[0][2] < 32.0
    assert [links[i][i] for i in range(3)] == [0.0, 0.0, 0.0]


def test_devices_on_switches_reach_each_other_with_the_fewer_of_their_links(
    machine: FakeMachine,
) -> None:
    for count in (12, 12, 6):
        machine.switched(machine.gpu(A100, A100_MIB), count)
    links = inventory_of(machine).read().links_gbps
    assert links[0][1] == 300.0
    assert links[0][2] == links[1][2] == 150.0


def test_a_link_that_only_one_end_reports_does_not_count(machine: FakeMachine) -> None:
    for _ in range(2):
        machine.gpu(A100, A100_MIB)
    machine.nvlinks(0, 1, 2)
    machine.unsay("link 1 1")
    assert inventory_of(machine).read().links_gbps[0][1] == 25.0


def test_an_unknown_model_goes_by_the_version_of_its_nvlinks(machine: FakeMachine) -> None:
    for _ in range(2):
        machine.gpu("NVIDIA Z999", 65_536)
    machine.nvlinks(0, 1, 2)
    machine.say("nvlink_version", 7)
    assert inventory_of(machine).read().links_gbps[0][1] == 100.0


def test_a_lost_device_stays_listed_unhealthy_under_its_id_without_links(
    machine: FakeMachine,
) -> None:
    for _ in range(2):
        machine.gpu(A100, A100_MIB)
    machine.nvlinks(0, 1, 12)
    inventory = inventory_of(machine)
    before = inventory.read()
    machine.say("gpu 1 lost", 1)
    after = inventory.read()
    assert [gpu.id for gpu in after.gpus] == [gpu.id for gpu in before.gpus]
    assert [gpu.healthy for gpu in after.gpus] == [True, False]
    assert after.gpus[1].health_reason == "the device fell off the bus or needs a reset"
    assert after.links_gbps == ((0.0, 0.0), (0.0, 0.0))
    machine.say("gpu 1 lost", 0)
    assert inventory.read() == before


def test_a_device_that_was_never_seen_well_is_listed_as_unreadable(machine: FakeMachine) -> None:
    machine.gpu(A100, A100_MIB, lost=1)
    (gpu,) = inventory_of(machine).read().gpus
    assert (gpu.id, gpu.model, gpu.healthy) == ("GPU-unreadable-0", "unknown", False)


def test_uncorrectable_errors_and_failed_row_remapping_make_a_device_unhealthy(
    machine: FakeMachine,
) -> None:
    machine.gpu(A100, A100_MIB, ecc_uncorrected=3)
    machine.gpu(A100, A100_MIB, remap_failed=1)
    reasons = [gpu.health_reason for gpu in inventory_of(machine).read().gpus]
    assert reasons == [
        "3 uncorrectable memory error(s) since the driver was loaded",
        "broken memory rows could not be replaced",
    ]


def test_a_card_without_ecc_is_healthy(machine: FakeMachine) -> None:
    index = machine.gpu("NVIDIA GeForce RTX 4090", 24_564)
    machine.unsay(f"gpu {index} ecc_uncorrected")
    machine.unsay(f"gpu {index} remap_failed")
    (gpu,) = inventory_of(machine).read().gpus
    assert gpu.healthy


def test_a_cut_device_is_listed_as_its_instances(machine: FakeMachine) -> None:
    machine.gpu(A100, A100_MIB, mig=1)
    machine.gpu(A100, A100_MIB, mig=0)
    for slot, profile in ((0, "1g.10gb"), (2, "3g.40gb")):
        machine.say(f"mig 0 {slot} name", f"{A100} MIG {profile}")
        machine.say(f"mig 0 {slot} uuid", f"MIG-{slot}")
        machine.say(f"mig 0 {slot} memory_total", 10 << 30)
    found = inventory_of(machine).read()
    assert [(gpu.index, gpu.id, gpu.model) for gpu in found.gpus] == [
        (0, "MIG-0", "a100-sxm4-80gb:1g.10gb"),
        (1, "MIG-2", "a100-sxm4-80gb:3g.40gb"),
        (2, "GPU-00000001-0000-0000-0000-000000000000", "a100-sxm4-80gb"),
    ]
    assert found.links_gbps == ((0.0,) * 3,) * 3


def test_the_numa_node_is_read_from_the_kernel(machine: FakeMachine, tmp_path: Path) -> None:
    for _ in range(2):
        machine.gpu(A100, A100_MIB)
    for bus, node in (("0000:10:00.0", "1\n"), ("0000:11:00.0", "-1\n")):
        device = tmp_path / "sys/bus/pci/devices" / bus
        device.mkdir(parents=True)
        (device / "numa_node").write_text(node)
    found = inventory_of(machine, tmp_path / "sys").read()
    assert [gpu.numa for gpu in found.gpus] == [1, 0]


def test_telemetry_tells_what_the_device_tells_and_leaves_out_the_lost(
    machine: FakeMachine,
) -> None:
    machine.gpu(
        A100, A100_MIB, memory_used=3 << 30, temperature=61, power_mw=250_500, utilization=87
    )
    machine.gpu(A100, A100_MIB, lost=1)
    (reading,) = inventory_of(machine).telemetry()
    assert reading.gpu_id == GpuId("GPU-00000000-0000-0000-0000-000000000000")
    assert (reading.memory_used_gib, reading.temperature_c) == (3.0, 61.0)
    assert (reading.power_w, reading.utilization) == (250.5, 0.87)
    assert reading.power_limit_w is None
    assert reading.ecc_uncorrected == 0


def test_a_driver_that_goes_and_comes_back_is_taken_up_again(machine: FakeMachine) -> None:
    machine.gpu(A100, A100_MIB)
    inventory = inventory_of(machine)
    assert inventory.read().gpus[0].healthy
    machine.unsay("driver")
    gone = inventory.read()
    assert [gpu.healthy for gpu in gone.gpus] == [False]
    assert gone.gpus[0].health_reason.startswith("the driver does not answer")
    assert inventory.telemetry() == ()
    machine.say("driver", "590.00")
    back = inventory.read()
    assert (back.gpus[0].healthy, back.driver) == (True, "590.00")


def test_without_a_driver_or_without_devices_there_is_no_inventory(machine: FakeMachine) -> None:
    assert open_inventory() is None
    machine.gpu(A100, A100_MIB)
    found = open_inventory()
    assert found is not None
    assert len(found.read().gpus) == 1
    machine.unsay("driver")
    assert open_inventory() is None


def test_the_library_path_brings_the_devices_into_another_process(
    machine: FakeMachine, fake_library: Path
) -> None:
    machine.gpu(A100, A100_MIB)
    code = "from providers.nvml import open_inventory as o; print(o().read().gpus[0].model)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_LIBRARY_PATH": str(fake_library.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "a100-sxm4-80gb\n"


def test_without_the_binding_there_is_no_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_inventory() is None
