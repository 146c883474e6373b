"""How much free GPU a machine holds that the expected demand cannot use, and how a placement
changes that.

Formula: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC'23, section 3. For a node n and a class m of demand, F_n(m) is the
free GPU of n that m cannot use: all of it when n cannot run one m at all (too little CPU, memory
or GPU, or another model, or m wants no GPU), else what lies on GPUs with less left than one m
takes of a GPU. The node's fragmentation is F_n = Σ_m p_m F_n(m) with the popularity p_m of the
classes, and its gradient is how much a placement makes it grow.

F_n is a step function: it does not see CPUs run short before they have, nor that a GPU model is
all that some jobs can use. So a job goes where this *score* grows least, all terms in GPUs:

    gradient + STRANDED_WEIGHT × Δ stranded + CONTENTION_WEIGHT × GPUs taken × contention(model)

- *stranded*: the free GPU of a node beyond what its free CPUs and memory can feed at the demand's
  mean need per GPU.
- *contention(model)*: the share of demand that is bound to the model, over the model's share of the
  free GPU at the start, at most ``CONTENTION_LIMIT``. A class bound to several counts towards each
  by its free GPU.

Equal scores go to the node with the least free GPU, then CPU, then the first.

Shares are whole thousandths of a GPU, so that sums are exact and equal nodes compare equal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WHOLE_GPU_MILLI = 1000

STRANDED_WEIGHT = 2.0
CONTENTION_WEIGHT = 0.4
CONTENTION_LIMIT = 5.0
"""Weights of the score's terms: chosen on the public GPU-sharing trace that the paper uses, where
results are flat around them (stranded 1 to 4, contention 0.1 to 2)."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_COLUMNS_KEPT = 20_000
_PER_NODE = ("_gpu", "_cpus", "_memory", "_gradient", "_score", "_first_gpu", "_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandClass:
    """Jobs that ask for the same: ``gpus`` GPUs with ``share_milli`` thousandths of each (1000:
    whole), CPUs and memory on one node, on GPU models of ``models`` (indices; None: any).

    ``weight`` is how popular the class is, relative to the others; counts are best, because sums
    of whole numbers are exact. Raises ValueError for what no job can ask for.
    """

    gpus: int
    share_milli: int = WHOLE_GPU_MILLI
    cpus: float = 0.0
    memory_gib: float = 0.0
    models: frozenset[int] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        figures = (self.cpus, self.memory_gib, self.weight)
        if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
            raise ValueError(f"CPUs, memory and weight are finite and not negative, got {figures}")
        if self.gpus < 0 or not 0 < self.share_milli <= WHOLE_GPU_MILLI:
            raise ValueError(f"{self.gpus} GPUs with {self.share_milli} thousandths of each")
        if self.gpus > 1 and self.share_milli != WHOLE_GPU_MILLI:
            raise ValueError("several GPUs are given whole")


@dataclass(frozen=True, slots=True)
class SharePlacement:
    """Where a job goes: positions of its GPUs on ``node``, how much expected unusable GPU it adds
    there, in GPUs (negative: it uses up what few others could), and the whole score."""

    node: int
    gpus: tuple[int, ...]
    gradient: float
    score: float


class Fragmentation:
    """The nodes of a pool, with the gradient of every demand class on every node kept up to date:
    a placement recomputes its own node only.

    ``gpu_free_milli``: (N, G) free thousandths per GPU, 0 where a node has fewer than G;
    ``cpus_free``, ``memory_free_gib``: (N,); ``models``: (N,) index of each node's GPU model.
    Raises ValueError for shapes that do not agree, NaN, or shares outside 0..1000.
    """

    def __init__(
        self,
        demand: Sequence[DemandClass],
        gpu_free_milli: Ints,
        cpus_free: Floats,
        memory_free_gib: Floats,
        models: Ints,
    ) -> None:
        _check_nodes(gpu_free_milli, cpus_free, memory_free_gib, models)
        free = np.zeros(int(models.max(initial=-1)) + 1)
        np.add.at(free, models, gpu_free_milli.sum(axis=1))
        self._demand = _Demand(demand, free)
        self._gpu = np.array(gpu_free_milli, dtype=np.int64)
        self._cpus = np.array(cpus_free, dtype=np.float64)
        self._memory = np.array(memory_free_gib, dtype=np.float64)
        self._models = np.array(models, dtype=np.int64)
        nodes, classes = len(self._gpu), len(demand)
        self._gradient: Floats = np.full((classes, nodes), math.inf)
        self._score: Floats = np.full((classes, nodes), math.inf)
        self._first_gpu: Ints = np.full((classes, nodes), -1, dtype=np.int64)
        self._state = [b""] * nodes
        self._columns: dict[bytes, tuple[Floats, Floats, Ints]] = {}
        self._growths: dict[tuple[int, bytes], dict[int, float]] = {}
        for node in range(nodes):
            self._refresh(node)

    def amounts(self) -> Floats:
        """(N,) expected unusable GPUs per node, F_n."""
        whole = self._demand.unusable(self._gpu, self._cpus, self._memory, self._models)
        amounts: Floats = whole / self._demand.scale
        return amounts

    def share(self) -> float:
        """The expected unusable part of all free GPU, 0 to 1; 0 when nothing is free."""
        free = float(self._gpu.sum()) / WHOLE_GPU_MILLI
        return float(self.amounts().sum()) / free if free else 0.0

    def gradients(self, demand_class: int) -> Floats:
        """(N,) how much F_n grows, in GPUs, if a job of this class goes to each node in the best
        way; infinite where it does not fit. A view: copy it to keep it."""
        row: Floats = self._gradient[demand_class]
        return row

    def scores(self, demand_class: int) -> Floats:
        """(N,) the score of each node, as ``gradients``."""
        row: Floats = self._score[demand_class]
        return row

    def best(self, demand_class: int) -> SharePlacement | None:
        """The node, and its GPUs, of the least score (ties: see the module's text). None when the
        job fits nowhere."""
        row = self._score[demand_class]
        if not len(row):
            return None
        ties = np.flatnonzero(row == row.min())
        order = np.lexsort((self._cpus[ties], self._gpu[ties].sum(axis=1)))
        return self.on_node(demand_class, int(ties[order[0]]))

    def on_node(self, demand_class: int, node: int) -> SharePlacement | None:
        """The best GPUs for a job of this class on one node; None when it does not fit."""
        gradient = float(self._gradient[demand_class, node])
        if math.isinf(gradient):
            return None
        wanted = self._demand.classes[demand_class]
        if wanted.gpus == 1:
            gpus: tuple[int, ...] = (int(self._first_gpu[demand_class, node]),)
        else:
            whole = np.flatnonzero(self._gpu[node] == WHOLE_GPU_MILLI)
            gpus = tuple(whole[: wanted.gpus].tolist())
        return SharePlacement(node, gpus, gradient, float(self._score[demand_class, node]))

    def growths(self, demand_class: int, node: int) -> Mapping[int, float]:
        """How much F_n grows, in GPUs, for each GPU of a node on which one job of the class would
        take its share; of equally free GPUs the first stands for all."""
        key = demand_class, self._state[node]
        found = self._growths.get(key)
        if found is None:
            of_class, gpu, growth = self._candidates(node)
            mine = of_class == demand_class
            found = dict(zip(gpu[mine].tolist(), growth[mine].tolist(), strict=True))
            if len(self._growths) >= _COLUMNS_KEPT:
                self._growths.clear()
            self._growths[key] = found
        return found

    def copy(self) -> Fragmentation:
        """Another one, equal; what one is told of its nodes the other does not learn."""
        twin = copy.copy(self)  # columns are by state: each finds what the other worked out
        for name in _PER_NODE:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def order(self, demand_class: int, among: Ints) -> Ints:
        """The nodes of ``among`` on which a job of the class fits, best score first; ties as in
        ``best``."""
        fit = among[np.isfinite(self._score[demand_class, among])]
        keys = fit, self._cpus[fit], self._gpu[fit].sum(axis=1), self._score[demand_class, fit]
        ordered: Ints = fit[np.lexsort(keys)]
        return ordered

    def set_node(self, node: int, gpu_free_milli: Ints, cpus: float, memory_gib: float) -> None:
        """What is free on a node now; raises ValueError for shares outside 0..1000 or a host that
        is less than empty."""
        if (gpu_free_milli < 0).any() or (gpu_free_milli > WHOLE_GPU_MILLI).any():
            raise ValueError("free GPU is given in thousandths, 0 to 1000 per GPU")
        if not (cpus >= 0 and memory_gib >= 0):
            raise ValueError(f"node {node} has {cpus} CPUs and {memory_gib} GiB free")
        self._gpu[node], self._cpus[node], self._memory[node] = gpu_free_milli, cpus, memory_gib
        self._refresh(node)

    def place(self, demand_class: int, placement: SharePlacement) -> None:
        """Take what the placement holds; raises ValueError when it is not free."""
        self._move(demand_class, placement, sign=-1)

    def release(self, demand_class: int, placement: SharePlacement) -> None:
        """Give back what the placement held; raises ValueError when it was not taken."""
        self._move(demand_class, placement, sign=1)

    def _move(self, demand_class: int, placement: SharePlacement, *, sign: int) -> None:
        wanted, node = self._demand.classes[demand_class], placement.node
        if len(placement.gpus) != wanted.gpus:
            raise ValueError(f"{len(placement.gpus)} GPUs for a job of {wanted.gpus}")
        after = self._gpu[node].copy()
        after[list(placement.gpus)] += sign * wanted.share_milli
        cpus = self._cpus[node] + sign * wanted.cpus
        memory = self._memory[node] + sign * wanted.memory_gib
        in_range = (after >= 0).all() and (after <= WHOLE_GPU_MILLI).all()
        if not in_range or cpus < 0 or memory < 0:
            raise ValueError(f"node {node} does not have {placement.gpus} to take or give back")
        self._gpu[node], self._cpus[node], self._memory[node] = after, cpus, memory
        self._refresh(node)

    def _refresh(self, node: int) -> None:
        state = np.concatenate(
            [self._gpu[node], (self._cpus[node], self._memory[node], self._models[node])]
        ).tobytes()
        self._state[node] = state
        column = self._columns.get(state)
        if column is None:
            if len(self._columns) >= _COLUMNS_KEPT:
                self._columns.clear()
            column = self._columns[state] = self._column(node)
        self._gradient[:, node], self._score[:, node], self._first_gpu[:, node] = column

    def _column(self, node: int) -> tuple[Floats, Floats, Ints]:
        """Gradient, score and first GPU of every class on one node: all (class, GPU) candidates
        are laid out as nodes of their own and evaluated in one go."""
        demand, gpu = self._demand, self._gpu[node]
        gradient: Floats = np.full(len(demand.classes), math.inf)
        best_gpu: Ints = np.full(len(demand.classes), -1, dtype=np.int64)
        of_class, first_gpu, growth = self._candidates(node)
        if len(of_class):
            # by class, then growth, then GPU: the first row of each class is its best
            order = np.lexsort((first_gpu, growth, of_class))
            classes, firsts = np.unique(of_class[order], return_index=True)
            gradient[classes] = growth[order][firsts]
            best_gpu[classes] = first_gpu[order][firsts]
        cpus, memory = float(self._cpus[node]), float(self._memory[node])
        model = int(self._models[node])
        score = gradient + demand.foresight(int(gpu.sum()), cpus, memory, model)
        return gradient, score, best_gpu

    def _candidates(self, node: int) -> tuple[Ints, Ints, Floats]:
        """Ways to put one job of each class on a node: class, first GPU, and growth of F_n."""
        demand, gpu = self._demand, self._gpu[node]
        cpus, memory = float(self._cpus[node]), float(self._memory[node])
        model = int(self._models[node])
        of_class, first_gpu = demand.candidates(gpu, cpus, memory, model)
        growth: Floats = np.empty(0)
        if len(of_class):
            rows = np.repeat(gpu[None, :], len(of_class), axis=0)
            demand.take(rows, of_class, first_gpu)
            after = demand.unusable(
                rows,
                cpus - demand.cpus[of_class],
                memory - demand.memory[of_class],
                np.full(len(of_class), model),
            )
            before = demand.unusable(
                gpu[None, :], self._cpus[[node]], self._memory[[node]], self._models[[node]]
            )
            growth = (after - before[0]) / demand.scale
        return of_class, first_gpu, growth


class _Demand:
    """The demand classes as arrays. Classes that take the same of a GPU and the same number of
    GPUs form a *kind*: what a node's GPUs offer is worked out once per kind."""

    def __init__(self, classes: Sequence[DemandClass], free_by_model: Floats) -> None:
        total = sum(c.weight for c in classes)
        if not total > 0:
            raise ValueError("a demand mix needs a class with a weight above 0")
        self.classes = tuple(classes)
        self.scale = total * WHOLE_GPU_MILLI
        self._total_weight = total
        self.gpus: Ints = np.array([c.gpus for c in classes], dtype=np.int64)
        self.share: Ints = np.array([c.share_milli for c in classes], dtype=np.int64)
        self.cpus: Floats = np.array([c.cpus for c in classes], dtype=np.float64)
        self.memory: Floats = np.array([c.memory_gib for c in classes], dtype=np.float64)
        self._allowed: Bools = np.array(
            [
                [c.models is None or model in c.models for c in classes]
                for model in range(len(free_by_model))
            ],
            dtype=bool,
        ).reshape(len(free_by_model), len(classes))
        kinds = sorted({(c.share_milli, c.gpus) for c in classes if c.gpus})
        self._kind_share: Ints = np.array([share for share, _ in kinds], dtype=np.int64)
        self._kind_gpus: Ints = np.array([gpus for _, gpus in kinds], dtype=np.int64)
        # classes with GPUs, sorted by kind, and where each kind begins
        members = sorted(
            (kinds.index((c.share_milli, c.gpus)), i) for i, c in enumerate(classes) if c.gpus
        )
        self._by_kind: Ints = np.array([i for _, i in members], dtype=np.int64)
        self._kind_starts: Ints = np.searchsorted(
            np.array([kind for kind, _ in members], dtype=np.int64), np.arange(len(kinds))
        )
        self._kind_weights: Floats = np.array([classes[i].weight for _, i in members])
        self._taken: Floats = self.gpus * self.share / WHOLE_GPU_MILLI
        weight = np.array([c.weight for c in classes], dtype=np.float64)
        asked = weight * self._taken  # how much GPU each class asks for
        per_gpu = 1.0 / float(asked.sum()) if asked.any() else 0.0
        with_gpu = weight * (self.gpus > 0)
        self._cpus_per_gpu = float((with_gpu * self.cpus).sum()) * per_gpu
        self._memory_per_gpu = float((with_gpu * self.memory).sum()) * per_gpu
        self._contention = self._contend(asked * per_gpu, free_by_model)

    def _contend(self, asked: Floats, free_by_model: Floats) -> Floats:
        """(models,) the contention of each; ``asked`` are the classes' parts of demand."""
        bound: Floats = np.zeros(len(free_by_model))
        for share, c in zip(asked, self.classes, strict=True):
            models = [m for m in sorted(c.models or ()) if m < len(bound)]
            there = float(free_by_model[models].sum())
            if there:
                bound[models] += share * free_by_model[models] / there
        total = float(free_by_model.sum())
        supply = free_by_model / total if total else free_by_model
        ratio = np.divide(bound, supply, out=np.zeros_like(bound), where=supply > 0)
        return np.minimum(ratio, CONTENTION_LIMIT)

    def foresight(self, free_milli: int, cpus: float, memory: float, model: int) -> Floats:
        """(classes,) what the score adds to the gradient on a node with this much free."""
        free = free_milli / WHOLE_GPU_MILLI
        before = max(free - self._fed(np.array([cpus]), np.array([memory]))[0], 0.0)
        fed = self._fed(cpus - self.cpus, memory - self.memory)
        stranded = np.maximum(free - self._taken - fed, 0.0) - before
        added: Floats = (
            STRANDED_WEIGHT * stranded + CONTENTION_WEIGHT * self._taken * self._contention[model]
        )
        return added

    def _fed(self, cpus: Floats, memory: Floats) -> Floats:
        """How many GPUs these CPUs and this memory feed at the demand's mean need per GPU."""
        fed = np.full(len(cpus), math.inf)
        if self._cpus_per_gpu:
            fed = np.minimum(fed, cpus / self._cpus_per_gpu)
        if self._memory_per_gpu:
            fed = np.minimum(fed, memory / self._memory_per_gpu)
        return fed

    def unusable(self, gpu: Ints, cpus: Floats, memory: Floats, models: Ints) -> Floats:
        """(B,) F_n of B node states times ``scale``."""
        enough = gpu[:, :, None] >= self._kind_share
        usable = (gpu[:, :, None] * enough).sum(axis=1)
        fits = enough.sum(axis=1) >= self._kind_gpus
        members = self._by_kind
        host = (
            (cpus[:, None] >= self.cpus[members])
            & (memory[:, None] >= self.memory[members])
            & self._allowed[models][:, members]
        )
        # summed here and not by a matrix product: BLAS threads stall for small matrices on busy
        # machines, and their order of summation is not ours to fix
        weight = np.add.reduceat(host * self._kind_weights, self._kind_starts, axis=1)
        served = (weight * usable * fits).sum(axis=1)
        total: Floats = gpu.sum(axis=1) * self._total_weight - served
        return total

    def candidates(self, gpu: Ints, cpus: float, memory: float, model: int) -> tuple[Ints, Ints]:
        """Ways to put one job of each class that fits on a node: class, and its GPU if it takes a
        single one (the first of equally free GPUs), else -1."""
        host = (cpus >= self.cpus) & (memory >= self.memory) & self._allowed[model]
        first_of_equals = np.zeros(len(gpu), dtype=bool)
        first_of_equals[np.unique(gpu, return_index=True)[1]] = True
        single = host & (self.gpus == 1)
        pairs = single[:, None] & first_of_equals & (gpu >= self.share[:, None])
        of_class, first_gpu = np.nonzero(pairs)
        several = host & (self.gpus != 1) & ((gpu == WHOLE_GPU_MILLI).sum() >= self.gpus)
        others = np.flatnonzero(several)
        return (
            np.concatenate([of_class, others]),
            np.concatenate([first_gpu, np.full(len(others), -1)]),
        )

    def take(self, rows: Ints, of_class: Ints, first_gpu: Ints) -> None:
        """Take from each row what its candidate holds, in place."""
        single = np.flatnonzero(first_gpu >= 0)
        rows[single, first_gpu[single]] -= self.share[of_class[single]]
        several = np.flatnonzero(first_gpu < 0)
        whole = rows[several] == WHOLE_GPU_MILLI
        taken = whole & (whole.cumsum(axis=1) <= self.gpus[of_class[several], None])
        rows[several] = np.where(taken, 0, rows[several])


def _check_nodes(gpu: Ints, cpus: Floats, memory: Floats, models: Ints) -> None:
    if gpu.ndim != 2 or not len(gpu) == len(cpus) == len(memory) == len(models):
        raise ValueError(
            f"shapes {gpu.shape}, {cpus.shape}, {memory.shape}, {models.shape} are not of one pool"
        )
    if not (np.isfinite(cpus).all() and np.isfinite(memory).all()):
        raise ValueError("free CPUs and memory must be finite")
    if len(gpu) and ((gpu < 0).any() or (gpu > WHOLE_GPU_MILLI).any()):
        raise ValueError("free GPU is given in thousandths, 0 to 1000 per GPU")
    if (models < 0).any():
        raise ValueError("model indices start at 0")
