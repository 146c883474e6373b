"""What the control API shows: shared by the server and its client."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from providers.sandbox.config import CapacityRule, Document, FaultRule, Market, QuotaRule

LIVE_STATES = frozenset({"pending", "running", "shutting-down", "stopping", "stopped"})


class UnitView(Document):
    """One service of a machine. ``pid`` None: not running now."""

    name: str
    pid: int | None
    restarts: int
    state: str


class InstanceView(Document):
    """One instance as the cloud knows it; instants by the cloud's clock.

    ``accrued_usd`` is what the bill would say now. ``processes`` counts the live processes of the
    machine, of whatever session or parent. ``interruption_at`` is set once a notice is out.
    """

    instance_id: str
    machine_type: str
    zone: str
    market: Market
    state: str
    token: str
    launched_at: float
    booted_at: float | None
    ended_at: float | None
    end_code: str
    interruption_at: float | None
    frozen: bool
    units: tuple[UnitView, ...]
    processes: int
    accrued_usd: Decimal
    tags: dict[str, str]


class FaultView(Document):
    """An armed fault: ``left`` None until removed, ``hits`` so far."""

    fault_id: str
    rule: FaultRule
    left: int | None
    hits: int


class PriceStepView(Document):
    start_at: float
    seconds: float
    usd_per_hour: Decimal


class BillLine(Document):
    """What one instance owes. ``waived``: the cloud took it back within its first hour."""

    instance_id: str
    machine_type: str
    zone: str
    market: Market
    launched_at: float
    ended_at: float | None
    seconds: float
    billed_seconds: int
    steps: tuple[PriceStepView, ...]
    waived: bool
    usd: Decimal


class Bill(Document):
    """Every instance that ever ran, and the sum."""

    as_of: float
    lines: tuple[BillLine, ...]
    total_usd: Decimal


class SandboxState(Document):
    """The whole cloud at one moment. ``subnets``: zone → subnet id; ``image_id``: a node image."""

    region: str
    account_id: str
    started_at: float
    now: float
    spot_notice_s: float
    subnets: dict[str, str]
    image_id: str
    instances: tuple[InstanceView, ...]
    capacities: tuple[CapacityRule, ...]
    quotas: tuple[QuotaRule, ...]
    faults: tuple[FaultView, ...]
    calls: dict[str, int] = Field(default_factory=dict)

    @property
    def live(self) -> tuple[InstanceView, ...]:
        """Instances that are not gone, stopped ones included."""
        return tuple(view for view in self.instances if view.state in LIVE_STATES)


class Endpoint(Document):
    """What a sandbox process writes to ``endpoint.json`` once it listens."""

    url: str
    port: int
    pid: int
    pid_started_ticks: int
    started_at: float
    region: str
    account_id: str
