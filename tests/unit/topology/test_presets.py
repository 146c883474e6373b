"""Presets, NVML levels and the declaration string."""

from __future__ import annotations

import pytest

from hybrid.hardware import UnknownGpuModel
from hybrid.topology import (
    PRESETS,
    InvalidDeclaration,
    InvalidTopology,
    PcieLevel,
    default_preset,
    from_levels,
    join,
    nvlink_generation,
    parse_virtual_gpus,
    pcie_gbps,
    preset,
    slot_table,
)
from tests.unit.topology.graphs import EIGHT

PIX, PHB, SYS = PcieLevel.PIX, PcieLevel.PHB, PcieLevel.SYS


def test_on_nvswitch_every_pair_has_all_links() -> None:
    graph = EIGHT["nvswitch"]
    assert {gbps for _, _, gbps in graph.edges()} == {300.0}
    assert all(graph.is_nvlink(i, j) for i, j, _ in graph.edges())
    assert graph.numa == (0, 0, 0, 0, 1, 1, 1, 1)


def test_the_cube_mesh_uses_six_links_of_each_v100_and_four_of_each_p100() -> None:
    for name, links, per_link in (("dgx1", 6, 25.0), ("dgx1-p100", 4, 20.0)):
        graph = EIGHT[name]
        for i in range(8):
            over_nvlink = [graph.gbps[i][j] for j in range(8) if graph.is_nvlink(i, j)]
            assert sum(over_nvlink) == links * per_link
            assert len(over_nvlink) == 4


def test_a_ring_of_double_links_runs_through_the_whole_cube_mesh() -> None:
    table = slot_table(EIGHT["dgx1"])
    assert table.bottleneck_gbps(0xFF) == 50.0
    assert table.ring_order(0xFF) == (0, 3, 2, 1, 5, 6, 7, 4)


def test_half_a_cube_mesh_is_one_quad() -> None:
    graph = preset("dgx1", "v100-sxm2-16gb", 4)
    assert graph == EIGHT["dgx1"].induced((0, 1, 2, 3))
    assert all(graph.is_nvlink(i, j) for i, j, _ in graph.edges())


def test_pairs_are_on_nvlink_and_never_astride_two_sockets() -> None:
    for count in range(2, 17):
        graph = preset("nvlink-pairs", "a100-pcie-80gb", count)
        for i, j, gbps in graph.edges():
            paired = i // 2 == j // 2
            assert graph.is_nvlink(i, j) is paired
            assert (gbps == 300.0) is paired
            if paired:
                assert graph.numa[i] == graph.numa[j]


def test_sockets_cost_bandwidth() -> None:
    one, two = EIGHT["pcie"], EIGHT["pcie-2-socket"]
    assert {g for _, _, g in one.edges()} == {pcie_gbps(PHB, 4)}
    assert two.gbps[0][3] == pcie_gbps(PHB, 4)
    assert two.gbps[0][4] == pcie_gbps(SYS, 4)


def test_without_links_nothing_reaches_anything() -> None:
    assert {g for _, _, g in EIGHT["none"].edges()} == {0.0}


@pytest.mark.parametrize(
    ("name", "key", "count", "message"),
    [
        ("nvswitch", "a100-pcie-80gb", 8, "a100-pcie-80gb is not sold with NVSwitch"),
        ("nvswitch", "l4", 2, "l4 is not sold with NVSwitch"),
        ("dgx1", "a100-sxm4-80gb", 8, "is not sold in a cube mesh"),
        ("dgx1", "v100-sxm2-16gb", 9, "9 GPUs; a cube mesh has 8"),
        ("nvlink-pairs", "l4", 2, "l4 has no NVLink"),
        ("token-ring", "l4", 2, "no link preset is called 'token-ring'; there are nvswitch"),
        ("pcie", "l4", 0, "0 GPUs; a machine has 1 to 16"),
        ("pcie", "l4", 17, "17 GPUs; a machine has 1 to 16"),
    ],
)
def test_wiring_that_is_not_sold_is_refused(name: str, key: str, count: int, message: str) -> None:
    with pytest.raises(InvalidTopology, match=message):
        preset(name, key, count)


def test_a_preset_needs_an_exact_model() -> None:
    with pytest.raises(UnknownGpuModel):
        preset("pcie", "a100", 2)


@pytest.mark.parametrize(
    ("key", "count", "name"),
    [
        ("a100-sxm4-80gb", 8, "nvswitch"),
        ("a100-sxm4-80gb", 1, "none"),
        ("v100-sxm2-16gb", 8, "dgx1"),
        ("v100-sxm2-16gb", 16, "pcie-2-socket"),
        ("a100-pcie-80gb", 4, "pcie"),
        ("l4", 8, "pcie-2-socket"),
    ],
)
def test_the_usual_wiring_of_a_model(key: str, count: int, name: str) -> None:
    assert default_preset(key, count) == name


@pytest.mark.parametrize(
    ("text", "key", "count", "links"),
    [
        ("a100-80gb:4:nvlink-pairs", "a100-pcie-80gb", 4, "nvlink-pairs"),
        ("a100-80gb:8:nvswitch", "a100-sxm4-80gb", 8, "nvswitch"),
        ("a100-80gb:8", "a100-sxm4-80gb", 8, "nvswitch"),
        ("a100-80gb:2:pcie", "a100-pcie-80gb", 2, "pcie"),
        ("h200:2:nvlink-pairs", "h200-nvl-141gb", 2, "nvlink-pairs"),
        ("v100:8:dgx1", "v100-sxm2-16gb", 8, "dgx1"),
        ("v100-32gb:16:nvswitch", "v100-sxm3-32gb", 16, "nvswitch"),
        ("v100:2:nvlink-pairs", "v100-sxm3-32gb", 2, "nvlink-pairs"),
        (" NVIDIA T4 : 2 ", "t4", 2, "pcie"),
        ("l4", "l4", 1, "none"),
    ],
)
def test_a_declaration_names_the_variant_its_links_are_sold_with(
    text: str, key: str, count: int, links: str
) -> None:
    declared = parse_virtual_gpus(text)
    assert declared == (key, count, preset(links, key, count))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "write MODEL, MODEL:COUNT or MODEL:COUNT:LINKS"),
        ("a100:4:pcie:x", "write MODEL, MODEL:COUNT or MODEL:COUNT:LINKS"),
        ("a100::pcie", "write MODEL, MODEL:COUNT or MODEL:COUNT:LINKS"),
        ("a100:four", "the number of GPUs is not a number: 'four'"),
        ("a100:-1", "the number of GPUs is not a number: '-1'"),
        ("a100:²", "the number of GPUs is not a number: '²'"),
        ("a100:0", "0 GPUs; a machine has 1 to 16"),
        ("a101:2", "no GPU model is called 'a101'; nearest: "),
        ("l4:2:nvswitch", "l4 is not sold with NVSwitch"),
        ("l4:2:mesh", "no link preset is called 'mesh'"),
    ],
)
def test_a_declaration_that_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        parse_virtual_gpus(text)
    assert refused.value.text == text
    assert refused.value.reason.startswith(reason)


def test_every_preset_can_be_declared() -> None:
    models = {"dgx1": "v100"}
    for name in PRESETS:
        assert parse_virtual_gpus(f"{models.get(name, 'a100')}:4:{name}").gpus == 4


def test_a_mixed_box_joins_two_graphs() -> None:
    pair, cards = preset("nvlink-pairs", "a100-pcie-80gb", 2), preset("pcie", "l4", 2)
    box = join(pair, cards, 10.0)
    assert box.count == 4
    assert box.gbps[0] == (0.0, 300.0, 10.0, 10.0)
    assert box.gbps[3] == (10.0, 10.0, pcie_gbps(PHB, 4), 0.0)
    assert box.nvlink == (2, 1, 0, 0)
    # the pair stays whole: one GPU is taken from the cards
    choice = slot_table(box).choose(box.full_mask, 1)
    assert choice is not None
    assert choice.devices == (2,)


def test_nvml_levels_become_bandwidths_nearest_first() -> None:
    speeds = [pcie_gbps(level, 4) for level in sorted(PcieLevel)]
    assert speeds == sorted(speeds, reverse=True)
    assert pcie_gbps(PIX, 4) == pytest.approx(25.2, abs=0.01)
    assert pcie_gbps(PIX, 4, lanes=8) == pytest.approx(12.6, abs=0.01)


def test_active_nvlinks_beat_the_pcie_level() -> None:
    graph = from_levels(
        [[0, 10, 50], [10, 0, 50], [50, 50, 0]],
        [[0, 4, 0], [4, 0, 0], [0, 0, 0]],
        pcie_generation=4,
        nvlink_generation=3,
        numa=(0, 0, 1),
    )
    assert graph.gbps[0] == (0.0, 100.0, pcie_gbps(SYS, 4))
    assert graph.nvlink == (2, 1, 0)


def test_links_to_switches_reach_every_device_with_the_fewer_links() -> None:
    levels = [[0, 30, 30], [30, 0, 30], [30, 30, 0]]
    none = [[0] * 3] * 3
    graph = from_levels(
        levels, none, pcie_generation=5, nvlink_generation=4, switch_links=(18, 18, 12)
    )
    assert graph.gbps[0] == (0.0, 450.0, 300.0)


def test_a_slow_bridge_is_still_nvlink_when_pcie_is_faster() -> None:
    graph = from_levels(
        [[0, 10], [10, 0]], [[0, 1], [1, 0]], pcie_generation=5, nvlink_gbps_per_link=14.0625
    )
    assert graph.gbps[0][1] == pcie_gbps(PIX, 5)
    assert graph.is_nvlink(0, 1)


@pytest.mark.parametrize(
    ("levels", "links", "extra", "message"),
    [
        ([[0, 10], [20, 0]], [[0, 0], [0, 0]], {}, "link between 0 and 1: .* one way"),
        ([[0, 10], [10, 0]], [[0, 4], [2, 0]], {}, "link between 0 and 1: .* one way"),
        ([[0, 11], [11, 0]], [[0, 0], [0, 0]], {}, "link between 0 and 1: 11 is no PCIe level"),
        ([[0, 10], [10, 0]], [[0, -1], [-1, 0]], {}, "link between 0 and 1: -1 links"),
        ([[0, 10], [10, 0]], [[0]], {}, "levels are of 2 devices"),
        ([[0, 10], [10, 0]], [[0, 0], [0, 0]], {"switch_links": (1,)}, "levels are of 2 devices"),
        ([[0, 10], [10]], [[0, 0], [0, 0]], {}, "a row has not one entry per device"),
        ([[0, 10], [10, 0]], [[0, 1], [1, 0]], {"nvlink_generation": None},
         "their generation is unknown"),
        ([[0, 10], [10, 0]], [[0, 1], [1, 0]], {"nvlink_generation": 9}, "no generation 9"),
        ([[0, 10], [10, 0]], [[0, 1], [1, 0]], {"pcie_generation": 9}, "PCIe has no generation 9"),
    ],
)  # fmt: skip
def test_reports_that_contradict_themselves_are_refused(
    levels: list[list[int]], links: list[list[int]], extra: dict[str, object], message: str
) -> None:
    keywords = {"pcie_generation": 4, "nvlink_generation": 3, **extra}
    with pytest.raises(InvalidTopology, match=message):
        from_levels(levels, links, **keywords)  # type: ignore[arg-type]


def test_nvml_numbers_its_nvlink_versions() -> None:
    assert [nvlink_generation(n) for n in range(1, 8)] == [1, 2, 2, 3, 3, 4, 5]
    with pytest.raises(ValueError, match="no NVLink version 0"):
        nvlink_generation(0)
