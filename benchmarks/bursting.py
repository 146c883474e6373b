"""What a cloud costs for the same mean wait, against Starburst (USENIX ATC'24).

``python -m benchmarks.bursting --data DIR [--quick]`` reads ``published.json`` and the workloads it
names (``load{load}_seed{seed}.csv``) from DIR. A local cluster of 4 nodes with 8 GPUs, machines of
a cloud that start at once and cost what their GPUs run. One scalar of the policy, the value of an
hour's wait, is tuned per workload with at most 20 replays so that the mean wait is not above that
of the published ``compute_wait``. The figure is GPU-hours run in the cloud, as a part of theirs.

``ratio_noisy``: the planner is told each run time times exp(N(0, 0.5)), the world runs the true
one; five fixed seeds, each tuned for itself.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
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
MOST_REPLAYS = 20
LONGEST_RUN_S = 90 * 86_400.0

MEAN_WANTED, WORST_WANTED, NOISY_WANTED = 0.80, 0.87, 0.90

POLICY = """
scheduling: shortest_predicted
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
    """All workloads that ``published.json`` names."""
    found = []
    for entry in json.loads((folder / "published.json").read_text(encoding="utf-8")):
        jobs = read_table(folder / f"load{entry['load']}_seed{entry['seed']}.csv", HOURS)
        theirs = entry["compute_wait"]
        found.append(
            Workload(
                float(entry["load"]),
                int(entry["seed"]),
                jobs,
                float(theirs["cloud_gpu_hours"]),
                float(theirs["mean_wait_h"]),
            )
        )
    return tuple(found)


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


def tune(play: Callable[[float], tuple[float, float]], allowed_wait_h: float, most: int) -> Tuned:
    """The value of an hour's wait with the fewest GPU-hours within the allowed wait.

    ``play`` gives (GPU-hours, mean wait in hours) for a value. Waits fall as the value grows, but
    not strictly: the search halves an interval of the value's logarithm and keeps the best it saw.
    """
    low, high = math.log(0.05), math.log(400.0)
    guess = math.log(5.0)
    best: Tuned | None = None
    for replays in range(1, most + 1):
        value = math.exp(guess)
        gpu_hours, wait_h = play(value)
        if wait_h <= allowed_wait_h:
            high = guess
            if best is None or gpu_hours < best.gpu_hours:
                best = Tuned(value, gpu_hours, wait_h, replays)
        else:
            low = guess
        guess = _between(low, high, guess)
    if best is None:
        raise ValueError(f"no value keeps the mean wait within {allowed_wait_h} h")
    return best


def _between(low: float, high: float, last: float) -> float:
    """The next point to try: a short step from a first guess that is usually near, else halves."""
    return min(max((low + high) / 2.0, last - 0.7), last + 0.7)


def _told(jobs: Sequence[TraceJob], noise_seed: int | None) -> list[float]:
    """The run times that the planner is told."""
    if noise_seed is None:
        return [job.runtime_s for job in jobs]
    chance = random.Random(noise_seed)  # noqa: S311 - a workload, not a secret
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
