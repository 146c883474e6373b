"""Small random worlds with budgets, quotas and gangs, whose optimum can be proven.

Everything lasts a multiple of ``STEP_S``: in a best schedule a job starts now or when others end,
so starts lie on that grid and a programme over its points loses nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

from hybrid.domain.budget import Balance, Budget, Period, Scope
from hybrid.domain.ids import GpuId, JobId, NodeId, PoolName, RunId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import Data, JobSpec, Market, Resources
from hybrid.domain.node import Gpu, Node, NodeState, Slot
from hybrid.domain.offer import Offer, offer_id
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Pool, Snapshot
from hybrid.hardware import REFERENCE_KEY, gpu_model
from hybrid.topology import preset

NOW = 1_800_000_000.0
STEP_S = 1800.0

POLICY = """
scheduling: shortest_predicted
burst: {enabled: true, margin_usd: 0, margin: 0}
preemption: {enabled: false}
return_home: {enabled: false}
"""

EVALUATIONS = 20_000
"""What improving a plan may take: about what a second allows on one core. Most take a tenth."""

_TEAMS = ("red", "blue")
_LONGEST_STEPS = 8


def small_world(seed: int, position: int) -> Snapshot:
    """One instance, the same for the same numbers."""
    chance = random.Random(f"{seed}/{position}")
    nodes, pools = _racks(chance)
    jobs, runs = _running(nodes, chance)
    for number in range(chance.randint(5, 9)):
        job = _waiting(number, nodes, chance)
        jobs[job.id] = job
    offers = []
    for name in ("east", "west")[: chance.randint(1, 2)]:
        pool = _cloud(name, chance)
        pools[PoolName(name)] = Pool(spec=pool)
        offers += _offers(pool, chance)
    return Snapshot(
        now=NOW,
        revision=1,
        installation="benchmark",
        jobs=jobs,
        runs=runs,
        nodes={node.id: node for node in nodes},
        pools=pools,
        offers=tuple(offers),
        balances=_balances(chance),
        evaluation_budget=EVALUATIONS,
    )


def _racks(chance: random.Random) -> tuple[list[Node], dict[PoolName, Pool]]:
    """One or two owned pools, the first with two nodes so that there is room for a gang."""
    nodes: list[Node] = []
    pools = {}
    for name, count in (("near", 2), ("far", chance.randint(0, 1))):
        if not count:
            continue
        rate = chance.choice((0.05, 0.1, 0.3))
        spec = POOL_SPEC.validate_python(
            {"kind": "local", "name": name, "rate_per_gpu_hour": Decimal(str(rate))}
        )
        pools[PoolName(name)] = Pool(spec=spec)
        gpus = chance.choice((2, 4))
        nodes += [_node(f"{name}-{index}", name, gpus) for index in range(count)]
    return nodes, pools


def _node(name: str, pool: str, gpus: int) -> Node:
    facts = gpu_model(REFERENCE_KEY)
    return Node(
        id=NodeId(name),
        pool=PoolName(pool),
        engine="agent",
        state=NodeState.READY,
        joined_at=NOW - 86_400.0,
        gpus=tuple(
            Gpu(
                id=GpuId(f"{name}-g{index}"),
                index=index,
                model=facts.key,
                memory_gib=facts.usable_memory_gib,
            )
            for index in range(gpus)
        ),
        links_gbps=preset("nvswitch", facts.key, gpus).gbps,
        cpus=128,
        memory_gib=1024,
    )


def _running(
    nodes: Sequence[Node], chance: random.Random
) -> tuple[dict[JobId, Job], dict[RunId, Run]]:
    """Live runs on about three quarters of the GPUs."""
    jobs: dict[JobId, Job] = {}
    runs: dict[RunId, Run] = {}
    for node in nodes:
        for gpu in node.gpus:
            if chance.random() < 0.25:
                continue
            age, left = chance.randint(0, 3), chance.randint(1, _LONGEST_STEPS)
            id_ = JobId(f"r-{gpu.id}")
            began_at = NOW - age * STEP_S
            spec = JobSpec(
                command=("train",), expected_runtime=(age + left) * STEP_S, walltime=86_400 * 2
            )
            jobs[id_] = Job(
                id=id_, spec=spec, team=chance.choice(_TEAMS), user="ann", state=JobState.RUNNING,
                submitted_at=began_at, queued_at=began_at, attempts=1,
            )  # fmt: skip
            slot = Slot(node_id=node.id, gpu_ids=(gpu.id,))
            run = Run(
                id=RunId(f"{id_}.1"), job_id=id_, attempt=1, state=RunState.RUNNING,
                pool=node.pool, engine="agent", slots=(slot,), assigned_at=began_at,
                started_at=began_at, gpu_model=gpu.model,
            )  # fmt: skip
            runs[run.id] = run
    return jobs, runs


def _waiting(number: int, nodes: Sequence[Node], chance: random.Random) -> Job:
    widest = max(len(node.gpus) for node in nodes)
    if chance.random() < 0.25:
        near = min(len(node.gpus) for node in nodes if node.pool == "near")
        resources = Resources(nodes=2, gpus=chance.choice([1, 2, 4][: near.bit_length()]))
    else:
        resources = Resources(gpus=chance.choice([1, 1, 2, 4][: 1 + widest.bit_length()]))
    submitted_at = NOW - 60.0 * chance.randint(0, 240)
    return Job(
        id=JobId(f"j{number}"),
        spec=JobSpec(
            command=("train",),
            resources=resources,
            expected_runtime=chance.randint(1, _LONGEST_STEPS) * STEP_S,
            walltime=86_400,
            value_per_hour=Decimal(str(chance.choice((0.5, 1, 2, 4, 8, 16)))),
            max_cost=Decimal(chance.randint(5, 60)) if chance.random() < 0.2 else None,
            data=Data(output=chance.choice((0, 0, 5, 20))),
        ),
        team=chance.choice(_TEAMS),
        user="ann",
        state=JobState.PENDING,
        submitted_at=submitted_at,
        queued_at=submitted_at,
    )


def _cloud(name: str, chance: random.Random) -> BurstPool:
    spec = POOL_SPEC.validate_python(
        {
            "kind": "burst",
            "name": name,
            "provider": "sim",
            "region": f"{name}-1",
            "zones": [{"name": f"{name}-1a"}],
            "template": {"image": "any"},
            "machine_types": ["gpu-1", "gpu-2", "gpu-4"],
            "ceilings": {
                "machines": chance.randint(1, 4),
                "usd_per_hour": chance.choice((10, 20, 40)),
            },
        }
    )
    assert isinstance(spec, BurstPool)
    return spec


def _offers(pool: BurstPool, chance: random.Random) -> list[Offer]:
    facts = gpu_model(REFERENCE_KEY)
    per_gpu = chance.uniform(1.5, 4.0)
    name, zone = PoolName(pool.name), pool.zones[0].name
    found = []
    for machine_type in pool.machine_types:
        gpus = int(machine_type.removeprefix("gpu-"))
        price = round(per_gpu * gpus * chance.uniform(0.85, 1.15) * 1e6)
        found.append(
            Offer(
                id=offer_id(name, zone, machine_type, Market.ON_DEMAND),
                pool=name,
                provider=pool.provider,
                region=pool.region,
                zone=zone,
                machine_type=machine_type,
                market=Market.ON_DEMAND,
                gpus=gpus,
                gpu_model=facts.key,
                gpu_memory_gib=facts.usable_memory_gib,
                links_gbps=preset("nvswitch", facts.key, gpus).gbps,
                cpus=16.0 * gpus,
                memory_gib=128.0 * gpus,
                architecture="x86_64",
                price_micros_per_hour=price,
                price_ceiling_micros_per_hour=price,
                priced_at=NOW,
                price_source="made up",
                boot_s=float(chance.choice((60, 120, 300))),
                quota_left=chance.randint(0, 3),
            )
        )
    return found


def _balances(chance: random.Random) -> tuple[Balance, ...]:
    """One budget for all, and one for each team, all of which may bind."""
    limits = [("all", Scope.ORG, None, chance.randint(3, 25))]
    limits += [(team, Scope.TEAM, team, chance.randint(2, 15)) for team in _TEAMS]
    return tuple(
        Balance(
            budget=Budget(
                name=name, scope=scope, subject=subject, period=Period.LIFETIME, limit_usd=usd
            )
        )
        for name, scope, subject, usd in limits
    )
