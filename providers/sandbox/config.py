"""What a sandbox cloud looks like: the document that declares it.

Every duration is in seconds, every price in USD per hour. Everything is optional: the default cloud
has three zones, sells the whole catalogue without limit, and starts machines at once.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from providers.sandbox.catalogue import DEFAULT_SPOT_SHARE, ON_DEMAND_USD_PER_HOUR


class Market(StrEnum):
    """How a machine is bought."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


class Document(BaseModel):
    """A frozen document; a field nobody knows is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Usd = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class CapacityRule(Document):
    """At most ``machines`` of what matches may run at once; None as a field matches anything."""

    zone: str | None = None
    machine_type: str | None = None
    market: Market | None = None
    machines: int = Field(ge=0)


class QuotaRule(Document):
    """A vCPU quota. ``group`` is EC2's: ``G and VT``, ``P``, ``Standard``, ``Inf`` or ``Trn``."""

    group: str
    market: Market
    vcpus: int = Field(ge=0)


class SpotPrice(Document):
    """From ``at_s`` (seconds after the cloud's start; may be negative) this price holds."""

    zone: str
    machine_type: str
    at_s: float = Field(default=0.0, allow_inf_nan=False)
    usd_per_hour: Usd


class FaultRule(Document):
    """One scripted misfortune.

    ``action`` is an EC2 action (``RunInstances``), ``service:METHOD`` for others (``s3:PUT``), a
    JSON target (``AWSPriceListService.GetProducts``) or ``*``. ``match`` compares request
    parameters by their wire names (``InstanceType``), and for launches also ``zone``,
    ``machine_type`` and ``market`` as resolved from the launch template.

    Without a ``code`` the call is only delayed. ``execute_then_lose`` does the deed and then drops
    the connection. ``times`` None means until removed. ``probability`` is drawn from the cloud's
    seeded generator.
    """

    action: str = Field(min_length=1, max_length=128)
    match: dict[str, str] = Field(default_factory=dict)
    code: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.:_]{1,128}$")
    message: str = Field(default="scripted by the sandbox", max_length=512)
    http_status: int | None = Field(default=None, ge=400, le=599)
    times: int | None = Field(default=1, ge=1)
    delay_s: float = Field(default=0.0, ge=0, le=600)
    execute_then_lose: bool = False
    probability: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _says_one_thing(self) -> FaultRule:
        if self.execute_then_lose and self.code is not None:
            raise ValueError("a lost answer carries no error code: set one or the other")
        return self


class SandboxConfig(Document):
    """The declared cloud.

    - ``image_id``: the one image that there is, and that every machine boots
    - ``pending_s``: from the call to ``running``; ``boot_s``: from there to the first process
    - ``shutting_down_s``: at least this long before ``terminated``
    - ``listing_lag_s``: how late a new instance shows in listings
    - ``spot_notice_s``: between the notice and the end of a spot machine (AWS gives about 120; a
      smaller value is a scaled-down cloud, and the state says so)
    - ``clock_skew_s``: the cloud's clock against this machine's
    - ``waive_interrupted_first_hour``: bill nothing for a spot machine that the cloud takes back
      within its first hour
    - ``machine_limit``: what this host carries at once; beyond it there is no capacity
    - ``hybrid_command``: what ``/opt/hybrid/bin/hybrid`` runs on a machine (default: this Python's
      ``-m hybrid``); ``machine_environment``: further variables of its processes;
      ``virtual_gpus``: machine type to ``model:count:links``, where the catalogue does not do
    """

    region: str = "us-east-1"
    zones: tuple[str, ...] = ("us-east-1a", "us-east-1b", "us-east-1c")
    image_id: str = Field(default="ami-00000000000000001", pattern=r"^ami-[0-9a-f]{8,17}$")
    machine_types: tuple[str, ...] = tuple(ON_DEMAND_USD_PER_HOUR)
    on_demand_usd_per_hour: dict[str, Usd] = Field(default_factory=dict)
    spot_share: Usd = DEFAULT_SPOT_SHARE
    spot_prices: tuple[SpotPrice, ...] = ()
    capacities: tuple[CapacityRule, ...] = ()
    quotas: tuple[QuotaRule, ...] = ()
    faults: tuple[FaultRule, ...] = ()
    machines: bool = True
    machine_limit: int = Field(default=32, ge=1, le=256)
    machine_environment: dict[str, str] = Field(default_factory=dict)
    virtual_gpus: dict[str, str] = Field(default_factory=dict)
    hybrid_command: tuple[str, ...] = ()
    boot_s: float = Field(default=0.0, ge=0)
    pending_s: float = Field(default=0.0, ge=0)
    shutting_down_s: float = Field(default=0.0, ge=0)
    listing_lag_s: float = Field(default=0.0, ge=0)
    terminated_visible_s: float = Field(default=3600.0, ge=0)
    spot_notice_s: float = Field(default=120.0, ge=0)
    token_validity_s: float = Field(default=86_400.0, gt=0)
    clock_skew_s: float = Field(default=0.0, allow_inf_nan=False)
    waive_interrupted_first_hour: bool = False
    seed: int = 0

    @field_validator("zones", "machine_types")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("needs at least one entry, each of them once")
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> SandboxConfig:
        for zone in self.zones:
            if not zone.startswith(self.region):
                raise ValueError(f"zone {zone} is not in region {self.region}")
        for machine_type in self.machine_types:
            if self.price_of(machine_type) is None:
                raise ValueError(
                    f"machine type {machine_type} has no price: "
                    "give one under on_demand_usd_per_hour"
                )
        for price in self.spot_prices:
            if price.zone not in self.zones or price.machine_type not in self.machine_types:
                raise ValueError(
                    f"a spot price names {price.machine_type} in {price.zone}, which is not sold"
                )
        return self

    def price_of(self, machine_type: str) -> Decimal | None:
        """The list price in USD per hour."""
        return self.on_demand_usd_per_hour.get(
            machine_type, ON_DEMAND_USD_PER_HOUR.get(machine_type)
        )


def load_config(path: Path) -> SandboxConfig:
    """Read a YAML or JSON document. Raises ``OSError`` or ``ValueError`` with the reason."""
    text = path.read_text(encoding="utf-8")
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return SandboxConfig.model_validate(document or {})
