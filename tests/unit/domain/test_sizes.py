"""Sizes as people write them."""

from __future__ import annotations

import pytest

from hybrid.domain.job_spec import GpuRequest, Resources
from hybrid.domain.quantities import parse_gib, parse_gpu_gib
from hybrid.hardware import gpu_model, satisfies_memory


@pytest.mark.parametrize("text", ["48GB", "48 GB", "48GiB", "49152MB", 48])
def test_the_memory_of_a_gpu_is_read_as_it_stands_on_its_box(text: object) -> None:
    assert parse_gpu_gib(text) == 48


def test_other_sizes_tell_thousands_from_1024s() -> None:
    assert parse_gib("48GB") == pytest.approx(44.7, abs=0.01)
    assert Resources(memory="48GB").memory == pytest.approx(44.7, abs=0.01)  # type: ignore[arg-type]


def test_a_card_that_shows_46_gb_does_not_satisfy_a_request_for_48_gb() -> None:
    asked = GpuRequest(memory="48GB").memory  # type: ignore[arg-type]
    assert asked is not None
    assert not satisfies_memory(gpu_model("a40").usable_memory_gib, asked)
    assert satisfies_memory(gpu_model("rtx-a6000").usable_memory_gib, asked)


@pytest.mark.parametrize("value", ["48 apples", float("nan"), -1, True])
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_gpu_gib(value)
