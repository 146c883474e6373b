"""Fragmentation of shared GPUs: the formula, and its gradient kept up to date."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from hybrid.topology.fragmentation import DemandClass, Fragmentation, SharePlacement

HALF = DemandClass(gpus=1, share_milli=500, cpus=4, memory_gib=16, weight=3)
WHOLE = DemandClass(gpus=1, cpus=8, memory_gib=32, weight=2)
PAIR = DemandClass(gpus=2, cpus=16, memory_gib=64, weight=1, models=frozenset({1}))
CPU_ONLY = DemandClass(gpus=0, cpus=8, memory_gib=16, weight=2)
MIX = (HALF, WHOLE, PAIR, CPU_ONLY)


def pool(
    gpus: list[list[int]],
    cpus: list[float],
    memory: list[float],
    models: list[int],
    mix: tuple[DemandClass, ...] = MIX,
) -> Fragmentation:
    return Fragmentation(
        mix,
        np.array(gpus, dtype=np.int64),
        np.array(cpus, dtype=np.float64),
        np.array(memory, dtype=np.float64),
        np.array(models, dtype=np.int64),
    )


def unusable(
    mix: tuple[DemandClass, ...], gpus: list[int], cpus: float, memory: float, model: int
) -> float:
    """The definition, class by class and GPU by GPU, in GPUs."""
    expected = 0.0
    for c in mix:
        enough = [g for g in gpus if g >= c.share_milli]
        runs = (
            c.gpus > 0
            and len(enough) >= c.gpus
            and cpus >= c.cpus
            and memory >= c.memory_gib
            and (c.models is None or model in c.models)
        )
        lost = sum(g for g in gpus if g < c.share_milli) if runs else sum(gpus)
        expected += c.weight * lost
    return expected / sum(c.weight for c in mix) / 1000


def test_a_node_is_as_fragmented_as_the_formula_says() -> None:
    # halves use 500 + 1000, whole GPUs 1000; pairs and CPU jobs use nothing of 1.7 GPUs
    found = pool([[200, 500, 1000]], [64], [256], [0])
    by_hand = (3 * 0.2 + 2 * 0.7 + 1 * 1.7 + 2 * 1.7) / 8
    assert found.amounts()[0] == pytest.approx(by_hand)
    assert found.share() == pytest.approx(by_hand / 1.7)


def test_a_node_without_cpus_left_is_lost_to_all() -> None:
    found = pool([[1000, 1000]], [2], [256], [1])
    assert found.amounts()[0] == 2.0
    assert found.share() == 1.0
    assert found.best(0) is None


def test_a_full_pool_has_no_fragmentation() -> None:
    found = pool([[0, 0]], [8], [8], [0])
    assert found.share() == 0.0
    assert found.best(1) is None


def test_a_half_goes_to_the_half_gpu_that_only_halves_can_use() -> None:
    found = pool([[1000, 500], [1000, 1000]], [64, 64], [256, 256], [0, 0])
    best = found.best(0)
    assert best is not None
    assert (best.node, best.gpus) == (0, (1,))
    assert best.gradient < 0


def test_a_single_gpu_does_not_go_where_pairs_can_run() -> None:
    found = pool([[1000, 1000], [1000, 1000]], [64, 64], [256, 256], [1, 0])
    best = found.best(1)
    assert best is not None
    assert best.node == 1


def test_a_job_does_not_go_where_its_cpus_strand_gpus() -> None:
    hungry = DemandClass(gpus=1, cpus=30, memory_gib=1, weight=1)
    small = DemandClass(gpus=1, cpus=4, memory_gib=1, weight=5)
    found = pool([[1000] * 2, [1000] * 2], [32, 96], [99, 99], [0, 0], (hungry, small))
    best = found.best(0)
    assert best is not None
    assert best.node == 1


def test_several_gpus_are_the_first_whole_ones() -> None:
    found = pool([[300, 1000, 1000, 1000]], [64], [256], [1])
    best = found.best(2)
    assert best == SharePlacement(0, (1, 2), found.gradients(2)[0], found.scores(2)[0])


def test_a_job_without_gpus_takes_none() -> None:
    found = pool([[1000]], [64], [256], [0])
    best = found.best(3)
    assert best is not None
    assert best.gpus == ()
    assert best.gradient == 0.0  # nobody's GPU is stranded by 8 of 64 CPUs


def test_the_score_sees_cpus_run_short_before_they_have() -> None:
    # 8 CPUs per GPU on average; both nodes can run anything of the mix before and after
    light = DemandClass(gpus=1, cpus=4, weight=1)
    heavy = DemandClass(gpus=1, cpus=12, weight=1)
    found = pool([[1000] * 4, [1000] * 4], [40, 80], [99, 99], [0, 0], (light, heavy))
    assert found.scores(1).tolist() == found.gradients(1).tolist()
    for _ in range(2):
        placement = found.on_node(1, 0)
        assert placement is not None
        found.place(1, placement)
    # a third would leave 4 CPUs for the last GPU, which wants 8: half a GPU stranded
    assert found.scores(1)[0] - found.gradients(1)[0] == pytest.approx(2.0 * 0.5)
    assert found.scores(1)[1] - found.gradients(1)[1] == 0.0


def test_a_job_for_any_model_leaves_the_model_others_are_bound_to() -> None:
    free = DemandClass(gpus=1, weight=9)
    bound = DemandClass(gpus=1, weight=1, models=frozenset({0}))
    found = pool([[1000], [1000], [1000], [1000]], [9] * 4, [9] * 4, [0, 1, 1, 1], (free, bound))
    best = found.best(0)
    assert best is not None
    assert best.node == 1
    # a tenth of demand is bound to a quarter of the GPUs: contention 0.4, weighted 0.4
    assert found.scores(0)[0] - found.gradients(0)[0] == pytest.approx(0.4 * 0.4)


def test_demand_bound_to_a_model_that_is_not_there_contends_for_nothing() -> None:
    bound = DemandClass(gpus=1, weight=1, models=frozenset({7}))
    found = pool([[1000]], [9], [9], [0], (WHOLE, bound))
    assert found.best(1) is None
    assert found.scores(0)[0] == found.gradients(0)[0]


def test_equal_scores_go_to_the_fullest_node() -> None:
    alone = DemandClass(gpus=1, weight=1)
    found = pool([[1000, 1000], [1000, 0]], [9, 9], [9, 9], [0, 0], (alone,))
    best = found.best(0)
    assert best is not None
    assert best.node == 1


def test_a_mix_without_gpus_can_be_placed() -> None:
    found = pool([[1000]], [9], [99], [0], (CPU_ONLY,))
    best = found.best(0)
    assert best is not None
    assert best.score == best.gradient == 0.0


def test_ties_go_to_the_first_node_and_the_first_gpu() -> None:
    found = pool([[1000, 1000]] * 3, [64] * 3, [256] * 3, [0] * 3)
    best = found.best(1)
    assert best is not None
    assert (best.node, best.gpus) == (0, (0,))


def test_placing_and_giving_back_changes_nothing() -> None:
    found = pool([[1000, 700], [1000, 1000]], [64, 64], [256, 256], [1, 1])
    before = found.amounts()
    gradients = [found.gradients(c).copy() for c in range(len(MIX))]
    for demand_class in range(len(MIX)):
        placement = found.best(demand_class)
        assert placement is not None
        found.place(demand_class, placement)
        grown = found.amounts().sum() - before.sum()
        assert grown == pytest.approx(placement.gradient)
        found.release(demand_class, placement)
    assert (found.amounts() == before).all()
    for demand_class, gradient in enumerate(gradients):
        assert (found.gradients(demand_class) == gradient).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_the_best_difference_of_the_formula(seed: int) -> None:
    draw = random.Random(seed)
    shares = (0, 200, 500, 700, 1000, 1000)
    gpus = [[draw.choice(shares) for _ in range(4)] for _ in range(6)]
    cpus = [float(draw.choice((4, 8, 12, 40))) for _ in gpus]
    memory = [float(draw.choice((16, 48, 128))) for _ in gpus]
    models = [draw.randrange(2) for _ in gpus]
    found = pool(gpus, cpus, memory, models)
    for _ in range(12):
        for i, c in enumerate(MIX):
            for node in range(len(gpus)):
                expected = brute_gradient(c, gpus[node], cpus[node], memory[node], models[node])
                assert found.gradients(i)[node] == pytest.approx(expected)
        i = draw.randrange(len(MIX))
        placement = found.best(i)
        if placement is None:
            continue
        assert placement.score == found.scores(i).min()
        assert placement.gradient == found.gradients(i)[placement.node]
        found.place(i, placement)
        for gpu in placement.gpus:
            gpus[placement.node][gpu] -= MIX[i].share_milli
        cpus[placement.node] -= MIX[i].cpus
        memory[placement.node] -= MIX[i].memory_gib


def brute_gradient(
    c: DemandClass, gpus: list[int], cpus: float, memory: float, model: int
) -> float:
    """The least growth over every way to put one job of the class on the node."""
    if cpus < c.cpus or memory < c.memory_gib or (c.models is not None and model not in c.models):
        return float("inf")
    before = unusable(MIX, gpus, cpus, memory, model)
    able = [i for i, g in enumerate(gpus) if g >= c.share_milli]
    if len(able) < c.gpus:
        return float("inf")
    ways = [[i] for i in able] if c.gpus == 1 else [able[: c.gpus]]
    found = []
    for way in ways:
        after = list(gpus)
        for i in way:
            after[i] -= c.share_milli
        found.append(unusable(MIX, after, cpus - c.cpus, memory - c.memory_gib, model) - before)
    return min(found)


def test_columns_are_worked_out_again_after_the_cache_was_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hybrid.topology.fragmentation._COLUMNS_KEPT", 1)
    small = pool([[1000, 700], [500, 1000]], [64, 64], [256, 256], [1, 1])
    monkeypatch.undo()
    large = pool([[1000, 700], [500, 1000]], [64, 64], [256, 256], [1, 1])
    for i in range(len(MIX)):
        assert (small.gradients(i) == large.gradients(i)).all()


@pytest.mark.parametrize(
    "placement",
    [
        SharePlacement(0, (0,), 0.0, 0.0),
        SharePlacement(0, (0, 0), 0.0, 0.0),
        SharePlacement(0, (), 0.0, 0.0),
    ],
)
def test_what_is_not_free_cannot_be_taken(placement: SharePlacement) -> None:
    found = pool([[300, 1000]], [64], [256], [0])
    before = found.amounts()
    with pytest.raises(ValueError, match=r"GPUs for a job|does not have"):
        found.place(1, placement)
    assert (found.amounts() == before).all()


def test_what_was_not_taken_cannot_be_given_back() -> None:
    found = pool([[1000]], [64], [256], [0])
    with pytest.raises(ValueError, match="does not have"):
        found.release(0, SharePlacement(0, (0,), 0.0, 0.0))


def test_cpus_that_are_gone_cannot_be_taken() -> None:
    found = pool([[1000]], [6], [256], [0])
    with pytest.raises(ValueError, match="does not have"):
        found.place(1, SharePlacement(0, (0,), 0.0, 0.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpus": -1},
        {"gpus": 1, "share_milli": 0},
        {"gpus": 1, "share_milli": 1001},
        {"gpus": 2, "share_milli": 500},
        {"gpus": 1, "weight": float("nan")},
        {"gpus": 1, "cpus": -1.0},
    ],
)
def test_demand_that_no_job_can_have_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"GPU|finite"):
        DemandClass(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpus", "cpus", "memory", "models", "message"),
    [
        ([[1001]], [1.0], [1.0], [0], "0 to 1000"),
        ([[-1]], [1.0], [1.0], [0], "0 to 1000"),
        ([[1]], [float("nan")], [1.0], [0], "must be finite"),
        ([[1]], [1.0], [1.0], [-1], "start at 0"),
        ([[1]], [1.0, 2.0], [1.0], [0], "not of one pool"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(
    gpus: list[list[int]], cpus: list[float], memory: list[float], models: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pool(gpus, cpus, memory, models)


def test_a_mix_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        pool([[1000]], [1], [1], [0], (DemandClass(gpus=1, weight=0),))


def test_an_empty_pool_places_nothing() -> None:
    empty = Fragmentation(
        MIX,
        np.zeros((0, 8), dtype=np.int64),
        np.zeros(0),
        np.zeros(0),
        np.zeros(0, dtype=np.int64),
    )
    assert empty.best(0) is None
    assert empty.share() == 0.0


def test_growths_are_those_of_placing_and_a_copy_learns_nothing() -> None:
    half = DemandClass(gpus=1, share_milli=500, weight=3.0)
    most = DemandClass(gpus=1, share_milli=700, weight=1.0)
    free = np.array([[500, 1000], [700, 1000]])
    pool = Fragmentation(
        [half, most], free, np.array([8.0, 8.0]), np.array([64.0, 64.0]), np.array([0, 0])
    )
    for node in (0, 1):
        for gpu, growth in pool.growths(0, node).items():
            twin = pool.copy()
            before = twin.amounts()[node]
            twin.place(0, SharePlacement(node, (gpu,), 0.0, 0.0))
            assert twin.amounts()[node] - before == pytest.approx(growth)
    assert pool.gradients(0)[1] == pytest.approx(min(pool.growths(0, 1).values()))
    twin = pool.copy()
    twin.set_node(0, np.array([0, 0]), 0.0, 0.0)
    assert pool.growths(0, 0)
    assert twin.growths(0, 0) == {}
    assert twin.order(0, np.array([0, 1])).tolist() == [1]
    with pytest.raises(ValueError, match="thousandths"):
        twin.set_node(0, np.array([1001, 0]), 0.0, 0.0)
    with pytest.raises(ValueError, match="free"):
        twin.set_node(0, np.array([0, 0]), math.nan, 0.0)
