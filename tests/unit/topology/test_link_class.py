"""What slow links cost."""

from __future__ import annotations

import math

import pytest

from hybrid.hardware import MODELS, gpu_model
from hybrid.topology import MINIMUM_GBPS, LinkClass, link_efficiency, pcie_gbps, reference_gbps
from hybrid.topology.levels import PcieLevel

A100, L4 = gpu_model("a100-sxm4-80gb"), gpu_model("l4")


def test_the_best_link_of_a_model_costs_nothing() -> None:
    assert reference_gbps(A100) == 300.0
    assert link_efficiency(300.0, A100) == 1.0
    assert link_efficiency(600.0, A100) == 1.0
    assert link_efficiency(math.inf, A100) == 1.0
    assert link_efficiency(pcie_gbps(PcieLevel.PIX, 4), L4) == 1.0


def test_links_of_a_tenth_the_bandwidth_lengthen_the_waiting_tenfold() -> None:
    # 5 % of a step waits for links: 0.95 + 0.05 × 10 = 1.45 times as long
    assert link_efficiency(30.0, A100) == pytest.approx(1 / 1.45)


def test_no_direct_path_counts_as_the_way_through_host_memory() -> None:
    assert link_efficiency(0.0, A100) == link_efficiency(3.0, A100) == pytest.approx(1 / 5.95)


@pytest.mark.parametrize("key", sorted(MODELS))
def test_efficiency_lies_between_nothing_and_one_and_grows_with_bandwidth(key: str) -> None:
    found = [link_efficiency(gbps, gpu_model(key)) for gbps in (0, 3, 6, 12, 25, 50, 300, 900)]
    assert found == sorted(found)
    assert found[0] > 0
    assert found[-1] == 1.0


@pytest.mark.parametrize("gbps", [float("nan"), -1.0])
def test_a_bandwidth_that_is_none_is_refused(gbps: float) -> None:
    with pytest.raises(ValueError, match="is not a bandwidth"):
        link_efficiency(gbps, A100)


def test_each_word_asks_for_more_than_the_one_before() -> None:
    asked = [MINIMUM_GBPS[link] for link in (LinkClass.ANY, LinkClass.PCIE, LinkClass.NVLINK)]
    assert asked == sorted(asked)
    assert asked[0] == 0.0
