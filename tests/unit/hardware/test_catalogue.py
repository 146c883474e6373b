"""The GPU catalogue: figures that cannot be wrong together, and every name a model goes by."""

from __future__ import annotations

import pytest

from hybrid.hardware import (
    MODELS,
    AmbiguousGpuModel,
    Architecture,
    Fabric,
    UnknownGpuModel,
    gpu_model,
    identify,
    identify_ec2,
    identify_gce,
    identify_label,
    nearest_names,
    resolve,
    satisfies_memory,
)

EVERY_MODEL = sorted(MODELS)


@pytest.mark.parametrize("key", EVERY_MODEL)
def test_every_model_is_found_by_its_key_and_its_own_names(key: str) -> None:
    model = gpu_model(key)
    assert resolve(key) == {key}
    assert identify(key) is model
    for name in model.nvml_names:
        mib = model.usable_memory_gib * 1024
        assert identify(name, mib) is model
        assert identify(name.replace(" ", "-"), mib) is model
        assert identify_label(name.replace(" ", "-"), mib).model is model
    assert model.source


@pytest.mark.parametrize("key", EVERY_MODEL)
def test_figures_are_plausible_together(key: str) -> None:
    model = gpu_model(key)
    assert 0.9 * model.memory_gib < model.usable_memory_gib <= 1.0 * model.memory_gib
    assert model.fp32_tflops <= model.dense_tflops
    assert model.dense_tflops == max(model.fp16_tflops or 0, model.fp32_tflops)
    assert 1.0 < model.roofline_ridge < 700
    assert 800 <= model.boost_clock_mhz <= 2700
    assert 50 <= model.tdp_w <= 1400
    if model.fp8_tflops is not None:
        assert model.compute_capability >= (8, 9)
        assert model.fp8_tflops == pytest.approx(2 * (model.fp16_tflops or 0), rel=0.02)
    if model.compute_capability < (8, 0):
        assert model.bf16_tflops is None
    if model.mig is not None:
        assert model.compute_capability >= (8, 0)
        largest = model.mig.profile(model.mig_profiles[-1])
        assert largest.memory_gib == pytest.approx(model.usable_memory_gib, rel=0.04)
    else:
        assert model.mig_profiles == ()


@pytest.mark.parametrize(
    ("architecture", "generation"),
    [
        (Architecture.PASCAL, 1),
        (Architecture.VOLTA, 2),
        (Architecture.TURING, 2),
        (Architecture.AMPERE, 3),
        (Architecture.HOPPER, 4),
        (Architecture.BLACKWELL, 5),
    ],
)
def test_nvlink_generation_follows_the_architecture(
    architecture: Architecture, generation: int
) -> None:
    ports = [m.nvlink for m in MODELS.values() if m.architecture is architecture and m.nvlink]
    assert {port.generation for port in ports} == {generation}


@pytest.mark.parametrize(
    ("key", "gbps", "fabric"),
    [
        ("p100-sxm2-16gb", 80.0, Fabric.MESH),
        ("v100-sxm2-16gb", 150.0, Fabric.MESH),
        ("a100-sxm4-80gb", 300.0, Fabric.SWITCH),
        ("a100-pcie-80gb", 300.0, Fabric.BRIDGE),
        ("a30", 100.0, Fabric.BRIDGE),
        ("a40", 56.25, Fabric.BRIDGE),
        ("rtx-3090", 56.25, Fabric.BRIDGE),
        ("h100-sxm5-80gb", 450.0, Fabric.SWITCH),
        ("h100-nvl-94gb", 300.0, Fabric.BRIDGE),
        ("b200-sxm6-180gb", 900.0, Fabric.SWITCH),
    ],
)
def test_nvlink_bandwidth_is_half_of_the_published_two_way_figure(
    key: str, gbps: float, fabric: Fabric
) -> None:
    port = gpu_model(key).nvlink
    assert port is not None
    assert (port.gbps, port.fabric) == (gbps, fabric)


def test_cards_without_nvlink_have_none() -> None:
    for key in ("t4", "l4", "l40s", "a10", "a10g", "rtx-4090", "rtx-5090", "rtx-pro-6000-server"):
        assert gpu_model(key).nvlink is None


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("a100", {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"}),
        ("A100-80GB", {"a100-pcie-80gb", "a100-sxm4-80gb"}),
        ("a100 40gb", {"a100-pcie-40gb", "a100-sxm4-40gb"}),
        ("a100-sxm", {"a100-sxm4-40gb", "a100-sxm4-80gb"}),
        ("a100-sxm-80gb", {"a100-sxm4-80gb"}),
        ("a100-80gb-sxm4", {"a100-sxm4-80gb"}),
        ("NVIDIA A100", {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"}),
        ("NVIDIA A100-SXM4-80GB", {"a100-sxm4-80gb"}),
        ("nvidia-a100-80gb", {"a100-sxm4-80gb"}),
        ("h100", {"h100-pcie-80gb", "h100-sxm5-80gb", "h100-nvl-94gb"}),
        ("h100-nvl", {"h100-nvl-94gb"}),
        ("h200", {"h200-sxm5-141gb", "h200-nvl-141gb"}),
        ("NVIDIA H200", {"h200-sxm5-141gb"}),
        ("v100-32gb", {"v100-pcie-32gb", "v100-sxm2-32gb", "v100-sxm3-32gb"}),
        ("Tesla T4", {"t4"}),
        ("a10", {"a10"}),
        ("a10g", {"a10g"}),
        ("l40", {"l40"}),
        ("rtx 4090", {"rtx-4090"}),
        ("GeForce RTX 3090", {"rtx-3090"}),
        ("rtx-3080", {"rtx-3080-10gb", "rtx-3080-12gb"}),
        ("gh200", {"gh200-96gb", "gh200-144gb"}),
        ("b200", {"b200-sxm6-180gb"}),
        ("rtx-pro-6000",
         {"rtx-pro-6000-workstation", "rtx-pro-6000-max-q", "rtx-pro-6000-server"}),
        ("RTX PRO Server 6000", {"rtx-pro-6000-server"}),
        ("nvidia-tesla-t4-vws", {"t4"}),
        ("RTX4090", {"rtx-4090"}),
        ("4090", {"rtx-4090"}),
        ("3080ti", {"rtx-3080-ti"}),
        ("a6000", {"rtx-a6000"}),
        ("A100-80G", {"a100-pcie-80gb", "a100-sxm4-80gb"}),
        ("h100sxm", {"h100-sxm5-80gb"}),
        ("rtxpro6000",
         {"rtx-pro-6000-workstation", "rtx-pro-6000-max-q", "rtx-pro-6000-server"}),
    ],
)  # fmt: skip
def test_a_request_accepts_every_variant_it_does_not_rule_out(name: str, keys: set[str]) -> None:
    assert resolve(name) == keys


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm5-141gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb"),
    ],
)
def test_a_device_name_is_one_model(name: str, key: str) -> None:
    assert identify(name).key == key


def test_a_device_name_that_could_be_several_models_is_refused_and_names_them() -> None:
    with pytest.raises(AmbiguousGpuModel, match=r"h100-nvl-94gb, h100-pcie-80gb") as refused:
        identify("H100")
    assert refused.value.nearest == ("h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm5-80gb")


def test_reported_memory_decides_between_cards_of_one_name() -> None:
    assert identify("NVIDIA GeForce RTX 3080", 10240).key == "rtx-3080-10gb"
    assert identify("NVIDIA GeForce RTX 3080", 12288).key == "rtx-3080-12gb"
    with pytest.raises(AmbiguousGpuModel):
        identify("NVIDIA GeForce RTX 3080")


def test_reported_memory_that_fits_no_variant_decides_nothing() -> None:
    with pytest.raises(AmbiguousGpuModel):
        identify("NVIDIA GeForce RTX 3080", 2048)


def test_memory_does_not_decide_between_form_factors() -> None:
    with pytest.raises(AmbiguousGpuModel):
        identify("a100", 81920)


@pytest.mark.parametrize(
    ("label", "key", "profile", "shared"),
    [
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm4-80gb", None, False),
        ("Tesla-T4-SHARED", "t4", None, True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm4-40gb", "1g.5gb", False),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "a100-sxm4-40gb", "1g.5gb+me", False),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED", "h100-sxm5-80gb", "3g.40gb", True),
        ("NVIDIA-A100-SXM4-80GB-MIG-1c.3g.40gb", "a100-sxm4-80gb", "1c.3g.40gb", False),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb.me.all",
            "rtx-pro-6000-server",
            "1g.24gb+me.all",
            False,
        ),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb.gfx",
            "rtx-pro-6000-server",
            "1g.24gb+gfx",
            False,
        ),
        (
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb-me",
            "rtx-pro-6000-server",
            "1g.24gb-me",
            False,
        ),
    ],
)
def test_a_node_label_says_model_slice_and_sharing(
    label: str, key: str, profile: str | None, shared: bool
) -> None:
    found = identify_label(label)
    assert (found.model.key, found.mig_profile, found.shared) == (key, profile, shared)


@pytest.mark.parametrize(
    ("name", "mib", "key"),
    [
        ("A100", 40960, "a100-sxm4-40gb"),
        ("A100", 81920, "a100-sxm4-80gb"),
        ("V100", 16384, "v100-sxm2-16gb"),
        ("V100", 32768, "v100-sxm2-32gb"),
        ("A10G", 22888, "a10g"),
        ("L40S", 45776, "l40s"),
        ("H100", 81920, "h100-sxm5-80gb"),
        ("H200", 144384, "h200-sxm5-141gb"),
        ("B200", 183359, "b200-sxm6-180gb"),
        ("B300", 275040, "b300-sxm6-288gb"),
        ("T4g", 16384, "t4g"),
        ("RTX PRO Server 6000", 98304, "rtx-pro-6000-server"),
    ],
)
def test_ec2_names_a_chip_and_its_memory(name: str, mib: int, key: str) -> None:
    assert identify_ec2(name, mib).key == key


def test_an_accelerator_ec2_does_not_sell_is_refused() -> None:
    with pytest.raises(UnknownGpuModel, match="Radeon Pro V520"):
        identify_ec2("Radeon Pro V520", 8192)


@pytest.mark.parametrize(
    ("accelerator", "key"),
    [
        ("nvidia-tesla-t4", "t4"),
        ("nvidia-tesla-t4-vws", "t4"),
        ("nvidia-l4", "l4"),
        ("nvidia-tesla-a100", "a100-sxm4-40gb"),
        ("nvidia-a100-80gb", "a100-sxm4-80gb"),
        ("nvidia-h100-80gb", "h100-sxm5-80gb"),
        ("nvidia-h200-141gb", "h200-sxm5-141gb"),
        ("projects/p/zones/us-central1-a/acceleratorTypes/nvidia-b200", "b200-sxm6-180gb"),
    ],
)
def test_compute_engine_names_an_accelerator_type(accelerator: str, key: str) -> None:
    assert identify_gce(accelerator).key == key


def test_an_unknown_accelerator_type_names_the_nearest() -> None:
    with pytest.raises(UnknownGpuModel) as refused:
        identify_gce("nvidia-h100-90gb")
    assert refused.value.nearest[0] == "nvidia-h100-80gb"


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownGpuModel, match=r"nearest: .*a100-80gb") as refused:
        resolve("a100-90gb")
    assert refused.value.name == "a100-90gb"
    assert "a100-80gb" in refused.value.nearest


def test_a_name_whose_words_several_models_hold_offers_those() -> None:
    assert set(nearest_names("RTX 6000")) == {"quadro-rtx-6000", "rtx-6000-ada", "rtx-pro-6000"}


@pytest.mark.parametrize("name", ["rtx6000", "6000", "a10080", "gtx1080"])
def test_a_short_name_that_several_models_could_mean_is_no_name(name: str) -> None:
    with pytest.raises(UnknownGpuModel):
        resolve(name)


def test_a_device_is_never_guessed_from_a_short_name() -> None:
    with pytest.raises(UnknownGpuModel):
        identify("rtx4090")


def test_a_name_like_no_other_offers_nothing() -> None:
    with pytest.raises(UnknownGpuModel, match=r"no GPU model is called 'xyzzy'$"):
        identify("xyzzy")


def test_a_key_must_be_exact() -> None:
    with pytest.raises(UnknownGpuModel):
        gpu_model("A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("h100-sxm5-80gb", 80),
        ("a100-pcie-40gb", 40),
        ("v100-sxm2-16gb", 16),
        ("h200-sxm5-141gb", 141),
        ("b200-sxm6-180gb", 180),
        ("rtx-4090", 24),
        ("rtx-a6000", 48),
    ],
)
def test_a_size_asked_for_by_the_box_is_satisfied_by_that_box(key: str, asked: float) -> None:
    assert satisfies_memory(gpu_model(key).usable_memory_gib, asked)


@pytest.mark.parametrize(("key", "asked"), [("a40", 48), ("l40s", 48), ("l4", 24), ("t4", 16)])
def test_memory_spent_on_error_correction_is_not_there(key: str, asked: float) -> None:
    assert not satisfies_memory(gpu_model(key).usable_memory_gib, asked)


def test_46_gb_do_not_satisfy_48() -> None:
    assert not satisfies_memory(46, 48)
    assert satisfies_memory(46, 46)


@pytest.mark.parametrize(("usable", "asked"), [(float("nan"), 1), (1, float("inf")), (-1, 1)])
def test_memory_that_is_no_amount_is_refused(usable: float, asked: float) -> None:
    with pytest.raises(ValueError, match="memory"):
        satisfies_memory(usable, asked)
