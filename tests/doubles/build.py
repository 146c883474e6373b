"""Builds domain values for tests: everything has a plain default, a test names what matters."""

from __future__ import annotations

from typing import Any

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, GpuId, JobId, MachineId, NodeId, PoolName, RunId
from hybrid.domain.job import Job, JobState
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.domain.node import Gpu, MigInstance, MigRoom, Node, NodeState, PartedGpu, Slot
from hybrid.domain.offer import Offer, offer_id
from hybrid.domain.pool_spec import POOL_SPEC
from hybrid.domain.run import Run, RunState
from hybrid.domain.snapshot import Pool
from hybrid.domain.transitions import Step
from hybrid.ports.capacity import Machine, MachineState
from hybrid.ports.engine import NodeReport, RankPhase, RankReport
from hybrid.ports.observation import EngineFacts, Known, MachineFacts, Observation
from hybrid.ports.store import World

NOW = 1_800_000_000.0


def a_spec(**fields: Any) -> JobSpec:
    """A job of one GPU for ten minutes."""
    return JobSpec(**{"command": ["train"], "expected_runtime": "10m", **fields})


def a_job(id_: str = "j1", state: JobState = JobState.PENDING, **fields: Any) -> Job:
    """A job of team ``red``, submitted just now."""
    spec = fields.pop("spec", None) or a_spec()
    defaults: dict[str, Any] = {
        "team": "red",
        "user": "ann",
        "submitted_at": NOW,
        "queued_at": NOW,
        "version": 1,
    }
    return Job(id=JobId(id_), spec=spec, state=state, **{**defaults, **fields})


def a_slot(node: str = "n1", *gpus: str, **fields: Any) -> Slot:
    """A slot of whole GPUs."""
    return Slot(node_id=NodeId(node), gpu_ids=tuple(GpuId(g) for g in gpus), **fields)


def a_run(
    job: str = "j1", attempt: int = 1, state: RunState = RunState.RUNNING, **fields: Any
) -> Run:
    """A run on one GPU of ``n1``."""
    defaults: dict[str, Any] = {
        "pool": PoolName("rack"),
        "engine": "agent",
        "slots": (a_slot("n1", "n1-g0"),),
        "assigned_at": NOW,
        "started_at": NOW if state is not RunState.ASSIGNED else None,
        "gpu_model": "a100-sxm4-80gb",
        "version": 1,
    }
    if state is not RunState.ASSIGNED:
        defaults["history"] = (Step("assigned", NOW, ""), Step("starting", NOW, ""))
    return Run(
        id=RunId(f"{job}.{attempt}"),
        job_id=JobId(job),
        attempt=attempt,
        state=state,
        **{**defaults, **fields},
    )


def a_node(id_: str = "n1", gpus: int = 1, **fields: Any) -> Node:
    """A node with all its GPUs linked alike."""
    defaults: dict[str, Any] = {
        "pool": PoolName("rack"),
        "engine": "agent",
        "state": NodeState.READY,
        "joined_at": NOW - 3600,
        "gpus": some_gpus(id_, gpus),
        "links_gbps": links(gpus, 300.0),
        "cpus": 64,
        "memory_gib": 512,
        "version": 1,
    }
    return Node(id=NodeId(id_), **{**defaults, **fields})


def some_gpus(node: str, count: int, model: str = "a100-sxm4-80gb") -> tuple[Gpu, ...]:
    """Devices ``NODE-g0`` and on."""
    return tuple(
        Gpu(id=GpuId(f"{node}-g{i}"), index=i, model=model, memory_gib=79.0) for i in range(count)
    )


def parted(node: str) -> dict[str, Any]:
    """Fields of a node or a report: a GPU with a 3g.40gb and a 1g.10gb, and room beside them."""
    parent = GpuId(f"{node}-p0")
    places = (("3g.40gb", 0, 4), ("1g.10gb", 6, 1))
    gpus = tuple(
        Gpu(
            id=GpuId(f"MIG-{node}-{i}"),
            index=i,
            model=f"a100-sxm4-80gb:{profile}",
            memory_gib=9.5 * size,
            mig=MigInstance(parent=parent, number=i + 1, start=start, size=size),
        )
        for i, (profile, start, size) in enumerate(places)
    )
    room = (MigRoom(profile="1g.10gb", starts=(4, 5)), MigRoom(profile="2g.20gb", starts=(4,)))
    cut = PartedGpu(id=parent, index=0, model="a100-sxm4-80gb", room=room)
    return {"gpus": gpus, "links_gbps": links(2, 0.0), "parted": (cut,)}


def links(count: int, gbps: float) -> tuple[tuple[float, ...], ...]:
    """A full graph of equal links."""
    return tuple(tuple(0.0 if i == j else gbps for j in range(count)) for i in range(count))


def a_burst_pool(name: str = "cloud", **fields: Any) -> Pool:
    """A burst pool of one zone."""
    document = {
        "kind": "burst",
        "name": name,
        "provider": "aws",
        "region": "us-east-1",
        "zones": [{"name": "us-east-1a"}],
        "template": {"image": "ami-1"},
        "machine_types": ["g5.xlarge"],
        "markets": ["spot", "on_demand"],
        "ceilings": {"machines": 10, "usd_per_hour": 100},
        "disk": 0,
        **fields,
    }
    return Pool(spec=POOL_SPEC.validate_python(document), version=1)


def a_local_pool(name: str = "rack", **fields: Any) -> Pool:
    """Owned machines."""
    return Pool(
        spec=POOL_SPEC.validate_python({"kind": "local", "name": name, **fields}), version=1
    )


def an_offer(pool: str = "cloud", market: Market = Market.SPOT, **fields: Any) -> Offer:
    """A machine with one A10G at a dollar an hour."""
    zone, machine_type = "us-east-1a", "g5.xlarge"
    defaults: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "zone": zone,
        "machine_type": machine_type,
        "market": market,
        "gpus": 1,
        "gpu_model": "a10g",
        "gpu_memory_gib": 22.5,
        "links_gbps": ((0.0,),),
        "cpus": 4,
        "memory_gib": 16,
        "architecture": "x86_64",
        "price_micros_per_hour": 1_000_000,
        "price_ceiling_micros_per_hour": 1_200_000,
        "priced_at": NOW,
        "price_source": "test",
    }
    name = PoolName(pool)
    return Offer(id=offer_id(name, zone, machine_type, market), pool=name, **{**defaults, **fields})


def a_claim(id_: str = "c1", state: ClaimState = ClaimState.READY, **fields: Any) -> Claim:
    """A claim whose machine ``i-1`` was launched a minute ago."""
    defaults: dict[str, Any] = {
        "pool": PoolName("cloud"),
        "offer": an_offer(),
        "token": f"token-{id_}",
        "request": "{}",
        "requested_at": NOW - 60,
        "team": "red",
        "user": "ann",
        "job_id": JobId("j1"),
        "machine_id": MachineId("i-1"),
        "launched_at": NOW - 60,
        "lease_until": NOW + 1800,
        "lease_sent_until": NOW + 1800,
        "held_micros": 900_000,
        "version": 1,
        "history": (Step("requested", NOW - 60, ""),),
    }
    if state is ClaimState.REQUESTED:
        defaults |= {"machine_id": None, "launched_at": None}
    return Claim(id=ClaimId(id_), state=state, **{**defaults, **fields})


def a_machine(claim: str | None = "c1", id_: str = "i-1", **fields: Any) -> Machine:
    """A running spot machine of a claim."""
    defaults: dict[str, Any] = {
        "token": f"token-{claim}",
        "state": MachineState.RUNNING,
        "zone": "us-east-1a",
        "machine_type": "g5.xlarge",
        "market": Market.SPOT,
        "launched_at": NOW - 60,
    }
    return Machine(
        id=MachineId(id_),
        claim_id=None if claim is None else ClaimId(claim),
        **{**defaults, **fields},
    )


def a_node_report(id_: str = "n1", **fields: Any) -> NodeReport:
    """What an engine says of ``a_node()``."""
    defaults: dict[str, Any] = {
        "pool": PoolName("rack"),
        "hostname": "",
        "heard_at": NOW,
        "run_lease_s": 600.0,
        "gpus": some_gpus(id_, 1),
        "links_gbps": links(1, 300.0),
        "cpus": 64,
        "memory_gib": 512,
    }
    return NodeReport(id=NodeId(id_), **{**defaults, **fields})


def a_rank(run: str = "j1.1", rank: int = 0, node: str = "n1", **fields: Any) -> RankReport:
    """A rank that runs."""
    defaults: dict[str, Any] = {"phase": RankPhase.RUNNING, "started_at": NOW}
    return RankReport(run_id=RunId(run), rank=rank, node_id=NodeId(node), **{**defaults, **fields})


def an_ended_rank(run: str = "j1.1", code: int | None = 0, **fields: Any) -> RankReport:
    """A rank that has ended with an exit code."""
    return a_rank(run, phase=RankPhase.ENDED, exit_code=code, **{"ended_at": NOW + 10, **fields})


def a_world(*entities: Job | Run | Claim | Node | Pool, **fields: Any) -> World:
    """A stored world of these entities."""
    kinds: dict[type, dict[Any, Any]] = {Job: {}, Run: {}, Claim: {}, Node: {}, Pool: {}}
    for entity in entities:
        key = entity.name if isinstance(entity, Pool) else entity.id
        kinds[type(entity)][key] = entity
    return World(
        revision=1,
        installation="inst",
        policy_version=0,
        jobs=kinds[Job],
        runs=kinds[Run],
        claims=kinds[Claim],
        nodes=kinds[Node],
        pools=kinds[Pool],
        **fields,
    )


def an_observation(
    *,
    at: float = NOW,
    nodes: tuple[NodeReport, ...] | None = None,
    ranks: tuple[RankReport, ...] = (),
    machines: tuple[Machine, ...] | None = None,
    notices: tuple[Any, ...] = (),
    heard_since: float = 0.0,
    **fields: Any,
) -> Observation:
    """What engine ``agent`` and provider ``aws`` say; a source that is not given is not there."""
    if nodes is not None or ranks:
        fields["engines"] = {"agent": Known(EngineFacts(nodes or (), ranks), at)}
    if machines is not None:
        fields["machines"] = {"aws": Known(MachineFacts(machines, notices), at)}
    return Observation(at=at, heard_since=heard_since, **fields)
