"""Relative speed of a job on a GPU model: measured, learned or guessed."""

from __future__ import annotations

import math

import pytest

from hybrid.domain.job_spec import Profile
from hybrid.domain.learned import Estimate
from hybrid.estimation.speed import MIN_SAMPLES, Speed, guess_speed, job_speed, work_per_watt
from hybrid.hardware import MODELS, UnknownGpuModel, gpu_model

A100, H100, L4, L40S, K80 = "a100-sxm4-80gb", "h100-sxm5-80gb", "l4", "l40s", "k80"


@pytest.mark.parametrize("profile", list(Profile))
def test_the_reference_gpu_has_speed_one(profile: Profile) -> None:
    assert guess_speed(profile, A100) == 1.0


@pytest.mark.parametrize(
    ("profile", "key", "speed"),
    [
        (Profile.COMPUTE, H100, 989 / 312),
        (Profile.MEMORY, H100, 3350 / 2039),
        (Profile.BALANCED, H100, math.sqrt(989 / 312 * 3350 / 2039)),
        (Profile.LATENCY, H100, 1980 / 1410),
        (Profile.COMPUTE, K80, 4.37 / 312),  # no 16-bit units: FP32
        (Profile.COMPUTE, "p100-pcie-16gb", 18.7 / 312),
        (Profile.MEMORY, L4, 300 / 2039),
    ],
)
def test_the_guess_is_the_ratio_of_what_bounds_the_job(
    profile: Profile, key: str, speed: float
) -> None:
    assert guess_speed(profile, key) == pytest.approx(speed)


def test_a_memory_rich_gpu_wins_a_memory_bound_job_at_lower_clocks() -> None:
    rich, clocked = gpu_model("a100-pcie-40gb"), gpu_model(L40S)
    assert rich.boost_clock_mhz < clocked.boost_clock_mhz
    assert guess_speed(Profile.MEMORY, rich.key) > guess_speed(Profile.MEMORY, clocked.key)
    assert guess_speed(Profile.COMPUTE, rich.key) < guess_speed(Profile.COMPUTE, clocked.key)


def test_a_small_card_does_latency_bound_work_with_the_least_energy() -> None:
    assert guess_speed(Profile.LATENCY, L4) > 1.0
    assert work_per_watt(Profile.LATENCY, gpu_model(L4)) == pytest.approx(2040 / 1410 * 400 / 72)


@pytest.mark.parametrize("key", sorted(MODELS))
def test_every_model_has_a_guess_for_every_profile(key: str) -> None:
    for profile in Profile:
        assert 0 < guess_speed(profile, key) < 20


def test_the_users_table_goes_before_everything() -> None:
    found = job_speed(
        L4,
        Profile.COMPUTE,
        family="bert",
        table={"l4": 0.3},
        learned={("bert", L4): Estimate(0.2, 9)},
    )
    assert found == Speed(0.3, "table", 9, guess=pytest.approx(121 / 312), learned=0.2)


def test_the_exact_model_goes_before_its_family_in_the_table() -> None:
    table = {"a100": 0.9, "a100-80gb": 0.95, "a100-pcie-80gb": 0.97}
    assert job_speed("a100-pcie-80gb", Profile.COMPUTE, table=table).value == 0.97
    assert job_speed(A100, Profile.COMPUTE, table=table).value == 0.95
    assert job_speed("a100-sxm4-40gb", Profile.COMPUTE, table=table).value == 0.9


def test_a_table_about_other_models_says_nothing() -> None:
    found = job_speed(L4, Profile.MEMORY, table={"h100": 3.0, "some-tpu": 5.0})
    assert found.source == "guess"


def test_learned_speed_counts_from_five_runs_on() -> None:
    few = {("bert", L4): Estimate(0.2, MIN_SAMPLES - 1)}
    enough = {("bert", L4): Estimate(0.2, MIN_SAMPLES)}
    guess = guess_speed(Profile.COMPUTE, L4)
    assert MIN_SAMPLES == 5
    assert job_speed(L4, Profile.COMPUTE, family="bert", learned=few) == Speed(
        guess, "guess", 4, guess, 0.2
    )
    assert job_speed(L4, Profile.COMPUTE, family="bert", learned=enough) == Speed(
        0.2, "learned", 5, guess, 0.2
    )


def test_what_one_family_taught_is_not_used_for_another() -> None:
    learned = {("bert", L4): Estimate(0.2, 50)}
    assert job_speed(L4, Profile.COMPUTE, family="resnet", learned=learned).samples == 0


def test_a_model_out_of_the_catalogue_needs_a_measured_speed() -> None:
    assert job_speed("x9000", Profile.COMPUTE, table={"x9000": 2.0}) == Speed(2.0, "table")
    learned = {("", "x9000"): Estimate(1.5, 5)}
    assert job_speed("x9000", Profile.COMPUTE, learned=learned).value == 1.5
    with pytest.raises(UnknownGpuModel, match="x9000"):
        job_speed("x9000", Profile.COMPUTE)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_speed_that_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="speed given for l4"):
        job_speed(L4, Profile.COMPUTE, table={"l4": value})
    with pytest.raises(ValueError, match="speed given for a100"):
        job_speed(A100, Profile.COMPUTE, table={"a100": value})
    with pytest.raises(ValueError, match="learned speed of bert on l4"):
        job_speed(L4, Profile.COMPUTE, family="bert", learned={("bert", L4): Estimate(value, 1)})


def test_on_a_mig_instance_runs_on_such_instances_teach_the_speed() -> None:
    instance = f"{A100}:3g.40gb"
    learned = {("bert", instance): Estimate(0.5, 5), ("bert", A100): Estimate(1.1, 9)}
    found = job_speed(instance, Profile.COMPUTE, family="bert", learned=learned)
    assert found == Speed(0.5, "learned", 5, guess=1.0, learned=0.5)
    assert job_speed(A100, Profile.COMPUTE, family="bert", learned=learned).value == 1.1


def test_a_mig_instance_of_which_too_little_is_known_is_judged_by_its_whole_gpu() -> None:
    instance = f"{A100}:3g.40gb"
    assert job_speed(instance, Profile.COMPUTE).value == 1.0
    few = {("bert", instance): Estimate(0.5, 4)}
    assert job_speed(instance, Profile.COMPUTE, family="bert", learned=few) == Speed(
        1.0, "guess", 4, guess=1.0, learned=0.5
    )
    whole = {**few, ("bert", A100): Estimate(1.1, 9)}
    assert job_speed(instance, Profile.COMPUTE, family="bert", learned=whole).value == 1.1


def test_a_speed_given_for_a_mig_instance_goes_before_that_of_its_gpu() -> None:
    table = {f"{A100}:3g.40gb": 0.4, A100: 1.2}
    assert job_speed(f"{A100}:3g.40gb", Profile.COMPUTE, table=table).value == 0.4
    assert job_speed(f"{A100}:1g.10gb", Profile.COMPUTE, table=table).value == 1.2
