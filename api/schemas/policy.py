"""The policy, its versions, and what another one would change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.schemas.shown import Shown, Usd, instant, instant_or_none, usd
from hybrid.domain.plan import Verdict
from hybrid.planning.difference import DecisionChange, Outlook, PlanSums
from hybrid.services.policy import Check, Difference, PlacedDoubt
from hybrid.services.policy_trial import Trial

CHANGES_SHOWN = 1000
"""Changed jobs that an answer holds at most; its counts are of all."""


class ShownPolicy(Shown):
    """A version of the policy."""

    version: int = Field(description="Its ETag; If-Match wants it. 0: none has been set")
    document: str = Field(description="YAML, as it was written")
    actor: str
    at: datetime | None
    why: str


class PolicyHistory(Shown):
    """Versions of the policy, newest first."""

    versions: tuple[ShownPolicy, ...]
    next_before: int | None = Field(description="For ``before`` of the next page; None: no more")


class PolicyText(Shown):
    """A policy to check, to compare or to put in force."""

    document: str = Field(max_length=1_000_000, description="YAML")
    why: str = Field(default="", max_length=500, description="For those who read the history.")


class PolicyRollback(Shown):
    """Which version to put in force again."""

    version: int = Field(ge=0, le=2**31 - 1, description="0: the empty document")
    why: str = Field(default="", max_length=450, description="For those who read the history.")


class ShownDifference(Shown):
    """One place where two policies differ."""

    path: str
    before: Any
    after: Any

    @classmethod
    def all_of(cls, found: tuple[Difference, ...]) -> tuple[ShownDifference, ...]:
        """From a service's answer."""
        return tuple(cls(path=each.path, before=each.before, after=each.after) for each in found)


class ShownDoubt(Shown):
    """What is valid and can hardly be meant: it never matches, or contradicts something else."""

    line: int
    column: int
    path: str
    message: str
    hint: str

    @classmethod
    def of(cls, doubt: PlacedDoubt) -> ShownDoubt:
        """From a service's answer."""
        return cls(
            line=doubt.line,
            column=doubt.column,
            path=doubt.path,
            message=doubt.message,
            hint=doubt.hint,
        )


class PolicyCheck(Shown):
    """What putting a policy in force would change, and what in it can hardly be meant."""

    version: int = Field(description="The one it was compared with")
    changes: tuple[ShownDifference, ...]
    warnings: tuple[ShownDoubt, ...]

    @classmethod
    def of(cls, check: Check) -> PolicyCheck:
        """From a service's answer."""
        return cls(
            version=check.version.version,
            changes=ShownDifference.all_of(check.changes),
            warnings=tuple(map(ShownDoubt.of, check.doubts)),
        )


class ShownOutlook(Shown):
    """What one policy decides for a job."""

    verdict: Verdict
    option: str = Field(description="What was chosen, as in explain; empty for none")
    sentence: str
    reason_code: str = Field(description="Why it waits or is refused; empty for neither")
    cloud_usd: Usd | None = Field(description="What a cloud would be paid for it")
    total_usd: Usd | None = Field(description="With energy at home and the value of its time")
    start_at: datetime | None = Field(description="Median")
    finish_at: datetime | None = Field(description="Expected")

    @classmethod
    def of(cls, outlook: Outlook) -> ShownOutlook:
        """From a plan's decision."""
        return cls(
            verdict=outlook.verdict,
            option=outlook.option,
            sentence=outlook.sentence,
            reason_code=outlook.reason,
            cloud_usd=None if outlook.cloud_micros is None else usd(outlook.cloud_micros),
            total_usd=None if outlook.total_micros is None else usd(outlook.total_micros),
            start_at=instant_or_none(outlook.start_at),
            finish_at=instant_or_none(outlook.finish_at),
        )


class ShownDecisionChange(Shown):
    """One job that is decided otherwise."""

    job_id: str
    name: str
    team: str
    priority: str
    before: ShownOutlook
    after: ShownOutlook
    cloud_change_usd: Usd = Field(description="By how much more a cloud would be paid")
    finish_change_s: float | None = Field(
        description="By how much later it would be done; None where that is not known"
    )

    @classmethod
    def of(cls, change: DecisionChange) -> ShownDecisionChange:
        """From two plans."""
        later = change.finish_change_s
        return cls(
            job_id=change.job.id,
            name=change.job.spec.name,
            team=change.job.team,
            priority=change.job.spec.priority,
            before=ShownOutlook.of(change.before),
            after=ShownOutlook.of(change.after),
            cloud_change_usd=usd(change.cloud_change_micros),
            finish_change_s=None if later is None else round(later, 3),
        )


class ShownPlanSums(Shown):
    """What one plan comes to."""

    verdicts: dict[str, int]
    cloud_usd: Usd = Field(description="What clouds would be paid for all jobs")
    held_now_usd: Usd = Field(description="What it would hold at once, worst case")
    machines_asked: int
    runs_stopped: int
    mean_finish_s: float = Field(description="Mean time until the jobs with a known end are done")
    jobs_with_an_end: int

    @classmethod
    def of(cls, sums: PlanSums) -> ShownPlanSums:
        """From a plan."""
        return cls(
            verdicts=dict(sums.verdicts),
            cloud_usd=usd(sums.cloud_micros),
            held_now_usd=usd(sums.held_now_micros),
            machines_asked=sums.machines_asked,
            runs_stopped=sums.runs_stopped,
            mean_finish_s=round(sums.mean_finish_s, 3),
            jobs_with_an_end=sums.with_an_end,
        )


class PolicyTrial(Shown):
    """The jobs of now, planned under the policy in force and under another one. Nothing was
    acted upon."""

    version: int = Field(description="The one in force")
    at: datetime
    settings: tuple[ShownDifference, ...]
    jobs: int = Field(description="Live jobs that were looked at")
    changed: int = Field(description="How many are decided otherwise")
    changes: tuple[ShownDecisionChange, ...] = Field(
        description=f"Dearest first, at most {CHANGES_SHOWN}"
    )
    before: ShownPlanSums
    after: ShownPlanSums
    unknown: tuple[str, ...] = Field(description="Sources that could not be read, and why")

    @classmethod
    def of(cls, trial: Trial) -> PolicyTrial:
        """From a service's answer."""
        plans = trial.plans
        return cls(
            version=trial.version,
            at=instant(plans.at),
            settings=ShownDifference.all_of(trial.settings),
            jobs=plans.jobs,
            changed=len(plans.changes),
            changes=tuple(map(ShownDecisionChange.of, plans.changes[:CHANGES_SHOWN])),
            before=ShownPlanSums.of(plans.before),
            after=ShownPlanSums.of(plans.after),
            unknown=trial.unknown,
        )
