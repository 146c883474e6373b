"""Nodes, pools, offers and claims."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.schemas.shown import Shown, ShownStep, Usd, instant, instant_or_none, usd
from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import GpuId
from hybrid.domain.job_spec import Market
from hybrid.domain.node import Gpu, MigInstance, NodeState, PartedGpu
from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import PoolSpec
from hybrid.services.draining import Drain
from hybrid.services.nodes import NodeUse
from hybrid.services.pools import PoolUse


class ShownMig(Shown):
    """Where on its GPU a MIG instance is; null for what the node's agent may not ask."""

    parent: str = Field(description="The GPU that it is part of")
    number: int | None = Field(description="Of its GPU instance")
    start: int | None = Field(description="Its first memory slice")
    size: int | None = Field(description="How many memory slices it takes")


class ShownMigRoom(Shown):
    """Where one more instance of a profile could begin now."""

    profile: str
    starts: tuple[int, ...] = Field(description="First memory slices")


class ShownPartedGpu(Shown):
    """A GPU in MIG mode: its instances are devices, it is none."""

    id: str
    index: int
    model: str
    room: tuple[ShownMigRoom, ...] = Field(description="Profiles that would still fit")

    @classmethod
    def of(cls, gpu: PartedGpu) -> ShownPartedGpu:
        """From a GPU in MIG mode."""
        room = tuple(ShownMigRoom(profile=at.profile, starts=at.starts) for at in gpu.room)
        return cls(id=gpu.id, index=gpu.index, model=gpu.model, room=room)


class ShownGpu(Shown):
    """One device, and who holds it."""

    id: str
    index: int
    model: str
    memory_gib: float
    numa: int
    healthy: bool
    health_reason: str
    virtual: bool
    mig: ShownMig | None = Field(default=None, description="Where a MIG instance is")
    run_ids: tuple[str, ...] = Field(description="More than one when shares of it are held")

    @classmethod
    def of(cls, gpu: Gpu, run_ids: tuple[str, ...]) -> ShownGpu:
        """From a device and its holders."""
        return cls(
            id=gpu.id,
            index=gpu.index,
            model=gpu.model,
            memory_gib=gpu.memory_gib,
            numa=gpu.numa,
            healthy=gpu.healthy,
            health_reason=gpu.health_reason,
            virtual=gpu.virtual,
            mig=_mig(gpu.mig),
            run_ids=run_ids,
        )


def _mig(mig: MigInstance | None) -> ShownMig | None:
    if mig is None:
        return None
    return ShownMig(parent=mig.parent, number=mig.number, start=mig.start, size=mig.size)


class ShownNode(Shown):
    """A machine that has joined."""

    id: str
    pool: str
    engine: str
    state: NodeState
    hostname: str
    address: str
    claim_id: str | None
    joined_at: datetime
    gpus: tuple[ShownGpu, ...]
    links_gbps: tuple[tuple[float, ...], ...] = Field(
        description="GB/s per direction between the devices, in their order"
    )
    parted: tuple[ShownPartedGpu, ...] = Field(description="GPUs in MIG mode")
    cpus: float
    memory_gib: float
    architecture: str
    container_runtimes: tuple[str, ...]
    block: str
    rack: str
    cordon_cause: str
    drain_by: datetime | None = Field(description="When it is to be empty, while it is emptied")
    run_ids: tuple[str, ...]
    history: tuple[ShownStep, ...]

    @classmethod
    def of(cls, use: NodeUse) -> ShownNode:
        """From a node and what runs there."""
        node = use.node
        holders: dict[GpuId, list[str]] = {}
        for run in use.runs:
            for slot in run.slots:
                if slot.node_id == node.id:
                    for gpu_id in slot.gpu_ids:
                        holders.setdefault(gpu_id, []).append(run.id)
        return cls(
            id=node.id,
            pool=node.pool,
            engine=node.engine,
            state=node.state,
            hostname=node.hostname,
            address=node.address,
            claim_id=node.claim_id,
            joined_at=instant(node.joined_at),
            gpus=tuple(ShownGpu.of(gpu, tuple(holders.get(gpu.id, ()))) for gpu in node.gpus),
            links_gbps=node.links_gbps,
            parted=tuple(ShownPartedGpu.of(gpu) for gpu in node.parted),
            cpus=node.cpus,
            memory_gib=node.memory_gib,
            architecture=node.architecture,
            container_runtimes=node.container_runtimes,
            block=node.block,
            rack=node.rack,
            cordon_cause=node.cordon_cause,
            drain_by=instant_or_none(node.drain_by),
            run_ids=tuple(run.id for run in use.runs),
            history=ShownStep.all_of(node.history),
        )


class NodeList(Shown):
    """All nodes that are not gone, by pool and id."""

    nodes: tuple[ShownNode, ...]


class ShownPool(Shown):
    """A pool document and what is in the pool now."""

    name: str
    version: int = Field(description="Its ETag; If-Match wants it")
    spec: PoolSpec
    nodes: int
    gpus: int
    machines: int = Field(description="Claims that are not over")
    runs: int
    warnings: tuple[str, ...] = Field(description="What will not work as it stands")

    @classmethod
    def of(cls, use: PoolUse) -> ShownPool:
        """From a pool and its use."""
        return cls(
            name=use.pool.name,
            version=use.pool.version,
            spec=use.pool.spec,
            nodes=use.nodes,
            gpus=use.gpus,
            machines=use.machines,
            runs=use.runs,
            warnings=use.warnings,
        )


class PoolList(Shown):
    """All pools by name."""

    pools: tuple[ShownPool, ...]


class ShownBreaker(Shown):
    """What keeps offers from being asked for: something refused."""

    scope: str = Field(description="What refused: a provider, a zone, a quota, an offer, or boots")
    cause: str
    opened_at: datetime
    until: datetime = Field(
        description="Nothing is asked for before; afterwards one machine at a time, as a probe"
    )

    @classmethod
    def of(cls, breaker: Breaker) -> ShownBreaker:
        """From a breaker."""
        return cls(
            scope=breaker.scope,
            cause=breaker.cause,
            opened_at=instant(breaker.opened_at),
            until=instant(breaker.open_until),
        )


class ShownOffer(Shown):
    """One machine type of a burst pool in one zone and market, and its price now."""

    id: str
    pool: str
    provider: str
    region: str
    zone: str
    machine_type: str
    market: Market
    gpus: int
    gpu_model: str
    gpu_models: tuple[str, ...] = Field(
        description="Of each GPU: a machine may have several models"
    )
    gpu_memory_gib: float
    cpus: float
    memory_gib: float
    architecture: str
    price_usd_per_hour: Usd
    price_ceiling_usd_per_hour: Usd
    priced_at: datetime
    price_source: str
    interruptions_per_hour: float
    price_pressure: float = Field(
        description="What its spot price multiplies that by: 1 where it is as usual"
    )
    notice_s: float
    boot_s: float = Field(description="Until a machine joins: measured, once it was")
    quota_left: int | None = Field(description="Machines that the quota would still allow")
    quota: str = Field(description="How much of which quota is used, where the provider tells")
    breaker: ShownBreaker | None = Field(
        default=None, description="What closes it; not told of the offer of a claim"
    )

    @classmethod
    def of(cls, offer: Offer, breaker: Breaker | None = None) -> ShownOffer:
        """From an offer, and the breaker before it."""
        return cls(
            id=offer.id,
            pool=offer.pool,
            provider=offer.provider,
            region=offer.region,
            zone=offer.zone,
            machine_type=offer.machine_type,
            market=offer.market,
            gpus=offer.gpus,
            gpu_model=offer.gpu_model,
            gpu_models=offer.models,
            gpu_memory_gib=offer.gpu_memory_gib,
            cpus=offer.cpus,
            memory_gib=offer.memory_gib,
            architecture=offer.architecture,
            price_usd_per_hour=usd(offer.price_micros_per_hour),
            price_ceiling_usd_per_hour=usd(offer.price_ceiling_micros_per_hour),
            priced_at=instant(offer.priced_at),
            price_source=offer.price_source,
            interruptions_per_hour=offer.interruptions_per_hour,
            price_pressure=offer.price_pressure,
            notice_s=offer.notice_s,
            boot_s=offer.boot_s,
            quota_left=offer.quota_left,
            quota="" if offer.quota is None else offer.quota.words(),
            breaker=None if breaker is None else ShownBreaker.of(breaker),
        )


class IgnoredOffer(Shown):
    """What a provider has and cannot be used, and why."""

    what: str
    why: str


class OfferList(Shown):
    """What could be had, as last read from the clouds."""

    offers: tuple[ShownOffer, ...]
    ignored: tuple[IgnoredOffer, ...]
    unknown: tuple[str, ...] = Field(description="Providers that could not be read, and why")


class ShownClaim(Shown):
    """Our intent to hold one cloud machine, and what became of it."""

    id: str
    state: ClaimState
    pool: str
    offer: ShownOffer
    job_id: str = Field(description="The job it was opened for; it may serve others")
    team: str
    user: str
    gang: str
    machine_id: str | None
    node_id: str | None
    requested_at: datetime
    launched_at: datetime | None
    ready_at: datetime | None
    idle_since: datetime | None
    lease_until: datetime | None = Field(description="Until when the machine is paid for")
    notice_at: datetime | None = Field(description="When its provider takes it")
    rebalance_at: datetime | None = Field(
        description="Since when its provider recommends to leave it; nothing is stopped for that"
    )
    ended_at: datetime | None
    held_usd: Usd
    charged_usd: Usd
    cause: str
    history: tuple[ShownStep, ...]

    @classmethod
    def of(cls, claim: Claim) -> ShownClaim:
        """From a claim."""
        return cls(
            id=claim.id,
            state=claim.state,
            pool=claim.pool,
            offer=ShownOffer.of(claim.offer),
            job_id=claim.job_id,
            team=claim.team,
            user=claim.user,
            gang=claim.gang,
            machine_id=claim.machine_id,
            node_id=claim.node_id,
            requested_at=instant(claim.requested_at),
            launched_at=instant_or_none(claim.launched_at),
            ready_at=instant_or_none(claim.ready_at),
            idle_since=instant_or_none(claim.idle_since),
            lease_until=instant(claim.lease_until) if claim.lease_until else None,
            notice_at=instant_or_none(claim.notice_at),
            rebalance_at=instant_or_none(claim.rebalance_at),
            ended_at=instant_or_none(claim.ended_at),
            held_usd=usd(claim.held_micros),
            charged_usd=usd(claim.charged_micros),
            cause=claim.cause,
            history=ShownStep.all_of(claim.history),
        )


class ClaimList(Shown):
    """Claims, newest first."""

    claims: tuple[ShownClaim, ...]


class DrainRequest(Shown):
    """By when a node or a pool is to be empty, and why."""

    within_s: float = Field(
        default=1800.0, ge=0, le=30 * 86_400, allow_inf_nan=False, description="From now"
    )
    why: str = Field(default="", max_length=500)


class ShownDrain(Shown):
    """How far emptying has come."""

    target: str = Field(description="A node or a pool")
    by: datetime | None = Field(description="When it is to be empty; none: it is not emptied")
    empty: bool = Field(description="Nothing runs there any more, and nothing will")
    runs_left: int
    nodes: tuple[ShownNode, ...]

    @classmethod
    def of(cls, drain: Drain) -> ShownDrain:
        """From the service's answer."""
        return cls(
            target=drain.target,
            by=instant_or_none(drain.by),
            empty=drain.empty,
            runs_left=drain.runs_left,
            nodes=tuple(ShownNode.of(use) for use in drain.nodes),
        )


class CordonRequest(Shown):
    """Why a node is cordoned."""

    why: str = Field(default="", max_length=500)
