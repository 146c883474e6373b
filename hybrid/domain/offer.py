"""Something that could be had now."""

from __future__ import annotations

from dataclasses import dataclass

from hybrid.domain.ids import OfferId, PoolName
from hybrid.domain.job_spec import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A provider's limit that machines of several offers share, and what is in use of it.

    ``limit``, ``used`` and ``per_machine`` count ``unit`` (vCPU, GPU); ``name`` is what the
    provider calls the limit and where it holds; ``at`` is when it was read.
    """

    limit: int
    used: int
    per_machine: int
    unit: str
    name: str
    at: float

    @property
    def machines_left(self) -> int:
        """Machines that may still be asked for."""
        return max(0, self.limit - self.used) // self.per_machine

    def words(self, used: int | None = None) -> str:
        """``8 of 8 vCPU for G and VT spot in us-east-1``."""
        return f"{self.used if used is None else used} of {self.limit} {self.unit} for {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One machine type of a burst pool in one zone and market, with its price now.

    ``price_ceiling_micros_per_hour`` is the most an hour can come to cost while a machine of this
    offer is held. ``quota_left`` counts machines, None when unknown.
    """

    id: OfferId
    pool: PoolName
    provider: str
    region: str
    zone: str
    machine_type: str
    market: Market
    gpus: int
    gpu_model: str
    gpu_memory_gib: float
    links_gbps: tuple[tuple[float, ...], ...]
    cpus: float
    memory_gib: float
    architecture: str
    price_micros_per_hour: int
    price_ceiling_micros_per_hour: int
    priced_at: float
    price_source: str
    interruptions_per_hour: float = 0.0
    price_pressure: float = 1.0
    """By how much its spot price says that machines of it are sought: what multiplies the rate of
    interruptions (:func:`~hybrid.estimation.interruptions.price_pressure`)."""
    notice_s: float = 0.0
    boot_s: float = 120.0
    price_follows_market: bool = False
    """Whether a machine that is held pays the price of the moment, not that of its launch."""
    quota_left: int | None = None
    quota_family: str = ""
    """The provider's name of the quota that such a machine counts against; empty: one of its own
    for each machine type."""
    quota: Quota | None = None
    """The quota itself, where the provider tells; ``quota_left`` is what it leaves."""
    devices: tuple[tuple[str, float], ...] = ()
    """Model and memory in GiB of each GPU of a machine whose GPUs differ; empty where all are of
    ``gpu_model``."""

    @property
    def models(self) -> tuple[str, ...]:
        """The model of each GPU."""
        return tuple(m for m, _ in self.devices) or (self.gpu_model,) * self.gpus

    @property
    def memories_gib(self) -> tuple[float, ...]:
        """The memory of each GPU."""
        return tuple(gib for _, gib in self.devices) or (self.gpu_memory_gib,) * self.gpus


def offer_id(pool: PoolName, zone: str, machine_type: str, market: Market) -> OfferId:
    """The name of an offer, the same in every listing."""
    return OfferId(f"{pool}/{zone}/{machine_type}/{market}")
