"""What a user asks for. One definition, used as it is from the API to the planner."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from hybrid.domain.quantities import Gib, GpuGib, Interval, Seconds


class Written(BaseModel):
    """Base of everything people write: frozen, and an unknown field is refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$", max_length=63)
]
"""Lower case letters, digits, ``.``, ``_`` and ``-``: safe in paths, labels and cloud tags."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Profile(StrEnum):
    """What bounds the job's speed, for guessing it on hardware it has not run on."""

    COMPUTE = "compute"
    MEMORY = "memory"
    BALANCED = "balanced"
    LATENCY = "latency"


class LinkClass(StrEnum):
    """The slowest link between two of the job's GPUs that it accepts."""

    ANY = "any"
    PCIE = "pcie"
    NVLINK = "nvlink"


class Market(StrEnum):
    """How a cloud sells a machine."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


class BurstRule(StrEnum):
    """Whether the job may leave the premises."""

    ALLOWED = "allowed"
    NEVER = "never"


class GpuRequest(Written):
    """Which devices will do. Empty means any GPU."""

    models: tuple[str, ...] = Field(
        default=(),
        max_length=32,
        description="Acceptable GPU models by any name they are known under; empty: any.",
        examples=[["a100-80gb", "h100"]],
    )
    memory: GpuGib | None = Field(
        default=None,
        description="Least usable memory of each GPU; 48GB is 48GiB, as on its box.",
    )
    min_compute_capability: Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")] | None = Field(
        default=None, description="Least CUDA compute capability.", examples=["8.0"]
    )
    link: LinkClass = Field(
        default=LinkClass.ANY, description="Slowest acceptable link between the job's GPUs."
    )
    share: float = Field(
        default=1.0, gt=0, le=1, description="Fraction of one GPU; below 1 only with gpus: 1."
    )
    slice_memory: GpuGib | None = Field(
        default=None,
        gt=0,
        description="So much of the memory of one GPU, beside other runs; of its computing the same"
        " part, or `share` if that is more. Only with gpus: 1.",
        examples=["10GiB"],
    )
    time_slicing: bool = Field(
        default=False,
        description="A replica of a time-sliced GPU will do, whatever the share; so it does for a"
        " share that is no more than a replica. Only with gpus: 1.",
    )
    mig_profile: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        default=None, description="A MIG slice of one GPU.", examples=["1g.10gb"]
    )

    @property
    def shared(self) -> bool:
        """Whether a part of a GPU will do; a MIG instance is held whole."""
        if self.mig_profile is not None:
            return False
        return self.share < 1 or self.slice_memory is not None or self.time_slicing

    def share_of(self, memory_gib: float) -> float:
        """The part of a GPU with so much memory that is asked for, at most all of it."""
        if self.mig_profile is not None:
            return 1.0
        if self.slice_memory is None:
            return self.share
        of_memory = self.slice_memory / memory_gib if memory_gib > 0 else 1.0
        return min(max(of_memory, self.share if self.share < 1 else 0.0), 1.0)


class Resources(Written):
    """A gang of ``nodes`` machines with ``gpus`` devices each."""

    nodes: int = Field(default=1, ge=1, le=4096, description="Machines that run it together.")
    gpus: int = Field(default=1, ge=0, le=64, description="GPUs on each node; 0 for a CPU job.")
    gpu: GpuRequest = Field(default=GpuRequest(), description="Which devices will do.")
    cpus: float = Field(default=1, gt=0, le=4096, description="CPU cores on each node.")
    memory: Gib = Field(default=1, description="Memory on each node.")
    architecture: Literal["x86_64", "aarch64"] | None = Field(
        default=None, description="Of the processor; either if omitted."
    )

    @model_validator(mode="after")
    def _a_share_is_of_one_gpu(self) -> Self:
        if self.gpu.share < 1 and self.gpus != 1:
            raise ValueError("gpu.share below 1 is a share of one GPU: set gpus to 1")
        if self.gpu.slice_memory is not None and self.gpus != 1:
            raise ValueError("gpu.slice_memory is a part of one GPU: set gpus to 1")
        if self.gpu.time_slicing and self.gpus != 1:
            raise ValueError("gpu.time_slicing is for a replica of one GPU: set gpus to 1")
        if self.gpu.time_slicing and self.gpu.mig_profile:
            raise ValueError("MIG instances are not time-sliced: leave gpu.time_slicing out")
        if self.gpu.mig_profile and self.gpus != 1:
            raise ValueError("gpu.mig_profile is a slice of one GPU: set gpus to 1")
        if self.gpu.mig_profile and self.gpu.slice_memory is not None:
            raise ValueError("gpu.mig_profile says how much memory: leave gpu.slice_memory out")
        return self

    @property
    def total_gpus(self) -> int:
        """GPUs over the whole gang."""
        return self.nodes * self.gpus


class Checkpointing(Written):
    """How the job saves its work. A job without it restarts from the beginning."""

    enabled: bool = Field(
        default=False, description="The job saves its work and goes on from what it saved."
    )
    interval: Interval = Field(
        default=600,
        description=(
            "How often the job saves by itself; auto: worked out from what a save takes and how"
            " often its machine is taken, and told in HYBRID_CHECKPOINT_INTERVAL_S."
        ),
    )
    size: Gib = Field(default=1, description="Expected size, until one has been measured.")
    keep: int = Field(default=3, ge=1, le=100, description="Checkpoints kept.")
    keep_for: Seconds | None = Field(
        default=None, gt=0, description="Older ones go too, but never the last; none: no limit."
    )
    portable: bool = Field(
        default=True, description="A checkpoint from one GPU model restores on another."
    )

    def interval_or(self, auto_s: float) -> float:
        """The interval in seconds as it is written, ``auto_s`` where it is to be worked out."""
        return auto_s if isinstance(self.interval, str) else self.interval


class Stopping(Written):
    """How the job is asked to stop."""

    signal: Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"] = Field(
        default="SIGTERM", description="What asks the job to save and end."
    )
    grace: Seconds = Field(default=30, le=3600, description="Between the signal and SIGKILL.")


class Retries(Written):
    """What happens after a failure that is the job's own."""

    max: int = Field(default=0, ge=0, le=100, description="How often it is tried again.")
    backoff: Seconds = Field(default=10, description="Before the first retry; doubles each time.")
    on_spot_restart: bool = Field(
        default=False,
        description="Accept spot machines although the job cannot checkpoint.",
    )


class Where(Written):
    """Where the job may run. Empty lists mean anywhere."""

    pools: tuple[Name, ...] = Field(default=(), max_length=64, description="Only these pools.")
    providers: tuple[Name, ...] = Field(
        default=(), max_length=16, description="Of clouds, only these providers."
    )
    regions: tuple[Name, ...] = Field(
        default=(), max_length=64, description="Of clouds, only these regions."
    )
    burst: BurstRule = Field(
        default=BurstRule.ALLOWED, description="Whether it may leave the premises."
    )
    markets: tuple[Market, ...] = Field(
        default=(), max_length=2, description="Of clouds, only these markets."
    )


class Data(Written):
    """What must be brought to the job before it can begin, and taken back after."""

    input: Gib = Field(default=0, description="Bytes to bring to a machine off the premises.")
    output: Gib = Field(default=0, description="Bytes to bring back (egress).")


class SecretRef(Written):
    """Where a node finds a secret. The value is never stored or shown."""

    file: Annotated[str, StringConstraints(pattern=r"^/", max_length=512)] | None = Field(
        default=None, description="An absolute path on the node."
    )
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="A variable of the node's agent."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("a secret names either file or env")
        return self


class JobSpec(Written):
    """A job as a user writes it.

    ``expected_runtime`` and ``speeds`` are relative to the reference GPU of the hardware
    catalogue unless the job names exactly one model; ``walltime`` is a hard limit on any one run.
    """

    name: Name = Field(default="job", description="For people; it need not be unique.")
    team: Name | None = Field(default=None, description="Who pays; the token's team if omitted.")
    priority: Name = Field(default="normal", description="A priority class of the policy.")
    command: tuple[Annotated[str, StringConstraints(max_length=32_768)], ...] = Field(
        min_length=1,
        max_length=1024,
        description="The program and its arguments, as a list. No shell is involved.",
        examples=[["python", "train.py"]],
    )
    image: Annotated[str, StringConstraints(pattern=r"^[^\s-][^\s]*$", max_length=512)] | None = (
        Field(default=None, description="Container image; without it the job is a process.")
    )
    workdir: str | None = Field(
        default=None, description="Digest of an uploaded folder: sha256:<64 hex digits>."
    )
    outputs: tuple[Annotated[str, StringConstraints(max_length=512)], ...] = Field(
        default=(), max_length=64, description="Paths under the work folder that come back."
    )
    env: dict[str, Annotated[str, StringConstraints(max_length=32_768)]] = Field(
        default_factory=dict, max_length=256, description="Variables for the process."
    )
    secrets: dict[str, SecretRef] = Field(
        default_factory=dict,
        max_length=64,
        description="Variables whose values the node looks up; they are never stored or shown.",
    )
    resources: Resources = Field(default=Resources(), description="What it needs to run.")
    where: Where = Field(default=Where(), description="Where it may run.")
    profile: Profile = Field(
        default=Profile.BALANCED,
        description="What bounds its speed: a first guess for GPUs it has not run on.",
    )
    family: Name | None = Field(
        default=None, description="Jobs of one family share what was learned of their speed."
    )
    speeds: dict[str, Annotated[float, Field(gt=0, le=1e4)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Measured speed per GPU model, relative to each other.",
    )
    expected_runtime: Seconds | None = Field(
        default=None, gt=0, description="Of the whole job; waits and costs are predicted from it."
    )
    walltime: Seconds = Field(default=86_400, gt=0, description="Hard limit on one run.")
    deadline: AwareDatetime | None = Field(
        default=None,
        description="Options that would miss it are ruled out.",
        examples=["2031-05-02T08:00:00Z"],
    )
    value_per_hour: Decimal | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="What an hour's delay costs in USD; the priority class's value if omitted.",
    )
    max_cost: Decimal | None = Field(
        default=None, gt=0, le=10_000_000, description="Most this job may cost in USD, in clouds."
    )
    checkpoint: Checkpointing = Field(default=Checkpointing(), description="How it saves its work.")
    stop: Stopping = Field(default=Stopping(), description="How it is asked to stop.")
    retries: Retries = Field(default=Retries(), description="What happens when it fails.")
    data: Data = Field(default=Data(), description="What travels with it to a cloud and back.")

    @field_validator("command", mode="before")
    @classmethod
    def _no_shell_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            words = value.split()
            raise ValueError(
                f"command is a list, not text: write {words!r}, or "
                f'["bash", "-c", {value!r}] if a shell is what you mean'
            )
        return value

    @field_validator("env", "secrets")
    @classmethod
    def _names_are_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _ENV_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name for an environment variable")
            if name.startswith("HYBRID_"):
                raise ValueError(f"{name}: names that begin with HYBRID_ are set by the system")
        return value

    @field_validator("workdir")
    @classmethod
    def _workdir_is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not _DIGEST.fullmatch(value):
            raise ValueError("workdir is the digest of an uploaded folder: sha256:<64 hex digits>")
        return value

    @field_validator("outputs")
    @classmethod
    def _outputs_stay_inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"output {path!r} leaves the work folder")
        return value

    @model_validator(mode="after")
    def _runtime_within_walltime(self) -> Self:
        if self.expected_runtime is not None and self.expected_runtime > self.walltime:
            raise ValueError("expected_runtime is longer than walltime: it would be cut off")
        both = set(self.env) & set(self.secrets)
        if both:
            raise ValueError(f"{min(both)} is both in env and in secrets")
        return self

    @property
    def deadline_at(self) -> float | None:
        """The deadline as an instant."""
        return _instant(self.deadline)


def _instant(when: datetime | None) -> float | None:
    return None if when is None else when.timestamp()
