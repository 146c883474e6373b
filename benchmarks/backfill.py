"""How long jobs wait on owned GPUs alone, against EASY backfill.

``python -m benchmarks.backfill --data DIR [--quick] [--jobs N]`` reads every ``*.tar.gz`` (one
table per cluster, seconds) and ``philly-*.csv`` (milliseconds) in DIR. A cluster has as many GPUs
as its widest job or 1.1 times its mean load asks for, rounded up to machines of 8. Both schedules
have the same machines, see the same walltimes, run time times U(1, 3), and know nothing of jobs
that have not come yet. What EASY comes to where GPUs are only counted stands under ``counted``.

Of a long trace a window is replayed: ``--jobs`` jobs in a row from its middle, ``0`` for all of
it. Both schedules get the same window, and the line says how many jobs there were.

``utilisation_delta`` compares the part of the GPU time used between the first and the last arrival;
``p90_coverage`` is the share of jobs that have started by the p90 they were told when they came.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared
from benchmarks.easy_backfill import Parts, Request, easy_starts
from benchmarks.inputs import reading
from benchmarks.machine import run
from hybrid.domain.ids import NodeId, PoolName
from hybrid.domain.job_spec import JobSpec, Resources
from hybrid.hardware import REFERENCE_KEY
from hybrid.simulation.replay import Arrival, Fate, Replay
from hybrid.simulation.traces import MILLISECONDS, TraceJob, read_archive, read_table
from hybrid.simulation.world import node_report

GPUS_PER_NODE = 8
HEADROOM = 1.1
LONGEST_OVERESTIMATE = 3.0
SEED = 0
WINDOW, QUICK_WINDOW = 1_200, 150
"""Jobs of each cluster that are replayed: what one core plans well within 20 minutes."""

COVERED_WANTED = (0.87, 0.93)

POLICY = """
scheduling: {strategy: shortest_predicted, width_exponent: -2, improve: false}
aging: {per_hour: 8.4}
priority_classes:
  normal: {max_wait: 30d}
burst: {enabled: false}
preemption: {enabled: false}
return_home: {enabled: false}
"""

RACK = {"kind": "local", "name": "rack", "rate_per_gpu_hour": 0}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A trace with the GPUs it is replayed on. ``requests`` are the window, ``whole`` counts the
    jobs of the trace."""

    name: str
    gpus: int
    requests: tuple[Request, ...]
    whole: int


@dataclass(frozen=True, slots=True)
class Waits:
    """What a schedule came to: waits in order of arrival, and the part of the GPU time used
    between the first and the last arrival, and until the last end."""

    waits_s: tuple[float, ...]
    utilisation: float
    utilisation_to_the_end: float

    @property
    def mean_h(self) -> float:
        """Over all jobs."""
        return statistics.fmean(self.waits_s) / 3600.0

    @property
    def p95_h(self) -> float:
        """The smallest wait that 95 % of the jobs do not exceed."""
        return sorted(self.waits_s)[math.ceil(0.95 * len(self.waits_s)) - 1] / 3600.0


@dataclass(frozen=True, slots=True)
class Told:
    """How many jobs started by the p90 they were told: of all, and of those told to wait."""

    jobs: int
    covered: int
    waiting: int
    waiting_covered: int


def read_clusters(folder: Path, window: int) -> tuple[Cluster, ...]:
    """All traces of the folder, by name. Raises ValueError when there is none, or two have the same
    name."""
    traces: dict[str, tuple[TraceJob, ...]] = {}
    for archive in sorted(folder.glob("*.tar.gz")):
        found = read_archive(archive)
        for name in found.keys() & traces.keys():
            raise ValueError(f"{archive}: another archive has a table {name} too; rename one")
        traces.update(found)
    for table in sorted(folder.glob("philly-*.csv")):
        traces[table.stem] = read_table(table, MILLISECONDS)
    clusters = tuple(_cluster(name, jobs, window) for name, jobs in sorted(traces.items()) if jobs)
    if not clusters:
        raise ValueError(f"{folder} holds no trace")
    return clusters


def _cluster(name: str, jobs: Sequence[TraceJob], window: int) -> Cluster:
    chance = random.Random(SEED)
    requests = [
        Request(
            arrives_s=job.arrives_s,
            gpus=job.gpus,
            # a job that ends at once has a walltime all the same
            runtime_s=max(job.runtime_s, 1.0),
            walltime_s=max(job.runtime_s, 1.0) * chance.uniform(1.0, LONGEST_OVERESTIMATE),
        )
        for job in jobs
    ]
    first = max((len(requests) - window) // 2, 0) if window else 0
    chosen = tuple(requests[first : first + window] if window else requests)
    return Cluster(name, cluster_gpus(requests), chosen, len(requests))


def cluster_gpus(jobs: Sequence[Request]) -> int:
    """GPUs for these jobs: the widest, or 1.1 times the mean load, in machines of 8."""
    span_s = jobs[-1].arrives_s - jobs[0].arrives_s
    used_s = sum(job.gpus * job.runtime_s for job in jobs)
    load = used_s / span_s if span_s > 0 else 0.0
    wanted = max(max(job.gpus for job in jobs), HEADROOM * load)
    return GPUS_PER_NODE * math.ceil(wanted / GPUS_PER_NODE)


def easy(cluster: Cluster) -> Waits:
    """The window under EASY backfill, on the machines that ours has."""
    nodes = cluster.gpus // GPUS_PER_NODE
    shapes = [shape(job.gpus, nodes) for job in cluster.requests]
    parts = [Parts(resources.nodes, resources.gpus) for resources in shapes]
    return _waits(cluster, easy_starts(cluster.requests, parts, [GPUS_PER_NODE] * nodes))


def easy_counted(cluster: Cluster) -> Waits:
    """The window under EASY backfill that no job keeps waiting for GPUs on one machine."""
    parts = [Parts(1, job.gpus) for job in cluster.requests]
    return _waits(cluster, easy_starts(cluster.requests, parts, [cluster.gpus]))


def ours(cluster: Cluster) -> tuple[Waits, Told]:
    """The window under the product's own planner."""
    nodes = cluster.gpus // GPUS_PER_NODE
    replay = Replay(
        policy=POLICY,
        pools=(RACK,),
        nodes=[
            node_report(
                NodeId(f"n{index:04d}"),
                PoolName("rack"),
                REFERENCE_KEY,
                GPUS_PER_NODE,
                "nvswitch",
                run_lease_s=math.inf,
                cpus=1e6,
                memory_gib=1e6,
            )
            for index in range(nodes)
        ],
    )
    begins_s = cluster.requests[0].arrives_s
    done = replay.run(
        Arrival(
            job_id=f"j{position:06d}",
            at_s=job.arrives_s - begins_s,
            spec=_spec(job, nodes),
            work_s=job.runtime_s,
        )
        for position, job in enumerate(cluster.requests)
    )
    starts = [
        job.arrives_s + fate.wait_s for job, fate in zip(cluster.requests, done.fates, strict=True)
    ]
    return _waits(cluster, starts), calibration(done.fates)


def _spec(job: Request, nodes: int) -> JobSpec:
    return JobSpec(command=("train",), resources=shape(job.gpus, nodes), walltime=job.walltime_s)


def shape(gpus: int, nodes: int) -> Resources:
    """So many GPUs as equal parts of as few machines as can be; whole machines where no equal parts
    come out even."""
    fewest = -(-gpus // GPUS_PER_NODE)
    for count in range(fewest, min(gpus, nodes) + 1):
        if gpus % count == 0:
            return Resources(nodes=count, gpus=gpus // count)
    return Resources(nodes=fewest, gpus=GPUS_PER_NODE)


def calibration(fates: Sequence[Fate]) -> Told:
    """How often a start came by the p90 that was told at submission. A job that was told nothing
    is not covered."""
    jobs = covered = waiting = waiting_covered = 0
    for fate in fates:
        jobs += 1
        told = fate.told
        in_time = told is not None and fate.submitted_at + fate.wait_s <= told.p90_at
        covered += in_time
        if told is None or told.p90_at > fate.submitted_at:
            waiting += 1
            waiting_covered += in_time
    return Told(jobs, covered, waiting, waiting_covered)


def _waits(cluster: Cluster, starts: Sequence[float]) -> Waits:
    jobs = cluster.requests
    first_s, last_s = jobs[0].arrives_s, jobs[-1].arrives_s
    end_s = max(at + job.runtime_s for at, job in zip(starts, jobs, strict=True))
    used = sum(
        job.gpus * max(min(at + job.runtime_s, last_s) - at, 0.0)
        for at, job in zip(starts, jobs, strict=True)
    )
    whole = sum(job.gpus * job.runtime_s for job in jobs)
    span_s = last_s - first_s
    return Waits(
        waits_s=tuple(
            # two clocks, one begun later: what is left of rounding is no wait
            max(at - job.arrives_s, 0.0)
            for at, job in zip(starts, jobs, strict=True)
        ),
        utilisation=used / (cluster.gpus * span_s) if span_s > 0 else 0.0,
        utilisation_to_the_end=whole / (cluster.gpus * (end_s - first_s)),
    )


def measure(data: Path, *, window: int = WINDOW) -> dict[str, Any]:
    """All figures of the printed line."""
    with reading(data):
        clusters = read_clusters(data, window)
    by_cluster = {}
    waits: list[tuple[Waits, Waits, Waits]] = []
    told: list[Told] = []
    for cluster in clusters:
        theirs, (mine, heard) = easy(cluster), ours(cluster)
        waits.append((mine, theirs, easy_counted(cluster)))
        told.append(heard)
        by_cluster[cluster.name] = _figures(cluster, mine, theirs, heard)
        print(
            f"{cluster.name}: {len(cluster.requests)} of {cluster.whole} jobs on {cluster.gpus}"
            f" GPUs; mean wait {mine.mean_h:.3f} h, EASY {theirs.mean_h:.3f} h",
            flush=True,
        )
    return {
        **_against([(mine, theirs) for mine, theirs, _ in waits]),
        "counted": _against([(mine, counted) for mine, _, counted in waits]),
        "p90_coverage": _share(sum(t.covered for t in told), sum(t.jobs for t in told)),
        "p90_coverage_waiting": _share(
            sum(t.waiting_covered for t in told), sum(t.waiting for t in told)
        ),
        "jobs": sum(len(cluster.requests) for cluster in clusters),
        "jobs_in_traces": sum(cluster.whole for cluster in clusters),
        "sampled": "all jobs" if not window else f"up to {window} jobs in a row of each trace",
        "clusters": by_cluster,
    }


def _against(pairs: Sequence[tuple[Waits, Waits]]) -> dict[str, float | None]:
    """The waits of all jobs, and the mean difference of utilisation over the traces."""
    mean_h = [_mean(part for pair in pairs for part in pair[side].waits_s) for side in (0, 1)]
    to_the_end = [m.utilisation_to_the_end - t.utilisation_to_the_end for m, t in pairs]
    delta = statistics.fmean(m.utilisation - t.utilisation for m, t in pairs)
    return {
        "mean_wait_ratio": _ratio(*mean_h),
        "utilisation_delta": round(delta, 4),
        "utilisation_delta_to_the_end": round(statistics.fmean(to_the_end), 4),
    }


def _figures(cluster: Cluster, mine: Waits, theirs: Waits, told: Told) -> dict[str, Any]:
    return {
        "jobs": len(cluster.requests),
        "gpus": cluster.gpus,
        "mean_wait_h": round(mine.mean_h, 4),
        "easy_mean_wait_h": round(theirs.mean_h, 4),
        "mean_wait_ratio": _ratio(mine.mean_h, theirs.mean_h),
        "p95_wait_h": round(mine.p95_h, 4),
        "easy_p95_wait_h": round(theirs.p95_h, 4),
        "utilisation": round(mine.utilisation, 4),
        "utilisation_delta": round(mine.utilisation - theirs.utilisation, 4),
        "p90_coverage": _share(told.covered, told.jobs),
        "p90_coverage_waiting": _share(told.waiting_covered, told.waiting),
    }


def _mean(waits_s: Iterator[float]) -> float:
    return statistics.fmean(waits_s) / 3600.0


def _ratio(mine: float, theirs: float) -> float | None:
    """None when the other schedule lets nobody wait and ours does: no ratio tells that."""
    if theirs > 0:
        return round(mine / theirs, 4)
    return None if mine > 0 else 1.0


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    ratio, delta, covered = (
        line["mean_wait_ratio"], line["utilisation_delta"], line["p90_coverage"],
    )  # fmt: skip
    lowest, highest = COVERED_WANTED
    rows = [
        Compared(
            f"mean wait, {line['jobs']} of {line['jobs_in_traces']} jobs",
            "1.00",
            _shown(ratio),
            "< 1.00",
            ratio is not None and ratio < 1.0,
        ),
        Compared("utilisation", "0.00 pp", f"{delta * 100:+.2f} pp", "≥ 0.00 pp", delta >= 0),
        Compared(
            "started by the p90 told",
            "",
            f"{covered * 100:.1f} %",
            f"{lowest * 100:.0f} to {highest * 100:.0f} %",
            lowest <= covered <= highest,
        ),
    ]
    for name, cluster in line["clusters"].items():
        rows += [
            Compared(
                f"{name}, mean wait",
                f"{cluster['easy_mean_wait_h']:.2f} h",
                f"{cluster['mean_wait_h']:.2f} h",
            ),
            Compared(
                f"{name}, p95 wait",
                f"{cluster['easy_p95_wait_h']:.2f} h",
                f"{cluster['p95_wait_h']:.2f} h",
            ),
        ]
    return tuple(rows)


def _shown(ratio: float | None) -> str:
    return "no ratio: only ours waits" if ratio is None else f"{ratio:.3f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.backfill", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--quick", action="store_true", help="a short window of each trace")
    parser.add_argument(
        "--jobs", type=int, default=WINDOW, help="jobs in a window of each trace; 0 for all"
    )
    arguments = parser.parse_args(argv)
    if arguments.jobs < 0:
        parser.error("--jobs cannot be negative")
    window = (
        min(arguments.jobs or QUICK_WINDOW, QUICK_WINDOW) if arguments.quick else arguments.jobs
    )
    run("backfill", lambda: measure(arguments.data, window=window))


if __name__ == "__main__":
    main()
