"""What a cloud costs for the same mean wait, against Starburst (USENIX ATC'24).

``python -m benchmarks.bursting --data DIR [--quick]`` reads ``published.json`` and the workloads it
names (``load{load}_seed{seed}.csv``) from DIR. A local cluster of 4 nodes with 8 GPUs, machines of
a cloud that start at once and cost what their GPUs run. One scalar of the policy, the value of an
hour's wait, is tuned per workload with a few replays (20 would be allowed) so that the mean wait
is not above that of the published ``compute_wait``. The figure is GPU-hours run in the cloud, as a
part of theirs.

``ratio_noisy``: the planner is told each run time times exp(N(0, 0.5)), the world runs the true
one; five fixed seeds, each tuned for itself.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared
from benchmarks.inputs import InputError, read_json, reading
from benchmarks.machine import run
from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.job_spec import JobSpec, Market, Resources
from hybrid.domain.offer import Offer, offer_id
from hybrid.hardware import REFERENCE_KEY, gpu_model
from hybrid.simulation.replay import Arrival, Replay, Replayed
from hybrid.simulation.traces import HOURS, TraceJob, read_table
from hybrid.simulation.world import node_report
from hybrid.topology import preset

NODES, GPUS_PER_NODE = 4, 8
USD_PER_GPU_HOUR = Decimal("2.5")
NOISE_SIGMA = 0.5
NOISE_SEEDS = (1, 2, 3, 4, 5)
EXACT_REPLAYS, NOISY_REPLAYS, QUICK_REPLAYS = 11, 3, 4
"""Replays for tuning one workload. More are made only while none has kept the allowed wait."""
MOST_REPLAYS = 20
"""As many as the comparison allows."""
NEAR, APART = 0.05, 0.008
"""Of logarithms of values: a bracket so narrow is halved no more, and no two values tried around
the best are nearer to each other."""
FIRST_VALUE_USD = 12.5
LONGEST_RUN_S = 90 * 86_400.0

MEAN_WANTED, WORST_WANTED, NOISY_WANTED = 0.80, 0.87, 0.90

POLICY = """
scheduling: {{strategy: shortest_predicted, improve: false}}
priority_classes:
  normal: {{value_per_hour: {value}, max_wait: 30d}}
burst: {{enabled: true, margin_usd: 0, margin: 0}}
preemption: {{enabled: false}}
return_home: {{enabled: false}}
budgets:
  - {{name: all, limit_usd: 100000000, period: lifetime}}
"""

LOCAL = {"kind": "local", "name": "rack", "rate_per_gpu_hour": 0}
CLOUD = {
    "kind": "burst",
    "name": "cloud",
    "provider": "sim",
    "region": "sim-1",
    "zones": [{"name": "sim-1a"}],
    "template": {"image": "any"},
    "machine_types": [f"gpu-{count}" for count in range(1, GPUS_PER_NODE + 1)],
    "ceilings": {"machines": 10_000, "usd_per_hour": 1_000_000},
    "boot": {"expected": 0},
    "lease": {"duration": "1d", "end_tail": 0},
    "idle_after": 0,
    "disk": 0,
}


@dataclass(frozen=True, slots=True)
class Workload:
    """One published workload: its jobs, and what the published policy came to on it."""

    load: float
    seed: int
    jobs: tuple[TraceJob, ...]
    published_gpu_hours: float
    allowed_wait_h: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """The cheapest replay within the allowed wait, and how many it took to find."""

    value_usd_per_hour: float
    gpu_hours: float
    wait_h: float
    replays: int


def read_workloads(folder: Path) -> tuple[Workload, ...]:
    """All workloads that ``published.json`` names. Raises InputError for one without jobs, and
    where the published policy used no cloud."""
    published = folder / "published.json"
    entries = read_json(published)
    with reading(published):
        return tuple(_workload(folder, entry) for entry in entries)


def _workload(folder: Path, entry: Mapping[str, Any]) -> Workload:
    table = folder / f"load{entry['load']}_seed{entry['seed']}.csv"
    theirs = entry["compute_wait"]
    with reading(table):
        jobs = read_table(table, HOURS)
        if not jobs:
            raise ValueError("there are no jobs")
        if not theirs["cloud_gpu_hours"] > 0:
            raise ValueError("the published policy used no cloud, so there is no ratio")
    return Workload(
        float(entry["load"]),
        int(entry["seed"]),
        jobs,
        float(theirs["cloud_gpu_hours"]),
        float(theirs["mean_wait_h"]),
    )


def replayed(jobs: Sequence[TraceJob], value: float, noise_seed: int | None = None) -> Replayed:
    """The workload under the product's own planner, where an hour's wait is worth ``value`` USD."""
    replay = Replay(
        policy=POLICY.format(value=f"{value:.6f}"),
        pools=(LOCAL, CLOUD),
        nodes=[
            node_report(
                NodeId(f"n{index}"),
                PoolName("rack"),
                REFERENCE_KEY,
                GPUS_PER_NODE,
                "nvswitch",
                run_lease_s=math.inf,
                cpus=1e6,
                memory_gib=1e6,
            )
            for index in range(NODES)
        ],
        offers=offers(),
    )
    told = _told(jobs, noise_seed)
    return replay.run(
        Arrival(
            job_id=f"j{position:05d}",
            at_s=job.arrives_s,
            spec=_spec(job.gpus, expected_s),
            work_s=job.runtime_s,
        )
        for position, (job, expected_s) in enumerate(zip(jobs, told, strict=True))
    )


def tune(
    play: Callable[[float], tuple[float, float]],
    allowed_wait_h: float,
    *,
    most: int,
    guess: float = FIRST_VALUE_USD,
) -> Tuned:
    """The value of an hour's wait with the fewest GPU-hours within the allowed wait.

    ``play`` gives (GPU-hours, mean wait in hours) for a value. Waits fall as the value grows, but
    not strictly, and what a replay comes to jumps from one value to the next: the search walks
    until it has a value on either side, interpolates between their logarithms until these are near
    each other, then looks around the best, and keeps the best it saw of ``most`` replays; while
    none has kept the allowed wait it goes on, up to ``MOST_REPLAYS``. Raises ValueError when no
    value will do.
    """
    tried: list[_Tried] = []
    best: Tuned | None = None
    at = math.log(guess)
    while len(tried) < (most if best is not None else MOST_REPLAYS):
        gpu_hours, wait_h = play(math.exp(at))
        excess = math.log(max(wait_h, 1e-6) / allowed_wait_h) if allowed_wait_h > 0 else wait_h
        tried.append(_Tried(at, excess))
        if excess <= 0 and (best is None or gpu_hours < best.gpu_hours):
            best = Tuned(math.exp(at), gpu_hours, wait_h, len(tried))
        at = _next(tried, best)
    if best is None:
        raise ValueError(f"no value keeps the mean wait within {allowed_wait_h} h")
    return Tuned(best.value_usd_per_hour, best.gpu_hours, best.wait_h, len(tried))


@dataclass(frozen=True, slots=True)
class _Tried:
    """The logarithm of a value, and by how much the logarithm of its wait is above the allowed."""

    at: float
    excess: float


def _next(tried: Sequence[_Tried], best: Tuned | None) -> float:
    """The next logarithm to try."""
    allowed = [each for each in tried if each.excess <= 0]
    too_long = [each for each in tried if each.excess > 0]
    if best is None or not too_long:
        # waits go roughly with the inverse of the value
        last = tried[-1]
        step = min(max(abs(last.excess), 0.15), 1.5) * 1.2
        return last.at + (step if last.excess > 0 else -step)
    high = min(allowed, key=lambda each: each.at)
    low = max((each for each in too_long if each.at < high.at), key=lambda e: e.at, default=high)
    if high.at - low.at > NEAR:
        part = low.excess / (low.excess - high.excess)
        return low.at + min(max(part, 0.2), 0.8) * (high.at - low.at)
    around = _around(math.log(best.value_usd_per_hour))
    return next(at for at in around if all(abs(at - each.at) > APART for each in tried))


def _around(at: float) -> Iterator[float]:
    """Steps away from a logarithm, twice as many down, where less is spent, as up."""
    for step in itertools.count(1):
        yield at - 0.02 * step
        if step % 2 == 0:
            yield at + 0.01 * step


def _told(jobs: Sequence[TraceJob], noise_seed: int | None) -> list[float]:
    """The run times that the planner is told."""
    if noise_seed is None:
        return [job.runtime_s for job in jobs]
    chance = random.Random(noise_seed)
    return [job.runtime_s * math.exp(chance.gauss(0.0, NOISE_SIGMA)) for job in jobs]


def _spec(gpus: int, expected_s: float) -> JobSpec:
    whole = gpus > GPUS_PER_NODE
    resources = Resources(
        nodes=-(-gpus // GPUS_PER_NODE) if whole else 1, gpus=GPUS_PER_NODE if whole else gpus
    )
    return JobSpec(
        command=("train",),
        resources=resources,
        expected_runtime=max(expected_s, 1e-3),
        walltime=LONGEST_RUN_S,
    )


def offers() -> tuple[Offer, ...]:
    """A machine for each count of GPUs, so that a job pays for what it runs on."""
    facts = gpu_model(REFERENCE_KEY)
    pool = PoolName("cloud")
    return tuple(
        Offer(
            id=offer_id(pool, "sim-1a", f"gpu-{count}", Market.ON_DEMAND),
            pool=pool,
            provider="sim",
            region="sim-1",
            zone="sim-1a",
            machine_type=f"gpu-{count}",
            market=Market.ON_DEMAND,
            gpus=count,
            gpu_model=facts.key,
            gpu_memory_gib=facts.usable_memory_gib,
            links_gbps=preset("nvswitch", facts.key, count).gbps,
            cpus=1e6,
            memory_gib=1e6,
            architecture="x86_64",
            price_micros_per_hour=int(USD_PER_GPU_HOUR * 1_000_000) * count,
            price_ceiling_micros_per_hour=int(USD_PER_GPU_HOUR * 1_000_000) * count,
            priced_at=0.0,
            price_source="published",
            boot_s=0.0,
        )
        for count in range(1, GPUS_PER_NODE + 1)
    )


def measure(data: Path, *, quick: bool = False) -> dict[str, Any]:
    """All figures of the printed line. Quick: one workload of each load, one seed of noise."""
    workloads = read_workloads(data)
    if not workloads:
        raise InputError(f"{data / 'published.json'} names no workload")
    if quick:
        workloads = tuple({w.load: w for w in reversed(workloads)}.values())[::-1]
    exact: dict[str, list[float]] = {}
    noisy: dict[str, list[float]] = {}
    for workload in workloads:
        load = f"{workload.load:g}"
        known = tuned(workload, None, most=QUICK_REPLAYS if quick else EXACT_REPLAYS)
        exact.setdefault(load, []).append(known.gpu_hours / workload.published_gpu_hours)
        for seed in NOISE_SEEDS[:1] if quick else NOISE_SEEDS:
            found = tuned(
                workload,
                seed,
                most=QUICK_REPLAYS if quick else NOISY_REPLAYS,
                guess=known.value_usd_per_hour * 1.1,
            )
            noisy.setdefault(load, []).append(found.gpu_hours / workload.published_gpu_hours)
        print(
            f"load {load}, seed {workload.seed}: {known.gpu_hours:.1f} GPU-hours, published"
            f" {workload.published_gpu_hours:.1f}; mean wait {known.wait_h:.4f} h of"
            f" {workload.allowed_wait_h:.4f} h",
            flush=True,
        )
    return {"ratio": _means(exact), "ratio_noisy": _means(noisy)}


def tuned(
    workload: Workload, noise_seed: int | None, *, most: int, guess: float = FIRST_VALUE_USD
) -> Tuned:
    """The workload at its best value within the allowed wait."""

    def play(value: float) -> tuple[float, float]:
        done = replayed(workload.jobs, value, noise_seed)
        return done.cloud_gpu_s / 3600.0, done.mean_wait_s / 3600.0

    return tune(play, workload.allowed_wait_h, most=most, guess=guess)


def _means(by_load: dict[str, list[float]]) -> dict[str, float]:
    means = {load: statistics.fmean(ratios) for load, ratios in by_load.items()}
    means["mean"] = statistics.fmean(means.values())
    return {load: round(mean, 4) for load, mean in means.items()}


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    rows = []
    for key, label, mean_wanted in (
        ("ratio", "known run times", MEAN_WANTED),
        ("ratio_noisy", "noisy run times", NOISY_WANTED),
    ):
        for load, ratio in line[key].items():
            mean = load == "mean"
            limit = mean_wanted if mean else (WORST_WANTED if key == "ratio" else None)
            rows.append(
                Compared(
                    f"{label}, {'mean of the loads' if mean else f'load {load}'}",
                    "1.00",
                    f"{ratio:.3f}",
                    "" if limit is None else f"≤ {limit:.2f}",
                    None if limit is None else ratio <= limit,
                )
            )
    return tuple(rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.bursting", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the workloads")
    parser.add_argument("--quick", action="store_true", help="one workload of each load")
    arguments = parser.parse_args(argv)
    run("bursting", lambda: measure(arguments.data, quick=arguments.quick))


if __name__ == "__main__":
    main()
