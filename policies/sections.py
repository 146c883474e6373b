"""The sections of the policy document. Every field has a default: an empty section is valid."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hybrid.domain.event import EventKind
from hybrid.domain.job_spec import BurstRule, Market, Name, Written
from hybrid.domain.quantities import Seconds
from hybrid.ledger.periods import zone

Setting = bool | int | float | Annotated[str, StringConstraints(max_length=1000)]
"""What a policy can tell a rule of others."""

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000)]
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class Strategy(StrEnum):
    """Who goes first, and what the other sections are when they are not written."""

    FIFO = "fifo"
    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"
    SHORTEST_PREDICTED = "shortest_predicted"
    BEST_FIT = "best_fit"
    BREAK_EVEN = "break_even"


class Scheduling(Written):
    """The strategy by name. ``scheduling: fifo`` is short for ``scheduling: {strategy: fifo}``."""

    strategy: Strategy = Field(
        default=Strategy.BREAK_EVEN, description="The preset that this document refines."
    )
    width_exponent: float = Field(
        default=0.5,
        ge=-4,
        le=4,
        description=(
            "How the GPUs of a job weigh in its turn under shortest_predicted: its expected run"
            " times GPUs to this power. Above 0 narrow jobs come first, which makes waits short;"
            " below 0 wide ones do, which keeps more GPUs in use while the queue is long."
        ),
    )
    improve: bool = Field(
        default=True,
        description=(
            "Whether other orders of jobs that rank alike are tried, and the cheapest kept."
            " Under break_even and shortest_predicted."
        ),
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The section, or the name of a strategy alone."""
        section = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"enum": [str(name) for name in Strategy], "type": "string"}, section]}


def _rank_is_built_in(schema: dict[str, Any]) -> None:
    """A class refined by name has its rank already: an editor must not ask for it."""
    schema.pop("required", None)


class PriorityClass(Written):
    """What a job's ``priority`` means."""

    model_config = ConfigDict(json_schema_extra=_rank_is_built_in)

    rank: float = Field(ge=0, le=1_000_000, description="Higher goes first.")
    value_per_hour: Usd = Field(
        default=Decimal(0),
        description="What an hour's delay of a job costs in USD, where the job does not say.",
    )
    max_wait: Seconds = Field(
        default=7 * 86_400.0,
        gt=0,
        description="A job that has waited longer goes before every class.",
    )
    preempts: bool = Field(
        default=False, description="Jobs of this class may preempt those of lower rank."
    )
    burst: BurstRule = Field(
        default=BurstRule.ALLOWED, description="Whether jobs of this class may leave the premises."
    )


class Aging(Written):
    """How rank grows while a job waits."""

    per_hour: float = Field(default=4.0, ge=0, le=1_000_000, description="Rank gained per hour.")
    max: float = Field(default=80.0, ge=0, le=1_000_000, description="Most that is gained so.")


class FairShare(Written):
    """How teams share what is not enough for all."""

    half_life: Seconds = Field(
        default=7 * 86_400.0, gt=0, description="Past usage counts half after this long."
    )
    rank_bucket: float = Field(
        default=50.0,
        gt=0,
        le=1_000_000_000,
        description="Ranks in one bucket of this width count as equal: shares decide there.",
    )
    cpus_per_gpu: float = Field(
        default=16.0, gt=0, le=4096, description="CPU cores that count as much as one GPU."
    )
    memory_gib_per_gpu: float = Field(
        default=128.0, gt=0, le=65_536, description="GiB of memory that count as much as one GPU."
    )


class Team(Written):
    """What one team may do and what it is guaranteed. The team ``default`` stands for all that
    are not named."""

    weight: float = Field(default=1.0, gt=0, le=1_000_000, description="Share between teams.")
    guaranteed_gpus: int = Field(
        default=0, ge=0, le=1_000_000, description="Local GPUs the team always gets back."
    )
    members: tuple[Annotated[str, StringConstraints(min_length=1, max_length=255)], ...] = Field(
        default=(), max_length=10_000, description="Who may submit for it; empty: anyone."
    )
    classes: tuple[Name, ...] = Field(
        default=(), max_length=64, description="Priority classes it may use; empty: all."
    )
    regions: tuple[Name, ...] = Field(
        default=(), max_length=64, description="Regions it may burst to; empty: all."
    )
    providers: tuple[Name, ...] = Field(
        default=(), max_length=16, description="Providers it may burst to; empty: all."
    )


class Day(StrEnum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class QuietHours(Written):
    """A time of day in which no new machine is asked for. Past midnight when until ≤ start; it
    belongs to the day on which it starts."""

    start: ClockTime = Field(description="Local time, 24 hours.", examples=["22:00"])
    until: ClockTime = Field(description="Local time, 24 hours.", examples=["06:00"])
    days: tuple[Day, ...] = Field(default=(), max_length=7, description="Empty: every day.")
    timezone: str = Field(default="UTC", max_length=64, description="A name such as Europe/Paris.")

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        zone(value)
        return value

    @model_validator(mode="after")
    def _some_hours_remain(self) -> Self:
        if self.start == self.until:
            raise ValueError("start and until are the same; for always set burst.enabled to false")
        return self


class BurstCeilings(Written):
    """Limits on all burst pools together."""

    machines: int | None = Field(default=None, ge=0, le=100_000, description="None: no limit.")
    usd_per_hour: Usd | None = Field(
        default=None, description="At the price ceilings of all machines held; none: no limit."
    )


class Burst(Written):
    """When a job may go to a cloud. Without a budget nothing does, whatever stands here."""

    enabled: bool = Field(default=True, description="Whether new machines may be asked for.")
    margin_usd: Usd = Field(
        default=Decimal("0.10"), description="Least gain in USD for which to ask for a machine."
    )
    margin: float = Field(
        default=0.05, ge=0, le=10, description="Least gain as a part of what waiting costs."
    )
    ceilings: BurstCeilings = Field(
        default=BurstCeilings(), description="Beside those of each pool."
    )
    markets: tuple[Market, ...] = Field(default=(), max_length=2, description="Empty: all.")
    regions: tuple[Name, ...] = Field(default=(), max_length=64, description="Empty: all.")
    providers: tuple[Name, ...] = Field(default=(), max_length=16, description="Empty: all.")
    quiet_hours: tuple[QuietHours, ...] = Field(
        default=(), max_length=32, description="When no new machine is asked for."
    )


class Spot(Written):
    """When a spot machine is good enough."""

    max_interruptions_per_hour: float = Field(
        default=0.5, ge=0, le=60, description="Of all machines of the job together."
    )
    notice_margin: Seconds = Field(
        default=5.0, description="Added to the time a checkpoint takes, before the notice is used."
    )
    deadline_miss_probability: float = Field(
        default=0.05, ge=0, le=1, description="Tolerated chance of missing a job's deadline."
    )


class Spread(StrEnum):
    """Whether jobs fill nodes one after the other or keep apart."""

    PACK = "pack"
    SPREAD = "spread"


class Reservation(Written):
    """GPU models kept for some teams or classes."""

    models: tuple[str, ...] = Field(
        min_length=1, max_length=64, description="GPU models by any name.", examples=[["h100"]]
    )
    teams: tuple[Name, ...] = Field(default=(), max_length=256, description="Whom they are for.")
    classes: tuple[Name, ...] = Field(default=(), max_length=64, description="Or which classes.")

    @model_validator(mode="after")
    def _for_someone(self) -> Self:
        if not self.teams and not self.classes:
            raise ValueError("a reservation names teams or classes; this one is for nobody")
        return self


class Placement(Written):
    """Where on the premises a job goes when it fits in several places."""

    strategy: Spread = Field(
        default=Spread.PACK, description="Fill nodes one after the other, or keep jobs apart."
    )
    prefer_efficient: bool = Field(
        default=True,
        description=(
            "Jobs of one GPU of profile latency, and trials (walltime of 10 minutes at most), take"
            " the GPU that draws least of those on which they take at most a quarter longer."
        ),
    )
    reserved: tuple[Reservation, ...] = Field(
        default=(), max_length=64, description="GPU models that not everyone may use at home."
    )


class Preemption(Written):
    """When a running job may be stopped for one of higher rank."""

    enabled: bool = Field(default=True, description="Whether runs are stopped for others at all.")
    between_teams: bool = Field(default=True, description="For a job of another team.")
    within_team: bool = Field(default=True, description="For a job of the same team.")
    min_run: Seconds = Field(default=600.0, description="A run younger than this is left alone.")
    max_gpu_hours_per_hour: float = Field(
        default=16.0, ge=0, le=1_000_000, description="Most work thrown away in any one hour."
    )


class ReturnHome(Written):
    """When a job in a cloud comes home."""

    enabled: bool = Field(default=True, description="Whether jobs come home before they end.")
    margin_usd: Usd = Field(default=Decimal("0.25"), description="Least saving for a move.")
    min_stay: Seconds = Field(default=300.0, description="A run younger than this stays.")


class Retire(Written):
    """When a cloud machine is ended: idle, or given up because its runs fit on others."""

    idle_after: Seconds | None = Field(
        default=None, description="For all burst pools; the pool's own where omitted."
    )
    consolidate: bool = Field(
        default=True,
        description="Whether runs that save their work move so that machines half used become one.",
    )
    consolidate_margin_usd: Usd = Field(
        default=Decimal("0.25"), description="Least saving for such a move."
    )
    consolidate_min_run: Seconds = Field(
        default=300.0, description="A run younger than this keeps its machine."
    )


class RuleUse(Written):
    """One rule of others that is asked, by the name under which it is installed."""

    name: Name = Field(description="Under the entry-point group `hybrid.rules`.")
    settings: dict[Name, Setting] = Field(
        default_factory=dict, max_length=64, description="What it is told; its own documentation."
    )

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.settings.items(), key=lambda item: item[0]))))


class Quarantine(Written):
    """When a node takes no new runs until a person has looked at it. Devices that do not work are
    never used in any case."""

    enabled: bool = Field(default=True, description="Whether nodes are taken out of use by rule.")
    unhealthy_gpus: float = Field(
        default=0.5, gt=0, le=1, description="Part of a node's GPUs that do not work."
    )
    failing_jobs: int = Field(
        default=3, ge=1, le=10_000, description="Live jobs that have failed on it and avoid it."
    )


class Webhook(Written):
    """Who is told of what happens, by a signed POST."""

    name: Name = Field(description="Its own; what was delivered is remembered by it.")
    url: Annotated[str, StringConstraints(max_length=2000, pattern=r"^https?://[^\s/]+\S*$")] = (
        Field(description="Where events are posted.", examples=["https://hooks.example.com/hybrid"])
    )
    secret_env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,127}$")] = Field(
        default="HYBRID_WEBHOOK_SECRET",
        description="The server's environment variable with the secret that signs.",
    )
    events: tuple[EventKind, ...] = Field(
        default=(EventKind.BUDGET,), min_length=1, max_length=9, description="Kinds of events."
    )
    timeout: Seconds = Field(default=10.0, gt=0, le=60, description="Of one POST.")


class Notifications(Written):
    """Who is told of budgets that come to a threshold, and of whatever else happens."""

    webhooks: tuple[Webhook, ...] = Field(
        default=(), max_length=16, description="Each is told of every event of its kinds, in order."
    )
