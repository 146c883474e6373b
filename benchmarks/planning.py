"""How long one plan takes: 10,000 jobs wait for 1,000 nodes of 12 topologies, with 2,000 offers.

``python -m benchmarks.planning [--data DIR] [--quick]`` makes the world itself from a fixed seed:
400 distinct specs, gangs and constraints among them; nine tenths of the 8,000 GPUs are held by live
runs. The same is planned with 1,000 and 100,000 jobs waiting. ``unchanged_s`` is a tick of the real
loop, over the store in memory and simulated ports, in which nothing has changed since the last.
``peak_mib`` is the process's peak memory after the plan of the middle size. Seconds are those of
one core (CPU time): what else runs on the machine does not count.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared
from benchmarks.machine import run
from hybrid.domain.budget import Balance, Budget, Period, Scope
from hybrid.domain.ids import GpuId, JobId, NodeId, PoolName, RunId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import Checkpointing, GpuRequest, JobSpec, Market, Profile, Resources
from hybrid.domain.node import Gpu, Node, NodeState, Slot
from hybrid.domain.offer import Offer, offer_id
from hybrid.domain.plan import Plan
from hybrid.domain.pool_spec import POOL_SPEC
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Pool, Snapshot
from hybrid.hardware import gpu_model, machine_types
from hybrid.planning.lint import lint
from hybrid.ports.engine import NodeReport
from hybrid.ports.store import Bundle, Put
from hybrid.runtime.pace import Pace
from hybrid.runtime.planning import Planning
from hybrid.simulation.clock import SimClock
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.memory_store import MemoryStore
from hybrid.simulation.world import SimWorld
from hybrid.topology import preset
from policies.document import PolicyDocument
from policies.loading import parse_policy

SEED = 20_260_720
NODES, GPUS_PER_NODE, SPECS, OFFERS = 1_000, 8, 400, 2_000
SIZES, QUICK_SIZES = (1_000, 10_000, 100_000), (1_000, 10_000)
MIDDLE, LARGE = 10_000, 100_000
NOW = 1_800_000_000.0

QUIET_TICKS = 5

SECONDS_WANTED, GROWTH_WANTED, UNCHANGED_WANTED_S, PEAK_WANTED_MIB = 1.0, 1.3, 0.050, 1024.0

TOPOLOGIES = (
    ("h100-sxm5-80gb", "nvswitch"),
    ("h200-sxm5-141gb", "nvswitch"),
    ("b200-sxm6-180gb", "nvswitch"),
    ("a100-sxm4-80gb", "nvswitch"),
    ("a100-sxm4-40gb", "nvswitch"),
    ("v100-sxm2-32gb", "dgx1"),
    ("v100-sxm2-16gb", "dgx1"),
    ("a100-pcie-80gb", "nvlink-pairs"),
    ("rtx-3090", "nvlink-pairs"),
    ("l40s", "pcie-2-socket"),
    ("a40", "nvlink-pairs"),
    ("t4", "pcie-2-socket"),
)
TEAMS = tuple(f"team-{letter}" for letter in "abcdefgh")
REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "us-central1", "europe-west4")
ZONES = ("a", "b", "c", "d")

POLICY = """
budgets:
  - {name: all, limit_usd: 20000, period: month}
"""


@dataclass(frozen=True, slots=True)
class Timed:
    """One plan: how long it took, and how far it got."""

    seconds: float
    made: Plan


def snapshot(pending: int, *, nodes: int = NODES, offers: int = OFFERS) -> Snapshot:
    """The world with so many jobs waiting, the same for the same numbers."""
    chance = random.Random(SEED)
    cluster = _cluster(nodes)
    runs, running = _running(cluster, chance)
    specs = [_spec(chance) for _ in range(SPECS)]
    waiting = {}
    for position in range(pending):
        submitted_at = NOW - chance.uniform(0.0, 12 * 3600.0)
        job = Job(
            id=JobId(f"j{position:06d}"),
            spec=chance.choice(specs),
            team=chance.choice(TEAMS),
            user="ann",
            state=JobState.PENDING,
            submitted_at=submitted_at,
            queued_at=submitted_at,
        )
        waiting[job.id] = job
    limit = Budget(name="all", limit_usd=Decimal(20_000), period=Period.MONTH, scope=Scope.ORG)
    return Snapshot(
        now=NOW,
        revision=1,
        installation="benchmark",
        jobs={**running, **waiting},
        runs=runs,
        nodes={node.id: node for node in cluster},
        pools=_pools(),
        offers=_offers(offers, chance),
        balances=(Balance(budget=limit),),
    )


def timed(world: Snapshot, policy: PolicyDocument, planning: Planning) -> Timed:
    """One plan of the world, as the runtime makes it: with the budget that its default pace and
    the rate measured so far come to. Raises ValueError when it is not clean."""
    world = replace(world, evaluation_budget=planning.budget(Pace().planning_s))
    gc.collect()
    begun = time.process_time()
    made = planning.plan(world, policy, 1)
    seconds = time.process_time() - begun
    findings = lint(world, made)
    if findings:
        raise ValueError(f"the plan is not clean: {findings[0]}")
    return Timed(seconds, made)


def measure(*, quick: bool = False) -> dict[str, Any]:
    """All figures of the printed line."""
    policy = parse_policy(POLICY)
    seconds: dict[str, float] = {}
    complete: dict[str, bool] = {}
    evaluations: dict[str, int] = {}
    peak = 0.0
    planning = Planning()
    timed(snapshot(100), policy, planning)  # tables per topology are made once in a process's life
    for size in QUICK_SIZES if quick else SIZES:
        world = snapshot(size)
        # the first of a size finds out how many evaluations its seconds are worth
        tries = [timed(world, policy, planning) for _ in range(2 if size > MIDDLE else 6)][1:]
        seconds[str(size)] = round(statistics.median(t.seconds for t in tries), 3)
        complete[str(size)] = tries[-1].made.complete
        evaluations[str(size)] = tries[-1].made.evaluations
        if size == MIDDLE:
            peak = peak_mib()
        print(f"{size} pending: {seconds[str(size)]} s", flush=True)
    return {
        "seconds": seconds,
        "unchanged_s": round(unchanged_s(MIDDLE), 4),
        "peak_mib": round(peak, 1),
        "evaluations": evaluations,
        "complete": complete,
    }


def peak_mib() -> float:
    """The most memory this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# --- a tick in which nothing changed ------------------------------------------------------------


def unchanged_s(pending: int) -> float:
    """CPU seconds of a quiet tick with so many jobs waiting: the median of several. Those of the
    loop's own thread: in the others the simulated nodes make up their answers."""
    control = _control(pending)
    try:
        _until_quiet(control)
        taken: list[float] = []
        while len(taken) < QUIET_TICKS:
            control.world.advance(0.01)
            begun = time.thread_time()
            report = control.tick()
            seconds = time.thread_time() - begun
            if report is not None and report.quiet and not report.planned:
                taken.append(seconds)
            elif len(taken) == 0 and report is not None and report.planned:
                continue  # the pace asked for a new plan just now
        return statistics.median(taken)
    finally:
        control.loop.stop()


def _control(pending: int) -> Control:
    """The same nodes and jobs behind a control plane; the cluster is full, nothing bursts."""
    clock = SimClock(NOW)
    engine = SimEngine("agent", clock, lambda job: job.spec.expected_runtime or 3600.0)
    world = SimWorld(clock, {}, engine, step_s=0.01)
    control = Control(
        MemoryStore("benchmark"), world, pace=Pace(replan_s=3600.0, loop_lease_s=3600.0)
    )
    control.apply_policy(POLICY)
    for number in range(4):
        control.apply_pool({"kind": "local", "name": f"rack-{number}"})
    for node in _cluster(NODES):
        engine.join(_report(node))
    jobs = snapshot(pending).jobs.values()
    waiting = [job for job in jobs if job.state is JobState.PENDING]
    control.store.commit(
        [Bundle(id=f"submit:{job.id}", changes=(Put(job),)) for job in waiting], at=NOW
    )
    return control


def _until_quiet(control: Control) -> None:
    for _ in range(20):
        control.world.advance(0.01)
        report = control.tick()
        if report is not None and report.quiet:
            return
    raise ValueError("the loop does not come to rest")


def _report(node: Node) -> NodeReport:
    return NodeReport(
        id=node.id,
        pool=node.pool,
        hostname=str(node.id),
        heard_at=NOW,
        run_lease_s=600.0,
        gpus=node.gpus,
        links_gbps=node.links_gbps,
        cpus=node.cpus,
        memory_gib=node.memory_gib,
        block=node.block,
        rack=node.rack,
    )


# --- the world ------------------------------------------------------------------------------------


def _cluster(count: int) -> list[Node]:
    found = []
    for position in range(count):
        model, links = TOPOLOGIES[position % len(TOPOLOGIES)]
        facts = gpu_model(model)
        graph = preset(links, model, GPUS_PER_NODE)
        name = NodeId(f"n{position:04d}")
        found.append(
            Node(
                id=name,
                pool=PoolName(f"rack-{position % 4}"),
                engine="agent",
                state=NodeState.READY,
                joined_at=NOW - 86_400.0,
                gpus=tuple(
                    Gpu(
                        id=GpuId(f"{name}-g{i}"),
                        index=i,
                        model=model,
                        memory_gib=facts.usable_memory_gib,
                        numa=graph.numa[i],
                    )
                    for i in range(GPUS_PER_NODE)
                ),
                links_gbps=graph.gbps,
                cpus=128,
                memory_gib=1024,
                block=f"block-{position // 128}",
                rack=f"rack-{position // 16}",
            )
        )
    return found


def _running(
    cluster: Sequence[Node], chance: random.Random
) -> tuple[dict[RunId, Run], dict[JobId, Job]]:
    """Live runs on nine tenths of the GPUs."""
    runs: dict[RunId, Run] = {}
    jobs: dict[JobId, Job] = {}
    for node in cluster:
        first = 0
        while first < GPUS_PER_NODE:
            gpus = min(chance.choice((1, 2, 4, 4, 8, 8, 8)), GPUS_PER_NODE - first)
            if chance.random() < 0.9:
                job, run = _live(node, first, gpus, chance)
                jobs[job.id], runs[run.id] = job, run
            first += gpus
    return runs, jobs


def _live(node: Node, first: int, gpus: int, chance: random.Random) -> tuple[Job, Run]:
    runtime_s = chance.choice((3600.0, 4 * 3600.0, 12 * 3600.0, 48 * 3600.0))
    began_at = NOW - chance.uniform(0.0, 0.95) * runtime_s
    id_ = JobId(f"r-{node.id}-{first}")
    model = node.gpus[0].model
    spec = JobSpec(
        command=("train",),
        resources=Resources(gpus=gpus, gpu=GpuRequest(models=(model,)), cpus=gpus, memory=gpus),
        expected_runtime=runtime_s,
        walltime=3 * runtime_s,
    )
    team = chance.choice(TEAMS)
    job = Job(
        id=id_, spec=spec, team=team, user="ann", state=JobState.RUNNING,
        submitted_at=began_at, queued_at=began_at, attempts=1,
    )  # fmt: skip
    devices = tuple(gpu.id for gpu in node.gpus[first : first + gpus])
    run = Run(
        id=RunId(f"{id_}.1"), job_id=id_, attempt=1, state=RunState.RUNNING, pool=node.pool,
        engine="agent", slots=(Slot(node_id=node.id, gpu_ids=devices, cpus=gpus, memory_gib=gpus),),
        assigned_at=began_at, started_at=began_at, gpu_model=model,
    )  # fmt: skip
    return job, run


def _spec(chance: random.Random) -> JobSpec:
    gpus = chance.choices((1, 2, 4, 8), (60, 15, 13, 12))[0]
    nodes = chance.choice((1, 1, 1, 2, 4)) if gpus == GPUS_PER_NODE else 1
    models: tuple[str, ...] = ()
    if chance.random() < 0.4:
        models = tuple(sorted(chance.sample([model for model, _ in TOPOLOGIES], 3)))
    runtime_s = chance.choice((600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 36_000.0, 86_400.0))
    runtime_s *= chance.uniform(0.7, 1.3)
    return JobSpec(
        command=("train",),
        priority=chance.choices(("low", "normal", "high"), (25, 60, 15))[0],
        resources=Resources(
            nodes=nodes,
            gpus=gpus,
            gpu=GpuRequest(models=models, memory=chance.choice((None, None, 16, 40, 70))),
            cpus=4 * gpus,
            memory=16 * gpus,
        ),
        profile=chance.choice(tuple(Profile)),
        expected_runtime=round(runtime_s, 1),
        walltime=round(4 * runtime_s, 1) + 86_400,
        value_per_hour=chance.choice((None, None, Decimal(1), Decimal(5), Decimal(20))),
        checkpoint=Checkpointing(enabled=chance.random() < 0.6),
    )


def _pools() -> dict[PoolName, Pool]:
    documents: list[dict[str, Any]] = [
        {"kind": "local", "name": f"rack-{number}"} for number in range(4)
    ]
    documents += [
        {
            "kind": "burst",
            "name": f"cloud-{region}",
            "provider": "gcp" if region[-2] != "-" else "aws",
            "region": region,
            "zones": [{"name": region + zone} for zone in ZONES],
            "template": {"image": "any"},
            "machine_types": [kind.name for kind in _kinds()],
            "markets": ["spot", "on_demand"],
            "ceilings": {"machines": 200, "usd_per_hour": 2000},
        }
        for region in REGIONS
    ]
    pools = [Pool(spec=POOL_SPEC.validate_python(document)) for document in documents]
    return {pool.name: pool for pool in pools}


def _kinds() -> list[Any]:
    return [kind for kind in machine_types() if kind.architecture == "x86_64"][:60]


def _offers(count: int, chance: random.Random) -> tuple[Offer, ...]:
    """Every machine type in every zone and market, with a price around its GPUs' speed."""
    found: list[Offer] = []
    pools = _pools()
    for kind in _kinds():
        model = gpu_model(kind.gpu)
        links = preset(kind.links, kind.gpu, kind.gpus).gbps
        list_usd = kind.gpus * (0.4 + model.dense_tflops / 120.0) + kind.vcpus * 0.03
        for region in REGIONS:
            name = PoolName(f"cloud-{region}")
            provider = pools[name].spec.provider  # type: ignore[union-attr]
            for zone in ZONES:
                for market in (Market.SPOT, Market.ON_DEMAND):
                    part = chance.uniform(0.25, 0.7) if market is Market.SPOT else 1.0
                    price = int(list_usd * part * 1_000_000)
                    found.append(
                        Offer(
                            id=offer_id(name, region + zone, kind.name, market),
                            pool=name,
                            provider=provider,
                            region=region,
                            zone=region + zone,
                            machine_type=kind.name,
                            market=market,
                            gpus=kind.gpus,
                            gpu_model=model.key,
                            gpu_memory_gib=model.usable_memory_gib,
                            links_gbps=links,
                            cpus=kind.vcpus,
                            memory_gib=kind.memory_gib,
                            architecture=kind.architecture,
                            price_micros_per_hour=price,
                            price_ceiling_micros_per_hour=int(list_usd * 1_000_000),
                            priced_at=NOW,
                            price_source="benchmark",
                            interruptions_per_hour=0.05 if market is Market.SPOT else 0.0,
                            notice_s=120.0 if market is Market.SPOT else 0.0,
                            quota_left=chance.choice((None, None, 4, 16)),
                        )
                    )
    return tuple(chance.sample(found, count))


# --- the line -------------------------------------------------------------------------------------


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    seconds = line["seconds"]
    rows = [
        Compared(f"{int(size):,} jobs waiting", "", f"{taken:.2f} s")
        for size, taken in seconds.items()
        if int(size) != MIDDLE
    ]
    middle = seconds.get(str(MIDDLE))
    if middle is not None:
        rows.append(_at_most(f"{MIDDLE:,} jobs waiting", middle, SECONDS_WANTED, "s"))
    if middle and str(LARGE) in seconds:
        growth = seconds[str(LARGE)] / LARGE / (middle / MIDDLE)
        rows.append(_at_most("cost per job at 100,000 to that at 10,000", growth, GROWTH_WANTED))
    rows.append(_at_most("a tick without change", line["unchanged_s"], UNCHANGED_WANTED_S, "s"))
    rows.append(_at_most("peak memory", line["peak_mib"], PEAK_WANTED_MIB, "MiB"))
    return tuple(rows)


def _at_most(what: str, value: float, limit: float, unit: str = "") -> Compared:
    return Compared(
        what, "", f"{value:.3g} {unit}".strip(), f"≤ {limit:g} {unit}".strip(), value <= limit
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.planning", description=__doc__)
    parser.add_argument("--data", type=Path, help="ignored: the world is made from a seed")
    parser.add_argument("--quick", action="store_true", help="without 100,000 jobs")
    arguments = parser.parse_args(argv)
    run("planning", lambda: measure(quick=arguments.quick))


if __name__ == "__main__":
    main()
