"""What a sandbox Compute Engine looks like: the document that declares it. Durations in seconds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator, model_validator

from providers.sandbox.config import CapacityRule, Document, FaultRule, Usd


class GceConfig(Document):
    """The declared cloud. By default it sells everything without limit, at once.

    - ``image``: the one image that there is; ``templates``: instance templates by name, each as the
      API's ``properties``
    - ``reservations``: name → machines that may be had from it
    - ``quotas``: metric (``NVIDIA_L4_GPUS``, ``PREEMPTIBLE_NVIDIA_L4_GPUS``,
      ``GPUS_ALL_REGIONS``) → GPUs; unlimited where none is set
    - ``operation_s``: how long an operation takes; ``listing_lag_s``: how late a new instance shows
    - ``notice_s``: between a preemption and the end of the machine (Compute Engine gives 30)
    - ``request_id_validity_s``: for how long a ``requestId`` is remembered
    - ``faults``: scripted misfortunes; an action is the API's method (``instances.insert``). A code
      in capital letters is the error of the operation, any other the reason of an HTTP error.
    - ``permissions``: what ``testIamPermissions`` grants; everything where None
    """

    project: str = Field(default="sandbox", pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")
    region: str = "us-central1"
    zones: tuple[str, ...] = ("us-central1-a", "us-central1-b", "us-central1-c")
    image: str = "projects/sandbox/global/images/hybrid-node"
    templates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    reservations: dict[str, int] = Field(default_factory=dict)
    spot_share: Usd = Decimal("0.4")
    capacities: tuple[CapacityRule, ...] = ()
    quotas: dict[str, int] = Field(default_factory=dict)
    faults: tuple[FaultRule, ...] = ()
    permissions: frozenset[str] | None = None
    operation_s: float = Field(default=0.0, ge=0)
    listing_lag_s: float = Field(default=0.0, ge=0)
    notice_s: float = Field(default=30.0, ge=0)
    request_id_validity_s: float = Field(default=3_600.0, gt=0)
    clock_skew_s: float = Field(default=0.0, allow_inf_nan=False)
    seed: int = 0

    @field_validator("zones")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("needs at least one entry, each of them once")
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> GceConfig:
        for zone in self.zones:
            if not zone.startswith(f"{self.region}-"):
                raise ValueError(f"zone {zone} is not in region {self.region}")
        return self


def load_config(path: Path) -> GceConfig:
    """Read a YAML or JSON document. Raises ``OSError`` or ``ValueError`` with the reason."""
    text = path.read_text(encoding="utf-8")
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return GceConfig.model_validate(document or {})
