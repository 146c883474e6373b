"""What agents and the server say to each other: JSON over HTTP, dialled by the agent.

==========================================  =====================================================
``POST /v1/nodes:join``                     JoinRequest → JoinAnswer; the join token authorizes
``POST /v1/nodes/{id}:heartbeat``           HeartbeatRequest → HeartbeatAnswer
``GET /v1/nodes/{id}/work?revision&wait_s`` → WorkAnswer, at once when the revision differs
``POST /v1/nodes/{id}/runs/{run}/{rank}/logs?offset``  bytes → LogAnswer
``POST /v1/nodes/{id}:leave``               the node has nothing of ours any more
==========================================  =====================================================

Everything is a level, not an edge: each message says the whole of what is true, so any of them may
be lost or repeated. Unknown fields are ignored, so that agents and servers of neighbouring versions
understand each other. Sizes are bounded here because both ends read what the other wrote.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hybrid.domain.ids import ClaimId, GpuId, JobId, MachineId, NodeId, PoolName, RunId
from hybrid.domain.job import Checkpoint, Progress, StopCause
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Gpu, MigInstance, PartedGpu
from hybrid.ports.engine import NodeReport, RankPhase, RankReport
from hybrid.ports.gpus import GpuReading

MAX_LOG_CHUNK_BYTES = 1 << 20
MAX_WAIT_S = 60.0
TAIL_LINES = 50
TAIL_BYTES = 16_384

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Safe as a file name and in a URL."""
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, StringConstraints(max_length=4096)]
Label = Annotated[str, StringConstraints(max_length=255)]
Instant = Annotated[float, Field(ge=0, le=1e11)]
Span = Annotated[float, Field(ge=0, le=1e9)]


class Wire(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


# --- what a node says -------------------------------------------------------------------------


class WireGpu(Wire):
    """One device, as :class:`~hybrid.domain.node.Gpu`."""

    id: Label
    index: int = Field(ge=0, le=1023)
    model: Label
    memory_gib: float = Field(ge=0, le=1e6)
    numa: int = Field(default=0, ge=-1, le=1023)
    healthy: bool = True
    health_reason: Words = ""
    virtual: bool = False
    mig: MigInstance | None = None

    @classmethod
    def of(cls, gpu: Gpu) -> Self:
        """For sending."""
        return cls(
            id=gpu.id,
            index=gpu.index,
            model=gpu.model,
            memory_gib=gpu.memory_gib,
            numa=gpu.numa,
            healthy=gpu.healthy,
            health_reason=gpu.health_reason,
            virtual=gpu.virtual,
            mig=gpu.mig,
        )

    def to_domain(self) -> Gpu:
        """As received."""
        return Gpu(
            id=GpuId(self.id),
            index=self.index,
            model=self.model,
            memory_gib=self.memory_gib,
            numa=self.numa,
            healthy=self.healthy,
            health_reason=self.health_reason,
            virtual=self.virtual,
            mig=self.mig,
        )


class Inventory(Wire):
    """What a node is made of; sent whole with every heartbeat."""

    hostname: Label
    address: Label = ""
    machine_id: Label | None = None
    gpus: tuple[WireGpu, ...] = Field(default=(), max_length=1024)
    links_gbps: tuple[tuple[float, ...], ...] = Field(default=(), max_length=1024)
    parted: tuple[PartedGpu, ...] = Field(default=(), max_length=1024)
    cpus: float = Field(default=1, gt=0, le=65_536)
    memory_gib: float = Field(default=1, gt=0, le=1e6)
    architecture: Label = "x86_64"
    container_runtimes: tuple[Label, ...] = Field(default=(), max_length=8)
    block: Label = ""
    rack: Label = ""
    boot_id: Label = ""

    @model_validator(mode="after")
    def _links_are_between_the_gpus(self) -> Self:
        n = len(self.gpus)
        if self.links_gbps and len(self.links_gbps) != n:
            raise ValueError(f"links_gbps has {len(self.links_gbps)} rows, and there are {n} gpus")
        for gpu, row in zip(self.gpus, self.links_gbps, strict=False):
            if len(row) > n:
                raise ValueError(f"link between {gpu.id} and device {n}: there is no device {n}")
            if len(row) < n:
                raise ValueError(f"link between {gpu.id} and {self.gpus[len(row)].id}: is missing")
            for other, link in zip(self.gpus, row, strict=True):
                if link < 0:
                    raise ValueError(f"link between {gpu.id} and {other.id}: {link:g} is negative")
        if len({gpu.id for gpu in self.gpus}) != n:
            raise ValueError("two gpus have one id")
        return self

    def to_report(
        self,
        *,
        node_id: NodeId,
        pool: PoolName,
        claim_id: ClaimId | None,
        heard_at: float,
        run_lease_s: float,
        notice_at: float | None = None,
        rebalance_at: float | None = None,
        closing: bool = False,
        left: bool = False,
    ) -> NodeReport:
        """The node as its engine sees it. Who it is comes from its token, never from itself."""
        return NodeReport(
            id=node_id,
            pool=pool,
            claim_id=claim_id,
            heard_at=heard_at,
            run_lease_s=run_lease_s,
            notice_at=notice_at,
            rebalance_at=rebalance_at,
            closing=closing,
            left=left,
            hostname=self.hostname,
            address=self.address,
            machine_id=MachineId(self.machine_id) if self.machine_id else None,
            gpus=tuple(gpu.to_domain() for gpu in self.gpus),
            links_gbps=self.links_gbps,
            parted=self.parted,
            cpus=self.cpus,
            memory_gib=self.memory_gib,
            architecture=self.architecture,
            container_runtimes=self.container_runtimes,
            block=self.block,
            rack=self.rack,
            boot_id=self.boot_id,
        )


class JoinRequest(Wire):
    """A machine asks to become a node. The same request again gets the same answer."""

    node_id: Identifier = Field(description="Proposed by the node; the machine of a claim is given")
    pool: Identifier
    claim_id: Identifier | None = None
    token_sha256: Sha256 = Field(description="Of the node's own token, which stays with it.")
    inventory: Inventory


class JoinAnswer(Wire):
    """The node is known now."""

    node_id: Identifier
    pool: Identifier
    claim_id: Identifier | None = None
    run_lease_s: Span
    server_at: Instant


class WireProgress(Wire):
    """As :class:`~hybrid.domain.job.Progress`."""

    step: int = Field(ge=0, le=2**62)
    total: int = Field(ge=0, le=2**62)
    at: Instant

    @classmethod
    def of(cls, progress: Progress) -> Self:
        """For sending."""
        return cls(step=progress.step, total=progress.total, at=progress.at)

    def to_domain(self) -> Progress:
        """As received."""
        return Progress(step=self.step, total=self.total, at=self.at)


class WireCheckpoint(Wire):
    """As :class:`~hybrid.domain.job.Checkpoint`; what only the server knows is left out."""

    seq: int = Field(ge=0, le=2**62)
    step: int = Field(ge=0, le=2**62)
    committed_at: Instant
    size_bytes: int = Field(ge=0, le=2**62)
    commit_s: Span

    def to_domain(self) -> Checkpoint:
        """As received."""
        return Checkpoint(
            seq=self.seq,
            step=self.step,
            committed_at=self.committed_at,
            size_bytes=self.size_bytes,
            commit_s=self.commit_s,
        )


class WireRank(Wire):
    """As :class:`~hybrid.ports.engine.RankReport`: one rank of a run on this node."""

    run_id: Identifier
    rank: int = Field(ge=0, le=4095)
    phase: RankPhase
    started_at: Instant | None = None
    ended_at: Instant | None = None
    exit_code: int | None = Field(default=None, ge=-255, le=255)
    cause: StopCause | None = None
    stop_s: Span = 0.0
    problem: Words = ""
    tail: Annotated[str, StringConstraints(max_length=4 * TAIL_BYTES)] = ""
    progress: WireProgress | None = None
    checkpoint: WireCheckpoint | None = None
    checkpoint_problem: Words = ""
    first_step: int | None = Field(default=None, ge=0, le=2**62)
    outputs: Digest | Literal[""] = ""

    def to_report(self, node_id: NodeId) -> RankReport:
        """As received from ``node_id``."""
        progress, saved = self.progress, self.checkpoint
        return RankReport(
            run_id=RunId(self.run_id),
            rank=self.rank,
            node_id=node_id,
            phase=self.phase,
            started_at=self.started_at,
            ended_at=self.ended_at,
            exit_code=self.exit_code,
            cause=self.cause,
            stop_s=self.stop_s,
            problem=self.problem,
            tail=self.tail,
            progress=None if progress is None else progress.to_domain(),
            checkpoint=None if saved is None else saved.to_domain(),
            checkpoint_problem=self.checkpoint_problem,
            first_step=self.first_step,
            outputs=self.outputs,
        )


class WireReading(Wire):
    """As :class:`~hybrid.ports.gpus.GpuReading`."""

    gpu_id: Label
    utilization: float | None = Field(default=None, ge=0, le=1)
    memory_used_gib: float | None = Field(default=None, ge=0, le=1e6)
    temperature_c: float | None = Field(default=None, ge=-273, le=1000)
    power_w: float | None = Field(default=None, ge=0, le=1e6)
    power_limit_w: float | None = Field(default=None, ge=0, le=1e6)
    ecc_uncorrected: int | None = Field(default=None, ge=0, le=2**62)

    @classmethod
    def of(cls, reading: GpuReading) -> Self:
        """For sending."""
        return cls(
            gpu_id=reading.gpu_id,
            utilization=reading.utilization,
            memory_used_gib=reading.memory_used_gib,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
            power_limit_w=reading.power_limit_w,
            ecc_uncorrected=reading.ecc_uncorrected,
        )

    def to_reading(self) -> GpuReading:
        """As received."""
        return GpuReading(
            gpu_id=GpuId(self.gpu_id),
            utilization=self.utilization,
            memory_used_gib=self.memory_used_gib,
            temperature_c=self.temperature_c,
            power_w=self.power_w,
            power_limit_w=self.power_limit_w,
            ecc_uncorrected=self.ecc_uncorrected,
        )


class HeartbeatRequest(Wire):
    """All that a node has to say.

    ``run_lease_s`` is the run lease it goes by (what the last answer granted): the server counts
    with the longer of that and its own, so a shortened setting is safe at once.
    """

    sent_boottime_s: Span
    run_lease_s: Span = 0.0
    inventory: Inventory
    ranks: tuple[WireRank, ...] = Field(default=(), max_length=4096)
    telemetry: tuple[WireReading, ...] = Field(default=(), max_length=1024)
    notice_at: Instant | None = None
    rebalance_at: Instant | None = None
    closing: bool = False


# --- what the server says ---------------------------------------------------------------------


class HeartbeatAnswer(Wire):
    """The heartbeat has been kept.

    ``acknowledged`` runs may be forgotten. The run lease of every other run ends ``run_lease_s``
    after ``sent_boottime_s`` (the node's own clock, echoed). ``lease_remaining_s`` is for how long
    the machine is paid; None on an owned one.
    """

    sent_boottime_s: Span
    acknowledged: tuple[Identifier, ...] = ()
    run_lease_s: Span
    lease_remaining_s: float | None = None
    epoch: int
    server_at: Instant


class StopOrder(Wire):
    """Stop a run: its signal, ``grace_s``, SIGKILL."""

    cause: StopCause
    grace_s: Span


class Resume(Wire):
    """Which checkpoint to start from. In a gang the step decides: every rank numbers its own."""

    seq: int = Field(ge=0)
    step: int = Field(ge=0)


class RunDocument(Wire):
    """One rank's order, as the agent acts on it."""

    run_id: Identifier
    job_id: Identifier
    attempt: int = Field(ge=1)
    rank: int = Field(ge=0, le=4095)
    nodes: int = Field(ge=1, le=4096)
    spec: JobSpec
    gpu_ids: tuple[Label, ...] = ()
    share: float = Field(default=1.0, gt=0, le=1)
    gpu_memory_gib: float | None = Field(default=None, ge=0, le=1e6)
    replicas: int = Field(default=1, ge=1)
    cpus: float = Field(default=1.0, gt=0)
    memory_gib: float = Field(default=1.0, ge=0)
    gpu_model: Label = ""
    resume: Resume | None = None
    checkpoint_interval_s: Span = Field(default=0.0, description="How often it saves; 0: never.")
    master_addr: Label = ""
    master_port: int = Field(ge=1024, le=65_535)
    checkpoint_url: Annotated[str, StringConstraints(max_length=2048)] = ""
    assigned_at: float = Field(default=0.0, description="When it was placed, by the server.")

    @property
    def job(self) -> JobId:
        """The job's id, typed."""
        return JobId(self.job_id)


class WireOrder(Wire):
    """An order and whether it is to stop."""

    run_id: Identifier
    rank: int = Field(ge=0, le=4095)
    epoch: int
    document: RunDocument
    stop: StopOrder | None = None
    begin: bool = Field(
        default=True, description="False: too old to be begun by a node that has not begun it."
    )


class WorkAnswer(Wire):
    """All a node should be doing. A live run that is not in it must not go on.

    Answers of an epoch below one already seen come from a server that no longer leads.
    """

    revision: int
    epoch: int
    orders: tuple[WireOrder, ...] = ()
    acknowledged: tuple[Identifier, ...] = ()
    cordoned: bool = False
    lease_remaining_s: float | None = None


class LogAnswer(Wire):
    """``offset`` is where the server's copy ends now: send from there."""

    offset: int = Field(ge=0)
