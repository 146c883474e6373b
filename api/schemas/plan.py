"""Quotes and the last plan."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.schemas.jobs import ShownAlternative
from api.schemas.shown import Shown, ShownReason
from hybrid.domain.plan import Verdict


class Quote(Shown):
    """Where, when and at what cost a job would run if it were submitted now. Nothing is kept."""

    at: datetime
    team: str
    verdict: Verdict
    sentence: str
    chosen: str
    reason: ShownReason | None
    policy_version: int
    alternatives: tuple[ShownAlternative, ...]


class ShownAction(Shown):
    """One thing that the plan does."""

    kind: str = Field(description="place, stop, open_claim, renew_lease, end_claim, …")
    subject: str
    words: str


class ShownBundle(Shown):
    """Actions that need each other."""

    id: str
    actions: tuple[ShownAction, ...]


class PlanSummary(Shown):
    """The last plan, and how the loop stands."""

    leads: bool = Field(description="Whether this process runs the loop")
    epoch: int
    last_tick_at: datetime | None
    last_tick_s: float
    at: datetime | None = Field(description="When the last plan was made; None before the first")
    revision: int
    policy_version: int
    bundles: tuple[ShownBundle, ...]
    verdicts: dict[str, int] = Field(description="How many jobs got each verdict")
    notes: tuple[str, ...]
    evaluations: int
    complete: bool
    unknown: tuple[str, ...] = Field(description="Sources that could not be read, and why")


class Health(Shown):
    """The process answers."""

    status: str = "ok"


class Readiness(Shown):
    """Whether the server can do its work."""

    ready: bool
    store: str = Field(description="ok, or what is wrong")
    loop: str = Field(description="leads, stands_by, starting or dead")
