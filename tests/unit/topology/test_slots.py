"""Slot choice, against brute force and by example."""

from __future__ import annotations

import itertools
import math

import pytest

from hybrid.topology import LinkClass, LinkGraph, devices_of, preset, slot_table
from tests.unit.topology.graphs import EIGHT, random_graph
from tests.unit.topology.oracle import Oracle, ring_bottleneck, submasks


@pytest.mark.parametrize("name", sorted(EIGHT))
def test_the_best_set_of_every_free_mask_of_eight_is_that_of_brute_force(name: str) -> None:
    graph = EIGHT[name]
    table, oracle = slot_table(graph), Oracle(graph)
    for free in range(1, graph.full_mask + 1):
        for count in range(1, free.bit_count() + 1):
            choice = table.choose(free, count)
            assert choice is not None
            assert choice.mask == oracle.choose(free, count), (bin(free), count)
            assert choice.bottleneck_gbps == oracle.ring(choice.mask)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_set_on_random_graphs_is_that_of_brute_force(seed: int) -> None:
    graph = random_graph(seed, count=3 + seed % 4, levels=1 + seed % 5)
    table, oracle = slot_table(graph), Oracle(graph)
    for free in range(1, graph.full_mask + 1):
        for count in range(1, free.bit_count() + 1):
            choice = table.choose(free, count)
            assert choice is not None
            assert choice.mask == oracle.choose(free, count), (bin(free), count)


@pytest.mark.parametrize("seed", range(8))
def test_nvlink_jobs_on_random_graphs_get_what_brute_force_finds(seed: int) -> None:
    graph = random_graph(seed, count=6, levels=3)
    table, oracle = slot_table(graph), Oracle(graph)
    for free in range(1, graph.full_mask + 1):
        for count in range(1, free.bit_count() + 1):
            mask = oracle.choose(free, count, nvlink=True)
            assert mask is not None
            width = oracle.ring(mask, nvlink=True)
            choice = table.choose(free, count, link=LinkClass.NVLINK)
            assert (choice and choice.mask) == (mask if width >= 20.0 else None)


@pytest.mark.parametrize("seed", range(6))
def test_ring_tables_hold_the_definition_for_every_set(seed: int) -> None:
    graph = random_graph(seed, count=7, levels=6)
    table = slot_table(graph)
    for mask in range(1, graph.full_mask + 1):
        assert table.bottleneck_gbps(mask) == ring_bottleneck(graph.gbps, devices_of(mask))


def test_sixteen_devices_are_answered_like_brute_force_where_it_can_follow() -> None:
    graph = preset("nvlink-pairs", "a100-pcie-80gb", 16)
    table, oracle = slot_table(graph), Oracle(graph)
    for devices in ((0, 1, 2, 8, 9), (1, 3, 5, 7, 14, 15), (0, 4, 5, 10, 11, 13)):
        free = sum(1 << d for d in devices)
        for count in range(1, len(devices) + 1):
            choice = table.choose(free, count)
            assert choice is not None
            assert choice.mask == oracle.choose(free, count)


def test_one_gpu_never_breaks_an_nvlink_pair_while_a_broken_one_is_free() -> None:
    for graph in (EIGHT["nvlink-pairs"], preset("nvlink-pairs", "a40", 8), random_graph(3, 8, 3)):
        table = slot_table(graph)
        for free in range(1, graph.full_mask + 1):
            alone = [i for i in devices_of(free) if not graph.nvlink[i] & free]
            choice = table.choose(free, 1)
            assert choice is not None
            if alone:
                assert choice.devices[0] in alone


def test_two_gpus_take_a_pair_and_leave_the_others_whole() -> None:
    choice = slot_table(EIGHT["nvlink-pairs"]).choose(0b0111_1101, 2)
    assert choice is not None
    assert choice.devices == (2, 3)
    assert choice.bottleneck_gbps == 300.0


def test_four_gpus_that_can_run_together_stay_whole_in_the_cube_mesh() -> None:
    table = slot_table(EIGHT["dgx1"])
    choice = table.choose(0b0011_1111, 2)
    assert choice is not None
    # five double links to choose from; only without (2, 3) a ring of four NVLinks is left
    assert choice.devices == (2, 3)
    assert choice.bottleneck_gbps == 50.0
    assert table.best_gbps(0b0011_0011, 4) == 25.0


def test_a_job_that_cannot_use_fast_links_leaves_them_to_others() -> None:
    graph = EIGHT["nvlink-pairs"]
    table = slot_table(graph)
    free = 0b0000_1101  # the pair (2, 3) and one half of (0, 1)
    greedy = table.choose(free, 2)
    modest = table.choose(free, 2, useful_gbps=10.0)
    assert greedy is not None
    assert modest is not None
    assert greedy.devices == (2, 3)
    assert modest.devices == (0, 2)
    assert modest.bottleneck_gbps == graph.gbps[0][2]


def test_among_equals_the_set_on_one_socket_wins() -> None:
    flat = LinkGraph(((0.0, 5.0, 5.0), (5.0, 0.0, 5.0), (5.0, 5.0, 0.0)), (0, 1, 1), (0, 0, 0))
    choice = slot_table(flat).choose(0b111, 2)
    assert choice is not None
    assert choice.devices == (1, 2)


def test_among_equals_the_cooler_set_wins_then_the_lower_numbers() -> None:
    table = slot_table(EIGHT["nvswitch"])
    assert table.choose(0xFF, 2, penalty=(9, 9, 0, 1, 0, 0, 0, 0)) == table.choose(0xF0, 2)
    hot = table.choose(0xFF, 2, penalty=(1,) * 8)
    assert hot is not None
    assert hot.devices == (0, 1)


def test_heat_does_not_go_before_links() -> None:
    table = slot_table(EIGHT["nvlink-pairs"])
    choice = table.choose(0b0000_1101, 2, penalty=(0, 0, 9, 9, 0, 0, 0, 0))
    assert choice is not None
    assert choice.devices == (2, 3)


@pytest.mark.parametrize(
    ("name", "count", "link", "found"),
    [
        ("nvlink-pairs", 2, LinkClass.NVLINK, True),
        ("nvlink-pairs", 3, LinkClass.NVLINK, False),
        ("nvlink-pairs", 4, LinkClass.PCIE, True),
        ("dgx1", 8, LinkClass.NVLINK, True),
        ("nvswitch", 8, LinkClass.NVLINK, True),
        ("pcie", 2, LinkClass.NVLINK, False),
        ("pcie", 8, LinkClass.PCIE, True),
        ("none", 2, LinkClass.PCIE, False),
        ("none", 8, LinkClass.ANY, True),
        ("none", 1, LinkClass.NVLINK, True),  # one GPU waits for no link
    ],
)
def test_a_link_class_is_met_by_the_slowest_link_of_the_ring(
    name: str, count: int, link: LinkClass, found: bool
) -> None:
    choice = slot_table(EIGHT[name]).choose(0xFF, count, link=link)
    assert (choice is not None) is found


def test_fast_pcie_is_no_nvlink() -> None:
    graph = preset("pcie", "rtx-5090", 4)
    table = slot_table(graph)
    assert table.bottleneck_gbps(0xF) > 25.0
    assert table.choose(0xF, 2, link=LinkClass.NVLINK) is None


def test_sockets_of_pcie_3_are_below_the_pcie_class() -> None:
    table = slot_table(preset("pcie-2-socket", "t4", 4))
    assert table.choose(0b0101, 2, link=LinkClass.PCIE) is None
    assert table.choose(0b0011, 2, link=LinkClass.PCIE) is not None


def test_a_minimum_bandwidth_refuses_what_is_slower() -> None:
    table = slot_table(EIGHT["nvlink-pairs"])
    assert table.choose(0xFF, 2, min_gbps=300.0) is not None
    assert table.choose(0xFF, 2, min_gbps=300.1) is None
    assert table.choose(0xFF, 4, min_gbps=100.0) is None


def test_fewer_free_than_wanted_is_no_choice() -> None:
    table = slot_table(EIGHT["pcie"])
    assert table.choose(0b101, 3) is None
    assert table.choose(0, 1) is None
    assert table.best_gbps(0b101, 3) == -1.0
    assert table.best_gbps(0b101, 2) == table.bottleneck_gbps(0b101)


def test_questions_about_other_machines_are_refused() -> None:
    table = slot_table(EIGHT["pcie"])
    with pytest.raises(ValueError, match="beyond 8"):
        table.choose(1 << 8, 1)
    with pytest.raises(ValueError, match="beyond 8"):
        table.choose(-1, 1)
    with pytest.raises(ValueError, match="a set of 0 GPUs"):
        table.choose(1, 0)
    with pytest.raises(ValueError, match="2 penalties for 8 devices"):
        table.choose(1, 1, penalty=(0, 0))


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_clique_and_group_are_those_of_brute_force(seed: int) -> None:
    graph = random_graph(seed, count=7, levels=3)
    table, oracle = slot_table(graph), Oracle(graph)
    levels = sorted({g for _, _, g in graph.edges() if g})

    def widest_pair_first(masks: list[int]) -> int:
        return min(masks, key=lambda m: (-m.bit_count(), devices_of(m)))

    for free in range(1, graph.full_mask + 1, 5):
        for level in levels:
            cliques = [
                m
                for m in submasks(free)
                if all(
                    graph.gbps[a][b] >= level for a, b in itertools.combinations(devices_of(m), 2)
                )
            ]
            assert table.largest_clique(free, level) == widest_pair_first(cliques)
            groups = [m for m in submasks(free) if oracle.ring(m) >= level]
            assert table.largest_group(free, level) == widest_pair_first(groups)
    assert table.largest_clique(0, 1.0) == 0
    assert table.largest_group(0, 1.0) == 0


@pytest.mark.parametrize("seed", range(6))
def test_ranks_follow_the_best_ring(seed: int) -> None:
    graph = random_graph(seed, count=7, levels=4)
    table = slot_table(graph)
    for mask in (0b1111111, 0b1011011, 0b0111, 0b110, 0b1000, 0):
        members = devices_of(mask)
        order = table.ring_order(mask)
        assert sorted(order) == list(members)
        if len(members) < 3:
            assert order == members
            continue

        def merit(ring: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
            links = [graph.gbps[a][b] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
            return (min(links), sum(links), tuple(-d for d in ring))

        every = [(members[0], *rest) for rest in itertools.permutations(members[1:])]
        assert order == max(every, key=merit)
        assert table.ring_order(mask) is order


def test_a_better_remainder_has_a_higher_rank() -> None:
    table = slot_table(EIGHT["nvlink-pairs"])
    whole, broken = 0b0000_0011, 0b0000_0101
    assert table.remainder_rank(whole) > table.remainder_rank(broken)
    assert table.bottleneck_gbps(0b11, LinkClass.NVLINK) == 300.0
    assert table.bottleneck_gbps(0b101, LinkClass.NVLINK) == 0.0
    assert math.isinf(table.bottleneck_gbps(0b1))
    assert table.best_gbps(0b111, 2, LinkClass.NVLINK) == 300.0
