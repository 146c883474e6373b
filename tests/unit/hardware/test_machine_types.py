"""The offline table of machine types."""

from __future__ import annotations

import pytest

from hybrid.hardware import MODELS, gpu_model, machine_type, machine_types
from hybrid.hardware.machine_types import UnknownMachineType
from hybrid.topology import preset


@pytest.mark.parametrize("name", [t.name for t in machine_types()])
def test_every_type_has_a_known_gpu_and_a_link_graph(name: str) -> None:
    found = machine_type(name)
    assert found.gpu in MODELS
    assert preset(found.links, found.gpu, found.gpus).count == found.gpus
    assert found.vcpus > 0
    assert found.memory_gib > 0
    assert found.architecture in {"x86_64", "arm64"}


def test_the_large_hopper_machine_of_ec2() -> None:
    found = machine_type("p5.48xlarge")
    assert (found.provider, found.vcpus, found.memory_gib) == ("aws", 192, 2048)
    assert (found.gpus, found.gpu, found.links) == (8, "h100-sxm5-80gb", "nvswitch")


def test_p4d_and_p4de_differ_in_memory_only() -> None:
    small, large = machine_type("p4d.24xlarge"), machine_type("p4de.24xlarge")
    assert gpu_model(small.gpu).memory_gib == 40
    assert gpu_model(large.gpu).memory_gib == 80
    assert (small.vcpus, small.memory_gib) == (large.vcpus, large.memory_gib)


def test_graviton_and_grace_machines_need_arm_images() -> None:
    arm = {t.name.split(".")[0] for t in machine_types("aws") if t.architecture == "arm64"}
    assert arm == {"g5g", "p6e-gb200"}


def test_types_are_listed_by_provider_in_order() -> None:
    names = [t.name for t in machine_types("gcp")]
    assert names == sorted(names)
    assert "a2-ultragpu-8g" in names
    assert not any(t.provider == "gcp" for t in machine_types("aws"))


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(UnknownMachineType, match=r"p5\.48xlarge") as refused:
        machine_type("p5.24xlarge")
    assert "p5.48xlarge" in refused.value.nearest


def test_a_name_like_no_other_offers_nothing() -> None:
    with pytest.raises(UnknownMachineType, match=r"called 'xyzzy'$"):
        machine_type("xyzzy")
