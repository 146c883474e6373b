"""How full shared placements fill a cluster of GPUs, on the public GPU-sharing trace.

``python -m benchmarks.placement --data DIR [--quick]`` reads ``openb_node_list_gpu_node.csv``,
every ``openb_pod_list_*.csv`` and ``published.json`` of DIR. Tasks are drawn at random with
replacement from a list and submitted one by one, without departures, until the GPUs asked for reach
130 % of the cluster; a task that does not fit is skipped. The figure is the GPU allocated, in per
cent of all, when arrivals reach 100 % and 130 %: the mean of ten seeds. Where a task goes is
decided by ``hybrid.topology.Fragmentation`` alone; the demand it expects is the list itself.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison import Compared
from benchmarks.inputs import InputError, read_json, reading
from benchmarks.machine import run
from hybrid.topology import DemandClass, Fragmentation

NODES = "openb_node_list_gpu_node.csv"
LISTS = "openb_pod_list_*.csv"
POINTS = {"at_100": 1.0, "at_130": 1.3}
SEEDS, QUICK_SEEDS = 10, 1
WORST_MARGIN_WANTED = -0.1
"""In points: the published figures' own standard deviation."""

WHOLE_MILLI = 1000
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes as ``Fragmentation`` takes them; ``model_names`` gives the indices meaning."""

    gpu_free_milli: NDArray[np.int64]
    cpus: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    models: NDArray[np.int64]
    model_names: tuple[str, ...]

    @property
    def total_milli(self) -> int:
        return int(self.gpu_free_milli.sum())


def read_cluster(path: Path) -> Cluster:
    """Raises ValueError for a node list without nodes."""
    rows = _rows(path, ("cpu_milli", "memory_mib", "gpu", "model"))
    if not rows:
        raise ValueError(f"{path} lists no nodes")
    names = tuple(sorted({row["model"] for row in rows}))
    counts = [int(row["gpu"]) for row in rows]
    gpu = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for node, count in enumerate(counts):
        gpu[node, :count] = WHOLE_MILLI
    return Cluster(
        gpu,
        np.array([int(row["cpu_milli"]) / 1000 for row in rows]),
        np.array([int(row["memory_mib"]) / _MIB_PER_GIB for row in rows]),
        np.array([names.index(row["model"]) for row in rows], dtype=np.int64),
        names,
    )


def read_tasks(path: Path, model_names: Sequence[str]) -> tuple[list[DemandClass], list[int]]:
    """The classes of a task list, weighted by how often they occur, and each task's class. Raises
    ValueError for a list of which no task asks for a GPU."""
    asked = [_demand(row, model_names) for row in _rows(path, _TASK_COLUMNS)]
    if not any(c.gpus for c in asked):
        raise ValueError(f"{path} lists no task with a GPU")
    count = Counter(asked)
    position = {task: i for i, task in enumerate(count)}
    return [replace(c, weight=float(n)) for c, n in count.items()], [position[a] for a in asked]


def _demand(row: Mapping[str, str], model_names: Sequence[str]) -> DemandClass:
    gpus = int(row["num_gpu"])
    allowed = set((row.get("gpu_spec") or "").split("|")) - {""}
    return DemandClass(
        gpus=gpus,
        share_milli=int(row["gpu_milli"]) if gpus == 1 else WHOLE_MILLI,
        cpus=int(row["cpu_milli"]) / 1000,
        memory_gib=int(row["memory_mib"]) / _MIB_PER_GIB,
        # a model the cluster does not have is no index, and so no node
        models=frozenset(i for i, n in enumerate(model_names) if n in allowed) if allowed else None,
    )


_TASK_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Raises ValueError for a table without one of these columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.DictReader(file)
        missing = [column for column in columns if column not in (table.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: there is no column {', '.join(missing)}")
        return list(table)


def fill(
    cluster: Cluster, classes: Sequence[DemandClass], tasks: Sequence[int], seed: int
) -> dict[str, float]:
    """Per cent of all GPU allocated at each point, for one random order of arrivals."""
    pool = Fragmentation(
        classes, cluster.gpu_free_milli, cluster.cpus, cluster.memory_gib, cluster.models
    )
    milli = [c.gpus * c.share_milli for c in classes]
    arrived = taken = 0
    allocated: dict[str, float] = {}
    for task in _arrivals(tasks, seed):
        arrived += milli[task]
        placement = pool.best(task)
        if placement is not None:
            pool.place(task, placement)
            taken += milli[task]
        for point, part in POINTS.items():
            if point not in allocated and arrived >= part * cluster.total_milli:
                allocated[point] = 100.0 * taken / cluster.total_milli
        if len(allocated) == len(POINTS):
            break
    return allocated


def _arrivals(tasks: Sequence[int], seed: int) -> Iterator[int]:
    random = np.random.default_rng(seed)
    while True:
        yield from (tasks[i] for i in random.integers(len(tasks), size=4096).tolist())


def measure(data: Path, *, seeds: int) -> dict[str, object]:
    """The benchmark's figures. Raises InputError for a folder of another format."""
    with reading(data / NODES):
        cluster = read_cluster(data / NODES)
    published_file = data / "published.json"
    every_published = read_json(published_file)
    allocated: dict[str, dict[str, float]] = {}
    deviation: dict[str, dict[str, float]] = {}
    published: dict[str, dict[str, float]] = {}
    for path in sorted(data.glob(LISTS)):
        with reading(path):
            classes, tasks = read_tasks(path, cluster.model_names)
        runs = [fill(cluster, classes, tasks, seed) for seed in range(seeds)]
        name = path.stem
        allocated[name] = {p: round(statistics.fmean(r[p] for r in runs), 3) for p in POINTS}
        deviation[name] = {p: round(statistics.pstdev(r[p] for r in runs), 3) for p in POINTS}
        with reading(published_file):
            best = _best(every_published.get(name, {}))
        if best:
            published[name] = best
        print(f"{name}: {allocated[name]}, published {best or 'nothing'}", flush=True)
    margins = [allocated[n][p] - published[n][p] for n in published for p in POINTS]
    if not margins:
        raise InputError(f"{data} has no task list with a published figure")
    return {
        "seeds": seeds,
        "allocated": allocated,
        "deviation": deviation,
        "published": published,
        "worst_margin": round(min(margins), 3),
    }


def _best(by_policy: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The best published figure at each point; nothing for a list without any."""
    if not by_policy:
        return {}
    return {point: max(figures[point] for figures in by_policy.values()) for point in POINTS}


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    rows = [
        Compared(
            f"{name.removeprefix('openb_pod_list_')}, {point.removeprefix('at_')} % of demand",
            f"{published:.2f} %",
            f"{line['allocated'][name][point]:.2f} %",
        )
        for name, by_point in line["published"].items()
        for point, published in by_point.items()
    ]
    worst = float(line["worst_margin"])
    wanted = f"≥ {WORST_MARGIN_WANTED:+.1f} points"
    reached = worst >= WORST_MARGIN_WANTED
    return (*rows, Compared("worst margin", "0", f"{worst:+.2f} points", wanted, reached))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.placement", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the GPU-sharing trace")
    parser.add_argument("--quick", action="store_true", help="one seed for each list")
    arguments = parser.parse_args(argv)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    run("placement", lambda: measure(arguments.data, seeds=seeds))


if __name__ == "__main__":
    main()
