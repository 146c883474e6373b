"""Pools as a platform team writes them: owned machines, and templates of cloud machines."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from hybrid.domain.job_spec import Market, Name, Written
from hybrid.domain.quantities import Gib, Seconds

MachineType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+-]{1,64}$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[\w .:/=+@-]*$", max_length=255)]


class TimeSlicing(Written):
    """GPUs whose time is shared by several runs."""

    replicas: int = Field(
        ge=2, le=48, description="Runs that each GPU takes at once; MIG instances are not divided."
    )


class LocalPool(Written):
    """Machines that are owned. They are never shut down."""

    kind: Literal["local"] = Field(description="Owned machines.")
    name: Name = Field(description="As jobs, nodes and prices refer to it.")
    engine: Name = Field(default="agent", description="What runs jobs on its nodes.")
    rate_per_gpu_hour: Decimal = Field(
        default=Decimal("0.10"),
        ge=0,
        le=1000,
        description="Energy and wear of one busy GPU in USD per hour; not what it could earn.",
    )
    chargeback_per_gpu_hour: Decimal | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="What a team is shown for a GPU held for an hour; rate_per_gpu_hour if omitted."
        " Nothing is decided by it.",
    )
    time_slicing: TimeSlicing | None = Field(
        default=None,
        description="GPUs are given out in replicas alone, to jobs that accept one; whole if"
        " omitted.",
    )
    description: str = Field(default="", max_length=1000, description="For people.")


class Zone(Written):
    """One zone of a region, and the subnet machines go into there."""

    name: Name = Field(description="The zone's name.", examples=["us-east-1a"])
    subnet: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/_.-]{1,255}$")] | None = Field(
        default=None, description="The zone's default subnet if omitted."
    )


class LaunchTemplate(Written):
    """What machines are made from: usually one of the outputs of the Terraform module."""

    id: Annotated[str, StringConstraints(max_length=255)] | None = Field(
        default=None, description="The cloud's own launch template."
    )
    version: Annotated[str, StringConstraints(pattern=r"^(\d{1,10}|\$Latest|\$Default)$")] = Field(
        default="$Default", description="Of the launch template."
    )
    image: Annotated[str, StringConstraints(max_length=255)] | None = Field(
        default=None, description="Image; goes before that of the launch template."
    )
    instance_profile: Annotated[str, StringConstraints(max_length=255)] | None = Field(
        default=None, description="The role (Google Cloud: service account) that machines have."
    )
    security_groups: tuple[str, ...] = Field(
        default=(),
        max_length=16,
        description="By id (Google Cloud: network tags); the launch template's if omitted.",
    )
    reservation: Annotated[str, StringConstraints(max_length=255)] | None = Field(
        default=None,
        description="Reserved capacity by id (Google Cloud: by name): on-demand machines come from"
        " it and no other.",
    )
    capacity_block: bool = Field(
        default=False, description="The reservation is an EC2 capacity block for ML."
    )

    @model_validator(mode="after")
    def _something_to_start_from(self) -> Self:
        if self.id is None and self.image is None:
            raise ValueError("a template names a launch template id or an image")
        if self.capacity_block and self.reservation is None:
            raise ValueError("a capacity block is named as the template's reservation")
        return self


class Ceilings(Written):
    """Limits that hold whatever budgets and policies say."""

    machines: int = Field(ge=0, le=10_000, description="At any one time.")
    usd_per_hour: Decimal = Field(ge=0, le=1_000_000, description="Of all its machines together.")


class Boot(Written):
    """How long machines take to join, and when to give up on one."""

    expected: Seconds = Field(default=120, description="Until boot times have been measured.")
    deadline: Seconds = Field(default=900, gt=0, description="A machine that has not joined ends.")
    install: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.,=<>!~\[\]_-]{1,200}$")] | None
    ) = Field(default=None, description="Package to install at boot; the image has it if omitted.")


class LeaseTerms(Written):
    """How far ahead a machine is paid for."""

    duration: Seconds = Field(
        default=1800, ge=30, le=86_400, description="Of one lease; renewed when half is used."
    )
    end_tail: Seconds = Field(
        default=120, description="Paid time between the decision to end a machine and its end."
    )


class Gangs(Written):
    """How the machines of one gang are placed and linked; for providers of kind `aws`."""

    placement_group: bool = Field(
        default=False,
        description="Each gang gets a cluster placement group of its own, removed after it.",
    )
    efa: bool = Field(
        default=False,
        description="Machines of a gang get all Elastic Fabric Adapters that their type has; the"
        " template's `security_groups` are named then.",
    )


class BurstPool(Written):
    """A template of cloud machines with ceilings."""

    kind: Literal["burst"] = Field(description="Machines of a cloud.")
    name: Name = Field(description="As jobs, nodes and prices refer to it.")
    engine: Name = Field(default="agent", description="What runs jobs on its nodes.")
    provider: Name = Field(description="One of the server's `providers`, by name.")
    region: Name = Field(description="The provider's region.")
    zones: tuple[Zone, ...] = Field(
        min_length=1, max_length=32, description="Where in the region machines may be."
    )
    template: LaunchTemplate = Field(description="What machines are made from.")
    machine_types: tuple[MachineType, ...] = Field(
        min_length=1,
        max_length=64,
        description="Allowed types; `n1-standard-8+2xnvidia-tesla-t4` attaches GPUs to one.",
        examples=[["g5.xlarge"]],
    )
    markets: tuple[Market, ...] = Field(
        default=(Market.ON_DEMAND,),
        min_length=1,
        max_length=2,
        description="How machines may be bought.",
    )
    ceilings: Ceilings = Field(description="Limits that hold whatever budgets say.")
    boot: Boot = Field(default=Boot(), description="How long machines take to join.")
    lease: LeaseTerms = Field(default=LeaseTerms(), description="How far ahead they are paid for.")
    gangs: Gangs = Field(default=Gangs(), description="How machines of one gang are linked.")
    idle_after: Seconds = Field(default=300, description="An idle machine ends after this long.")
    notice: Seconds = Field(
        default=120, description="Warning before a spot machine is taken; its provider's word."
    )
    free_if_interrupted_within: Seconds = Field(
        default=0,
        description="A spot machine that its cloud takes back sooner costs nothing; at EC2: 1h.",
    )
    interruptions_per_hour: float = Field(
        default=0.05, ge=0, le=60, description="Of one spot machine, until measured."
    )
    disk: Gib = Field(default=100, description="Of one machine, as its template has it.")
    disk_usd_per_gib_hour: Decimal = Field(
        default=Decimal("0.00011"), ge=0, le=1, description="What such a disk costs."
    )
    egress_usd_per_gib: Decimal = Field(
        default=Decimal("0.09"), ge=0, le=10, description="What data leaving the cloud costs."
    )
    transfer_gib_per_s: float = Field(default=0.1, gt=0, le=1000, description="Bytes in and out.")
    tags: dict[Name, Tag] = Field(
        default_factory=dict, max_length=32, description="Put on machines and disks besides ours."
    )
    description: str = Field(default="", max_length=1000, description="For people.")

    @model_validator(mode="after")
    def _zones_once(self) -> Self:
        names = [zone.name for zone in self.zones]
        if len(set(names)) != len(names):
            raise ValueError("a zone is listed twice")
        return self

    @model_validator(mode="after")
    def _groups_for_adapters(self) -> Self:
        # EC2 takes no security groups beside network interfaces, so a template cannot bring them
        if self.gangs.efa and not self.template.security_groups:
            raise ValueError("gangs.efa needs template.security_groups")
        return self


PoolSpec = Annotated[LocalPool | BurstPool, Field(discriminator="kind")]
"""A pool document: ``kind: local`` or ``kind: burst``."""

POOL_SPEC: TypeAdapter[LocalPool | BurstPool] = TypeAdapter(PoolSpec)
