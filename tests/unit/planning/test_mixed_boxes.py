"""Machines with GPUs of two models: offered, asked for, and given out card by card."""

from __future__ import annotations

from typing import Any

from hybrid.domain.plan import OpenClaim, Place
from hybrid.domain.reasons import HardwareMismatch
from hybrid.planning.fit import fits, need_of, offer_shape
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from hybrid.runtime.sensible import offer_fault
from providers.aws.machine_facts import facts
from tests.doubles.apply_plan import apply_plan
from tests.doubles.build import NOW, a_spec, an_offer, links
from tests.scenarios.world import build

T4, A100 = ("t4", 14.8), ("a100-sxm4-80gb", 79.2)
BOX = an_offer(gpus=3, gpu_model="t4", devices=(T4, A100, A100), links_gbps=links(3, 16.0))


def of(offer: Any, **gpu: Any) -> Any:
    count = gpu.pop("gpus", 1)
    spec = a_spec(resources={"gpus": count, "cpus": 1, "gpu": gpu})
    return fits(need_of(spec), offer_shape(offer))


def test_an_offer_of_equal_cards_says_what_it_always_said() -> None:
    offer = an_offer(gpus=2, links_gbps=links(2, 16.0))
    assert (offer.models, offer.memories_gib) == (("a10g", "a10g"), (22.5, 22.5))


def test_each_model_of_a_box_fits_by_itself() -> None:
    assert {fit.model: fit.allowed for fit in of(BOX)} == {"t4": 0b001, "a100-sxm4-80gb": 0b110}
    assert {fit.model for fit in of(BOX, memory=40)} == {"a100-sxm4-80gb"}
    assert {fit.model for fit in of(BOX, gpus=2)} == {"a100-sxm4-80gb"}


def test_more_of_one_model_than_the_box_has_do_not_fit() -> None:
    assert of(BOX, gpus=3) == HardwareMismatch("GPUs of one model", "3", "2 models")


def test_a_box_whose_cards_are_not_all_described_is_ignored() -> None:
    odd = an_offer(gpus=2, devices=(T4,), links_gbps=links(2, 16.0))
    assert offer_fault(odd, NOW) == "it has 2 GPUs, and 1 are described"
    broken = an_offer(gpus=1, devices=(("t4", float("nan")),))
    assert offer_fault(broken, NOW) == "the memory of its GPUs is nan"
    assert offer_fault(BOX, NOW) is None


WORLD: dict[str, Any] = {
    "pools": {"home": {}, "cloud": {"kind": "burst"}},
    "offers": {"box": {"pool": "cloud", "type": "box", "price": 4,
                       "models": ["t4", "a100-sxm4-80gb"]}},
    "policy": {"budgets": [{"name": "all", "limit_usd": 100}]},
}  # fmt: skip


def test_a_job_is_expected_to_run_on_the_fastest_card_that_fits() -> None:
    jobs = {"any": {"run": "1h", "profile": "compute"}}
    snapshot, policy = build({**WORLD, "jobs": jobs})
    made = plan(snapshot, policy, 1)
    assert [type(a) for a in made.actions] == [OpenClaim]
    (offer,) = [a for a in made.decisions[0].alternatives if a.terms]
    assert offer.speed.startswith("speed 1 on a100-sxm4-80gb")


def test_a_box_that_has_joined_is_given_out_card_by_card() -> None:
    claimed = {"claims": {"c1": {"offer": "box", "job": "small"}}}
    jobs = {
        "small": {"run": "1h", "models": ["t4"]},
        "large": {"run": "1h", "models": ["a100-80gb"]},
    }
    snapshot, policy = build({**WORLD, **claimed, "jobs": jobs})
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    held = {str(a.run.job_id): (a.run.gpu_model, a.run.slots[0].gpu_ids[0])
            for a in made.actions if isinstance(a, Place)}  # fmt: skip
    assert held == {
        "small": ("t4", "GPU-n-c1-0"),
        "large": ("a100-sxm4-80gb", "GPU-n-c1-1"),
    }
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()


def test_ec2s_listing_of_a_box_names_every_card() -> None:
    row = {
        "InstanceType": "x9.mixed",
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 393_216},
        "GpuInfo": {
            "Gpus": [
                {"Name": "T4", "Count": 1, "MemoryInfo": {"SizeInMiB": 16_384}},
                {"Name": "A100", "Count": 2, "MemoryInfo": {"SizeInMiB": 40_960}},
            ]
        },
    }
    found = facts([row])["x9.mixed"]
    assert found.gpus == 3
    assert [model for model, _ in found.devices] == ["t4", "a100-sxm4-40gb", "a100-sxm4-40gb"]
    assert len(found.links_gbps) == 3
    assert found.links_gbps[0][1] == found.links_gbps[1][0] > 0
