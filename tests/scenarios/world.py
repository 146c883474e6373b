"""Compact YAML → Snapshot and policy, for scenarios of the pure planner.

Everything has a default, so a world says only what matters to it. Times are relative to now, 0.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hybrid.domain.breaker import Breaker
from hybrid.domain.budget import Balance
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, GpuId, JobId, MachineId, NodeId, OfferId, PoolName, RunId
from hybrid.domain.job import Checkpoint, FailedPlace, Job, JobState, Progress, StopCause
from hybrid.domain.job_spec import JobSpec, Market
from hybrid.domain.learned import Estimate, Learned
from hybrid.domain.money import to_micros
from hybrid.domain.node import Gpu, MigInstance, MigRoom, Node, NodeState, PartedGpu, Slot
from hybrid.domain.offer import Offer, Quota, offer_id
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.domain.quantities import parse_duration_s
from hybrid.domain.run import Run, RunState
from hybrid.domain.sightings import Sightings
from hybrid.domain.snapshot import Pool, Snapshot, UnknownSource
from hybrid.domain.transitions import Step
from hybrid.hardware import MODELS, MigPlacement
from hybrid.topology import preset
from policies.document import PolicyDocument

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()


def build(world: dict[str, Any]) -> tuple[Snapshot, PolicyDocument]:
    """The snapshot and the policy of a world."""
    policy = PolicyDocument.model_validate(world.get("policy", {}))
    pools = _pools(world)
    offers = _offers(world, pools)
    nodes = _nodes(world)
    claims = _claims(world, offers)
    for claim in claims.values():
        if claim.node_id is not None:
            nodes[claim.node_id] = _claim_node(claim)
    jobs, runs, progress = _jobs(world, nodes, claims)
    snapshot = Snapshot(
        now=NOW,
        revision=1,
        installation="scenario",
        epoch=1,
        jobs=jobs,
        runs=runs,
        nodes=nodes,
        pools=pools,
        claims=claims,
        offers=tuple(sorted(offers.values(), key=lambda o: o.id)),
        balances=tuple(
            Balance(
                budget=budget,
                charged_micros=to_micros_of(world, "charged", budget.name),
                held_micros=sum(claim.held_micros for claim in claims.values()),
            )
            for budget in policy.budgets
        ),
        breakers=_breakers(world),
        learned=_learned(world),
        sightings=_sightings(world, offers),
        progress=progress,
        usage_gpu_s=world.get("usage", {}),
        unknown=tuple(UnknownSource(s, "timed out") for s in world.get("unknown", ())),
    )
    return snapshot, policy


def to_micros_of(world: dict[str, Any], key: str, name: str) -> int:
    from decimal import Decimal

    return to_micros(Decimal(str(world.get(key, {}).get(name, 0))))


def seconds(text: Any) -> float:
    """A duration, negative with a leading minus."""
    if isinstance(text, str) and text.startswith("-"):
        return -parse_duration_s(text[1:])
    return parse_duration_s(text)


def _pools(world: dict[str, Any]) -> dict[PoolName, Pool]:
    pools = {}
    for name, document in world.get("pools", {"home": {}}).items():
        document = dict(document or {})
        if document.get("kind", "local") == "burst":
            document = {
                "provider": "aws",
                "region": "us-east-1",
                "zones": [{"name": "us-east-1a"}],
                "template": {"image": "ami-1"},
                "machine_types": sorted({o["type"] for o in world.get("offers", {}).values()})
                or ["none"],
                "ceilings": {"machines": 10, "usd_per_hour": 100},
                "markets": ["spot", "on_demand"],
                **document,
            }
        spec = POOL_SPEC.validate_python({"kind": "local", **document, "name": name})
        pools[PoolName(name)] = Pool(spec=spec, version=1)
    return pools


def _gpus(node: str, model: str, count: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            id=GpuId(f"GPU-{node}-{i}"),
            index=i,
            model=model,
            memory_gib=MODELS[model].usable_memory_gib,
        )
        for i in range(count)
    )


def _parted(
    node: str, model: str, given: list[Any]
) -> tuple[tuple[Gpu, ...], tuple[PartedGpu, ...]]:
    """``[{1g.10gb: [0, 1], 3g.40gb: [4]}, ...]``: the instances of each GPU, by first slice."""
    gpus: list[Gpu] = []
    parted = []
    for index, layout in enumerate(given):
        table = MODELS[model].mig
        assert table is not None
        parent = GpuId(f"GPU-{node}-{index}")
        held = [MigPlacement(start, name) for name, starts in layout.items() for start in starts]
        assert table.check(held) is None
        for number, at in enumerate(held):
            profile = table.profile(at.profile)
            gpus.append(
                Gpu(
                    id=GpuId(f"MIG-{node}-{index}.{at.start}"),
                    index=len(gpus),
                    model=f"{model}:{at.profile}",
                    memory_gib=profile.memory_gib * 0.95,
                    mig=MigInstance(
                        parent=parent, number=number, start=at.start, size=profile.memory_slices
                    ),
                )
            )
        free = {name: table.starts(held, name) for name in table.names}
        room = tuple(MigRoom(profile=name, starts=at) for name, at in free.items() if at)
        parted.append(PartedGpu(id=parent, index=index, model=model, room=room))
    return tuple(gpus), tuple(parted)


def _nodes(world: dict[str, Any]) -> dict[NodeId, Node]:
    nodes = {}
    for name, given in world.get("nodes", {}).items():
        given = dict(given or {})
        count, model = int(given.get("gpus", 1)), given.get("model", "a100-sxm4-80gb")
        instances, parted = _parted(name, model, given.get("mig", []))
        nodes[NodeId(name)] = Node(
            id=NodeId(name),
            pool=PoolName(given.get("pool", "home")),
            engine=given.get("engine", "agent"),
            state=NodeState(given.get("state", "ready")),
            joined_at=NOW - 86_400,
            drain_by=NOW + seconds(given["drain_in"]) if "drain_in" in given else None,
            hostname=name,
            gpus=tuple(
                replace(gpu, healthy=False, health_reason="ECC errors")
                if gpu.index in given.get("unhealthy", ())
                else gpu
                for gpu in instances or _gpus(name, model, count)
            ),
            parted=parted,
            history=(Step("ready", NOW - 60, given["history"]),) if "history" in given else (),
            links_gbps=((0.0,) * len(instances),) * len(instances)
            if instances
            else preset(given.get("links", "pcie"), model, count).gbps
            if count
            else (),
            cpus=given.get("cpus", 64),
            memory_gib=given.get("memory", 512),
            rack=given.get("rack", ""),
            block=given.get("block", ""),
            container_runtimes=tuple(given.get("runtimes", ())),
            version=1,
        )
    return nodes


def _offers(world: dict[str, Any], pools: dict[PoolName, Pool]) -> dict[str, Offer]:
    offers = {}
    for name, given in world.get("offers", {}).items():
        pool = pools[PoolName(given["pool"])].spec
        assert isinstance(pool, BurstPool)
        count, model = int(given.get("gpus", 1)), given.get("model", "a100-sxm4-80gb")
        mixed = given.get("models", ())  # of each GPU, where they differ
        count, model = (len(mixed), mixed[0]) if mixed else (count, model)
        market = Market(given.get("market", "on_demand"))
        price = to_micros_dec(given["price"])
        zone = given.get("zone", pool.zones[0].name)
        offers[name] = Offer(
            id=offer_id(PoolName(pool.name), zone, given["type"], market),
            pool=PoolName(pool.name),
            provider=pool.provider,
            region=pool.region,
            zone=zone,
            machine_type=given["type"],
            market=market,
            gpus=count,
            gpu_model=model,
            gpu_memory_gib=MODELS[model].usable_memory_gib,
            links_gbps=preset(given.get("links", "pcie"), model, count).gbps,
            cpus=given.get("cpus", 64),
            memory_gib=given.get("memory", 512),
            architecture="x86_64",
            price_micros_per_hour=price,
            price_ceiling_micros_per_hour=to_micros_dec(given.get("ceiling", given["price"])),
            priced_at=NOW,
            price_source="scenario",
            interruptions_per_hour=float(
                given.get("interruptions", 0.05 if market is Market.SPOT else 0)
            ),
            price_pressure=float(given.get("pressure", 1.0)),
            notice_s=seconds(given.get("notice", "2m")),
            boot_s=seconds(given.get("boot", "2m")),
            quota_left=None if isinstance(given.get("quota"), dict) else given.get("quota"),
            quota_family=given.get("family", ""),
            quota=_quota(given.get("quota")),
            devices=tuple((m, MODELS[m].usable_memory_gib) for m in mixed),
        )
    return offers


def _quota(given: Any) -> Quota | None:
    """``{limit, used, per, unit, name}``; a plain number counts machines of the offer alone."""
    if not isinstance(given, dict):
        return None
    return Quota(
        limit=given["limit"],
        used=given.get("used", 0),
        per_machine=given["per"],
        unit=given.get("unit", "vCPU"),
        name=given["name"],
        at=NOW,
    )


def to_micros_dec(usd: Any) -> int:
    from decimal import Decimal

    return to_micros(Decimal(str(usd)))


def _claims(world: dict[str, Any], offers: dict[str, Offer]) -> dict[ClaimId, Claim]:
    claims = {}
    for name, given in world.get("claims", {}).items():
        state = ClaimState(given.get("state", "ready"))
        asked = NOW + seconds(given.get("asked", "-10m"))
        ready = state in (ClaimState.READY, ClaimState.CORDONED, ClaimState.DRAINING)
        job = given.get("job", "gone")
        idle = given.get("idle")
        notice = given.get("notice_in")
        claims[ClaimId(name)] = Claim(
            id=ClaimId(name),
            pool=offers[given["offer"]].pool,
            offer=offers[given["offer"]],
            state=state,
            token=f"token-{name}",
            request="{}",
            requested_at=asked,
            team=given.get("team", "ml"),
            user=given.get("user", "ann"),
            job_id=JobId(job),
            gang=given.get("gang", ""),
            machine_id=None if state is ClaimState.REQUESTED else MachineId(f"i-{name}"),
            node_id=NodeId(f"n-{name}") if ready else None,
            launched_at=None if state is ClaimState.REQUESTED else asked,
            ready_at=asked + 60 if ready else None,
            idle_since=None if idle is None else NOW - seconds(idle),
            lease_until=NOW + seconds(given.get("lease", "25m")),
            held_micros=to_micros_dec(given.get("held", 1)),
            notice_at=None if notice is None else NOW + seconds(notice),
            rebalance_at=NOW - seconds(given["hinted"]) if "hinted" in given else None,
            version=1,
        )
    return claims


def _claim_node(claim: Claim) -> Node:
    offer = claim.offer
    name = str(claim.node_id)
    return Node(
        id=NodeId(name),
        pool=claim.pool,
        engine="agent",
        state=NodeState.READY if claim.state is ClaimState.READY else NodeState.CORDONED,
        joined_at=claim.ready_at or NOW,
        hostname=name,
        claim_id=claim.id,
        gpus=tuple(
            replace(gpu, model=model, memory_gib=memory_gib)
            for gpu, model, memory_gib in zip(
                _gpus(name, offer.gpu_model, offer.gpus),
                offer.models,
                offer.memories_gib,
                strict=True,
            )
        ),
        links_gbps=offer.links_gbps,
        cpus=offer.cpus,
        memory_gib=offer.memory_gib,
        version=1,
    )


def _spec(name: str, given: dict[str, Any]) -> JobSpec:
    resources: dict[str, Any] = {"gpus": given.get("gpus", 1), "nodes": given.get("nodes", 1)}
    resources["cpus"] = given.get("cpus", 1)
    asked = ("models", "memory", "link", "share", "slice_memory", "time_slicing", "mig_profile")
    gpu = {k: given[k] for k in asked if k in given}
    document: dict[str, Any] = {
        "name": name,
        "command": ["train"],
        "resources": {**resources, "gpu": gpu},
        "expected_runtime": given.get("run", "1h"),
    }
    if "deadline" in given:
        when = datetime.fromtimestamp(NOW + seconds(given["deadline"]), UTC)
        document["deadline"] = when
    if given.get("saves"):
        saves = given["saves"] if isinstance(given["saves"], dict) else {}
        document["checkpoint"] = {"enabled": True, **saves}
    for key, field in {
        "value": "value_per_hour", "priority": "priority", "walltime": "walltime",
        "family": "family", "max_cost": "max_cost", "where": "where", "retries": "retries",
        "data": "data", "image": "image", "profile": "profile", "stop": "stop",
    }.items():  # fmt: skip
        if key in given:
            document[field] = given[key]
    return JobSpec.model_validate(document)


def _jobs(
    world: dict[str, Any], nodes: dict[NodeId, Node], claims: dict[ClaimId, Claim]
) -> tuple[dict[JobId, Job], dict[RunId, Run], dict[RunId, Progress]]:
    jobs: dict[JobId, Job] = {}
    runs: dict[RunId, Run] = {}
    progress: dict[RunId, Progress] = {}
    for name, given in world.get("jobs", {}).items():
        given = dict(given or {})
        count = int(given.get("count", 1))
        for number in range(1, count + 1):
            id_ = JobId(name if count == 1 else f"{name}-{number}")
            job = _job(id_, _spec(name, given), given, number)
            if "at" in given:
                job, run = _running(job, given, nodes, claims)
                runs[run.id] = run
                if "progress" in given:
                    step, total = given["progress"]
                    progress[run.id] = Progress(step=step, total=total, at=NOW)
            jobs[id_] = job
    return jobs, runs, progress


def _job(id_: JobId, spec: JobSpec, given: dict[str, Any], number: int) -> Job:
    submitted = NOW + seconds(given.get("submitted", "-1m")) + number * 0.001
    checkpoint = None
    if "saved" in given:
        saved = given["saved"]
        checkpoint = Checkpoint(
            seq=1,
            step=1,
            committed_at=NOW + seconds(saved.get("at", "-1m")),
            size_bytes=int(saved.get("gib", 1) * 2**30),
            commit_s=seconds(saved.get("took", "5s")),
            work_s=seconds(saved.get("work", 0)),
            gpu_model="a100-sxm4-80gb",
        )
    return Job(
        id=id_,
        spec=spec,
        team=given.get("team", "ml"),
        user=given.get("user", "ann"),
        state=JobState.PENDING,
        submitted_at=submitted,
        queued_at=submitted,
        attempts=int(given.get("attempts", 0)),
        failures=int(given.get("failures", 0)),
        not_before=NOW + seconds(given["not_before"]) if "not_before" in given else 0.0,
        avoid_nodes=tuple(NodeId(n) for n in given.get("avoid", ())),
        failed_at=tuple(_failed_place(place) for place in given.get("failed_in", ())),
        claims_opened=int(given.get("claims_opened", 0)),
        cancel_requested=bool(given.get("cancelled", False)),
        checkpoint=checkpoint,
        version=1,
    )


def _failed_place(text: str) -> FailedPlace:
    """``pool``, or ``pool/market``."""
    pool, _, market = text.partition("/")
    return FailedPlace(pool=PoolName(pool), market=Market(market) if market else None)


def _running(
    job: Job, given: dict[str, Any], nodes: dict[NodeId, Node], claims: dict[ClaimId, Claim]
) -> tuple[Job, Run]:
    names = given["at"] if isinstance(given["at"], list) else [given["at"]]
    slots, claim_ids, model = [], [], ""
    for text in names:
        name, _, which = str(text).partition(":")
        node = nodes[NodeId(name)]
        positions = [int(i) for i in which.split("+")] if which else range(job.spec.resources.gpus)
        has_gib = node.gpus[positions[0]].memory_gib if positions else 0.0
        share = job.spec.resources.gpu.share_of(has_gib) if positions else 1.0
        slots.append(
            Slot(
                node_id=node.id,
                gpu_ids=tuple(node.gpus[i].id for i in positions),
                share=share,
                gpu_memory_gib=share * has_gib if job.spec.resources.gpu.shared else None,
                cpus=job.spec.resources.cpus,
                memory_gib=job.spec.resources.memory,
            )
        )
        model = node.gpus[positions[0]].model if positions else ""
        if node.claim_id is not None:
            claim_ids.append(node.claim_id)
    started = NOW + seconds(given.get("started", "-10m"))
    stopping = given.get("stopping")
    cause = StopCause(stopping) if stopping else None
    run = Run(
        id=RunId(f"{job.id}.1"),
        job_id=job.id,
        attempt=1,
        state=RunState.STOPPING if stopping else RunState.RUNNING,
        pool=nodes[slots[0].node_id].pool,
        engine="agent",
        slots=tuple(slots),
        assigned_at=started,
        epoch=1,
        claim_ids=tuple(claim_ids),
        gpu_model=model,
        speed=float(given.get("speed", 1.0)),
        price_micros_per_hour=sum(claims[c].offer.price_micros_per_hour for c in claim_ids),
        started_at=started,
        stop_cause=cause,
        stop_requested_at=NOW if stopping else None,
        checkpoint_problem=given.get("not_safe", ""),
        version=1,
    )
    state = JobState.STOPPING if stopping else JobState.RUNNING
    return replace(job, state=state, attempts=1, stop_cause=cause), run


def _breakers(world: dict[str, Any]) -> dict[str, Breaker]:
    return {
        scope: Breaker(
            scope=scope,
            cause=given.get("cause", "no capacity"),
            trips=int(given.get("trips", 1)),
            opened_at=NOW - 10,
            open_until=NOW + seconds(given.get("for", "20s")),
        )
        for scope, given in world.get("breakers", {}).items()
    }


def _sightings(world: dict[str, Any], offers: dict[str, Offer]) -> dict[OfferId, Sightings]:
    """``NAME: [[-3h, up], [-1h, down]]``, oldest first."""
    states = {"up": True, "down": False, "gone": None}
    found = {}
    for name, changes in world.get("sightings", {}).items():
        seen = tuple((NOW + seconds(at), states[what]) for at, what in changes)
        id_ = offers[name].id
        found[id_] = Sightings(offer_id=id_, changes=seen, seen_at=seen[-1][0], version=1)
    return found


def _learned(world: dict[str, Any]) -> Learned:
    given = world.get("learned", {})
    return Learned(
        boot_s={PoolName(k): Estimate(seconds(v), 10) for k, v in given.get("boot", {}).items()},
        work_s={k: Estimate(seconds(v), 10) for k, v in given.get("work", {}).items()},
        speed={
            (family, model): Estimate(float(mean), int(samples))
            for family, by_model in given.get("speed", {}).items()
            for model, (mean, samples) in by_model.items()
        },
        checkpoint_s={k: Estimate(seconds(v), 10) for k, v in given.get("checkpoint", {}).items()},
    )
