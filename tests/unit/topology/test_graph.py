"""Link graphs: what is refused and how it is named, and what counts as NVLink."""

from __future__ import annotations

import pytest

from hybrid.topology import InvalidTopology, LinkGraph, devices_of, mask_of, slot_table
from tests.unit.topology.graphs import EIGHT

NAN = float("nan")


@pytest.mark.parametrize(
    ("gbps", "message", "pair"),
    [
        (((0, 10), (20, 0)), "link between 0 and 1: 10.0 GB/s one way and 20.0 back", (0, 1)),
        (((0, NAN), (NAN, 0)), "link between 0 and 1: nan is not a bandwidth", (0, 1)),
        (((0, float("inf")), (1, 0)), "link between 0 and 1: inf is not a bandwidth", (0, 1)),
        (((0, 1), (-1, 0)), "link between 1 and 0: -1.0 GB/s is negative", (1, 0)),
        (((0, 1, 2), (1, 0)), "link between 0 and 2: there is no device 2", (0, 2)),
        (((0,), (1, 0)), "link between 0 and 1: is missing", (0, 1)),
        (((5, 1), (1, 0)), "link between 0 and 0: a device has no link to itself", (0, 0)),
    ],
)
def test_a_matrix_that_is_no_machine_is_refused_with_the_pair_named(
    gbps: tuple[tuple[float, ...], ...], message: str, pair: tuple[int, int]
) -> None:
    with pytest.raises(InvalidTopology) as refused:
        LinkGraph.of_matrix(gbps)
    assert str(refused.value) == message
    assert refused.value.pair == pair


@pytest.mark.parametrize(
    ("nvlink", "message"),
    [
        ((2, 0), "link between 0 and 1: is NVLink one way only"),
        ((4, 0), "link between 0 and 2: there is no device 2"),
        ((0, 0, 0), "2 devices but 3 NVLink masks"),
    ],
)
def test_nvlink_masks_must_agree_with_the_matrix(nvlink: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidTopology) as refused:
        LinkGraph(((0.0, 9.0), (9.0, 0.0)), (0, 0), nvlink)
    assert str(refused.value) == message


def test_nvlink_without_bandwidth_is_refused() -> None:
    with pytest.raises(InvalidTopology, match="between 0 and 1: is NVLink but has no bandwidth"):
        LinkGraph(((0.0, 0.0), (0.0, 0.0)), (0, 0), (2, 1))


def test_numa_nodes_and_models_are_one_per_device() -> None:
    with pytest.raises(InvalidTopology, match="2 devices but 1 NUMA nodes"):
        LinkGraph.of_matrix(((0, 1), (1, 0)), numa=(0,))
    with pytest.raises(InvalidTopology, match="2 devices but 1 models"):
        LinkGraph.of_matrix(((0, 1), (1, 0)), models=("l4",))


def test_a_machine_has_at_most_16_devices() -> None:
    with pytest.raises(InvalidTopology, match="17 devices; a machine has at most 16"):
        LinkGraph.of_matrix([[0.0] * 17 for _ in range(17)])


def test_links_by_name_make_the_matrix() -> None:
    graph = LinkGraph.of_links(
        ("a", "b", "c"), [("a", "b", 25.0), ("c", "b", 10.0)], numa=(0, 0, 1)
    )
    assert graph.gbps == ((0, 25, 0), (25, 0, 10), (0, 10, 0))
    assert graph.numa == (0, 0, 1)
    assert list(graph.edges()) == [(0, 1, 25.0), (0, 2, 0.0), (1, 2, 10.0)]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([("a", "x", 1.0)], "link between a and x: there is no device x"),
        ([("a", "a", 1.0)], "link between a and a: a device has no link to itself"),
        ([("a", "b", 1.0), ("b", "a", 2.0)],
         "link between b and a: given as both 1.0 and 2.0 GB/s"),
    ],
)  # fmt: skip
def test_links_by_name_are_refused_with_the_names(
    links: list[tuple[str, str, float]], message: str
) -> None:
    with pytest.raises(InvalidTopology) as refused:
        LinkGraph.of_links(("a", "b"), links)
    assert str(refused.value) == message


def test_a_link_given_twice_alike_is_one_link() -> None:
    graph = LinkGraph.of_links(("a", "b"), [("a", "b", 1.0), ("b", "a", 1.0)])
    assert graph.gbps[0][1] == 1.0


def test_device_names_are_unique() -> None:
    with pytest.raises(InvalidTopology, match="two devices have one name"):
        LinkGraph.of_links(("a", "a"), [])


def test_equal_graphs_share_one_table() -> None:
    one = LinkGraph.of_matrix([[0, 5], [5, 0]])
    same = LinkGraph.of_matrix(((0.0, 5.0), (5.0, 0.0)), numa=(0, 0))
    other = LinkGraph.of_matrix(((0.0, 5.0), (5.0, 0.0)), numa=(0, 1))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a graph"
    assert slot_table(one) is slot_table(same)
    assert slot_table(one) is not slot_table(other)


@pytest.mark.parametrize(
    ("models", "gbps", "nvlink"),
    [
        (("a100-pcie-80gb", "a100-pcie-80gb"), 300.0, True),
        (("a100-pcie-80gb", "a100-pcie-80gb"), 25.2, False),  # PCIe 4.0 through one switch
        (("rtx-3090", "rtx-3090"), 56.25, True),
        (("v100-sxm2-16gb", "v100-sxm2-16gb"), 25.0, True),
        (("l40s", "l40s"), 300.0, False),  # has no NVLink, whatever is claimed
        (("a100-pcie-80gb", "l4"), 300.0, False),
        (("a100-pcie-80gb", "unheard-of"), 300.0, False),
    ],
)
def test_a_reported_link_is_nvlink_when_it_beats_pcie_and_both_ends_have_it(
    models: tuple[str, str], gbps: float, nvlink: bool
) -> None:
    graph = LinkGraph.of_matrix(((0, gbps), (gbps, 0)), models=models)
    assert graph.is_nvlink(0, 1) is nvlink


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("nvswitch", "a100-sxm4-80gb"),
        ("dgx1", "v100-sxm2-16gb"),
        ("dgx1-p100", "p100-sxm2-16gb"),
        ("nvlink-pairs", "a100-pcie-80gb"),
        ("pcie-2-socket", "l4"),
    ],
)
def test_a_preset_survives_the_way_through_a_stored_matrix(name: str, key: str) -> None:
    graph = EIGHT[name]
    assert LinkGraph.of_matrix(graph.gbps, numa=graph.numa, models=(key,) * 8) == graph


def test_an_induced_graph_keeps_links_and_order() -> None:
    graph = EIGHT["nvlink-pairs"].induced((5, 4, 0))
    assert graph.gbps[0][1] == 300.0
    assert graph.nvlink == (2, 1, 0)
    assert graph.numa == (1, 1, 0)


def test_masks_and_devices_are_two_spellings() -> None:
    assert mask_of((0, 3, 5)) == 0b101001
    assert devices_of(0b101001) == (0, 3, 5)
    assert devices_of(0) == ()


def test_an_empty_machine_is_a_graph() -> None:
    graph = LinkGraph((), (), ())
    assert (graph.count, graph.full_mask) == (0, 0)
    assert slot_table(graph).choose(0, 1) is None
