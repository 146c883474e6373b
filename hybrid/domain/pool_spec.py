"""Pools as a platform team writes them: owned machines, and templates of cloud machines."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from hybrid.domain.job_spec import Market, Name, Written
from hybrid.domain.quantities import Gib, Seconds

MachineType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,64}$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[\w .:/=+@-]*$", max_length=255)]


class LocalPool(Written):
    """Machines that are owned. They are never shut down."""

    kind: Literal["local"]
    name: Name
    engine: Name = "agent"
    rate_per_gpu_hour: Decimal = Field(
        default=Decimal("0.10"),
        ge=0,
        le=1000,
        description="Energy and wear of one busy GPU in USD per hour; not what it could earn.",
    )
    description: str = Field(default="", max_length=1000)


class Zone(Written):
    """One zone of a region, and the subnet machines go into there."""

    name: Name
    subnet: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/_.-]{1,255}$")] | None = None


class LaunchTemplate(Written):
    """What machines are made from: usually one of the outputs of the Terraform module."""

    id: Annotated[str, StringConstraints(max_length=255)] | None = None
    version: Annotated[str, StringConstraints(pattern=r"^(\d{1,10}|\$Latest|\$Default)$")] = (
        "$Default"
    )
    image: Annotated[str, StringConstraints(max_length=255)] | None = None
    instance_profile: Annotated[str, StringConstraints(max_length=255)] | None = None
    security_groups: tuple[str, ...] = Field(default=(), max_length=16)

    @model_validator(mode="after")
    def _something_to_start_from(self) -> Self:
        if self.id is None and self.image is None:
            raise ValueError("a template names a launch template id or an image")
        return self


class Ceilings(Written):
    """Limits that hold whatever budgets and policies say."""

    machines: int = Field(ge=0, le=10_000)
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

    duration: Seconds = Field(default=1800, ge=30, le=86_400)
    end_tail: Seconds = Field(
        default=120, description="Paid time between the decision to end a machine and its end."
    )


class BurstPool(Written):
    """A template of cloud machines with ceilings."""

    kind: Literal["burst"]
    name: Name
    engine: Name = "agent"
    provider: Name
    region: Name
    zones: tuple[Zone, ...] = Field(min_length=1, max_length=32)
    template: LaunchTemplate
    machine_types: tuple[MachineType, ...] = Field(min_length=1, max_length=64)
    markets: tuple[Market, ...] = Field(default=(Market.ON_DEMAND,), min_length=1, max_length=2)
    ceilings: Ceilings
    boot: Boot = Boot()
    lease: LeaseTerms = LeaseTerms()
    idle_after: Seconds = Field(default=300, description="An idle machine ends after this long.")
    notice: Seconds = Field(
        default=120, description="Warning before a spot machine is taken; its provider's word."
    )
    interruptions_per_hour: float = Field(
        default=0.05, ge=0, le=60, description="Of one spot machine, until measured."
    )
    disk: Gib = 100
    disk_usd_per_gib_hour: Decimal = Field(default=Decimal("0.00011"), ge=0, le=1)
    egress_usd_per_gib: Decimal = Field(default=Decimal("0.09"), ge=0, le=10)
    transfer_gib_per_s: float = Field(default=0.1, gt=0, le=1000, description="Bytes in and out.")
    tags: dict[Name, Tag] = Field(default_factory=dict, max_length=32)
    description: str = Field(default="", max_length=1000)

    @model_validator(mode="after")
    def _zones_once(self) -> Self:
        names = [zone.name for zone in self.zones]
        if len(set(names)) != len(names):
            raise ValueError("a zone is listed twice")
        return self


PoolSpec = Annotated[LocalPool | BurstPool, Field(discriminator="kind")]
"""A pool document: ``kind: local`` or ``kind: burst``."""

POOL_SPEC: TypeAdapter[LocalPool | BurstPool] = TypeAdapter(PoolSpec)
