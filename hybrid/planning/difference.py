"""Two plans of the same world side by side: whose decision differs, in dollars and minutes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job
from hybrid.domain.money import MICROS_PER_USD
from hybrid.domain.plan import Alternative, Decision, OpenClaim, Plan, RenewLease, Stop, Verdict
from hybrid.domain.reasons import Reason, Said
from hybrid.planning.options import CLOUD_TERMS

LEAST_MICROS = MICROS_PER_USD // 100
LEAST_S = 30.0
"""A decision for the same place and reason counts as the same below a cent and half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one plan decides for a job.

    ``cloud_micros`` is what a cloud would be paid, ``total_micros`` everything with the value of
    the job's time; both None where no option was chosen, as are the times.
    """

    verdict: Verdict
    option: str
    sentence: str
    reason: str = ""
    cloud_micros: int | None = None
    total_micros: int | None = None
    start_at: float | None = None
    finish_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionChange:
    """One job that is decided otherwise."""

    job: Job
    before: Outlook
    after: Outlook

    @property
    def cloud_change_micros(self) -> int:
        """By how much more a cloud would be paid for the job."""
        return (self.after.cloud_micros or 0) - (self.before.cloud_micros or 0)

    @property
    def finish_change_s(self) -> float | None:
        """By how much later the job would be done; None where either plan cannot say."""
        if self.before.finish_at is None or self.after.finish_at is None:
            return None
        return self.after.finish_at - self.before.finish_at


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSums:
    """What one plan comes to over all jobs: its verdicts, what clouds would be paid, what it would
    hold and do at once, and how long the jobs still take that it knows an end of."""

    verdicts: Mapping[str, int]
    cloud_micros: int
    held_now_micros: int
    machines_asked: int
    runs_stopped: int
    mean_finish_s: float
    with_an_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """Two plans of one world: the jobs decided otherwise, dearest change first."""

    at: float
    jobs: int
    before: PlanSums
    after: PlanSums
    changes: tuple[DecisionChange, ...]


def difference(jobs: Mapping[JobId, Job], before: Plan, after: Plan) -> PlanDifference:
    """How ``after`` decides otherwise than ``before`` for ``jobs``; both are plans of one world."""
    was = {d.job_id: d for d in before.decisions if d.job_id in jobs}
    now = {d.job_id: d for d in after.decisions if d.job_id in jobs}
    changes = [
        DecisionChange(job=jobs[job_id], before=mine, after=other)
        for job_id in sorted(was.keys() & now.keys())
        if _differ(mine := outlook(was[job_id]), other := outlook(now[job_id]))
    ]
    changes.sort(
        key=lambda c: (-abs(c.cloud_change_micros), -abs(c.finish_change_s or 0), c.job.id)
    )
    return PlanDifference(
        at=after.at,
        jobs=len(now),
        before=_sums(before, was.values()),
        after=_sums(after, now.values()),
        changes=tuple(changes),
    )


def outlook(decision: Decision) -> Outlook:
    """A decision as it is compared."""
    chosen = _chosen(decision)
    code = _code(decision.reason)
    if chosen is None:
        return Outlook(
            verdict=decision.verdict,
            option=decision.chosen,
            sentence=decision.sentence,
            reason=code,
        )
    return Outlook(
        verdict=decision.verdict,
        option=decision.chosen,
        sentence=decision.sentence,
        reason=code,
        cloud_micros=sum(t.micros for t in chosen.terms if t.name in CLOUD_TERMS),
        total_micros=chosen.total_micros if chosen.terms else None,
        start_at=chosen.start_p50_at,
        finish_at=chosen.finish_at,
    )


def _chosen(decision: Decision) -> Alternative | None:
    for alternative in decision.alternatives:
        if alternative.option == decision.chosen:
            return alternative
    # a job whose machine is on its way goes by the offer it was asked for
    if decision.verdict is Verdict.BURST:
        return next((a for a in decision.alternatives if a.option.startswith("claim:")), None)
    return None


def _code(reason: Reason | None) -> str:
    if reason is None:
        return ""
    return reason.said_code if isinstance(reason, Said) else reason.code


def _differ(before: Outlook, after: Outlook) -> bool:
    if (before.verdict, before.option, before.reason) != (
        after.verdict,
        after.option,
        after.reason,
    ):
        return True
    dollars = abs((after.cloud_micros or 0) - (before.cloud_micros or 0))
    return dollars >= LEAST_MICROS or _apart(before, after) >= LEAST_S


def _apart(before: Outlook, after: Outlook) -> float:
    pairs = ((before.start_at, after.start_at), (before.finish_at, after.finish_at))
    return max((abs(b - a) for a, b in pairs if a is not None and b is not None), default=0.0)


def _sums(plan: Plan, decisions: Iterable[Decision]) -> PlanSums:
    outlooks = [outlook(decision) for decision in decisions]
    ends = [o.finish_at - plan.at for o in outlooks if o.finish_at is not None]
    actions = plan.actions
    holds = [a.hold.amount_micros for a in actions if isinstance(a, OpenClaim | RenewLease)]
    return PlanSums(
        verdicts=dict(sorted(Counter(str(o.verdict) for o in outlooks).items())),
        cloud_micros=sum(o.cloud_micros or 0 for o in outlooks),
        held_now_micros=sum(holds),
        machines_asked=sum(isinstance(action, OpenClaim) for action in actions),
        runs_stopped=sum(isinstance(action, Stop) for action in actions),
        mean_finish_s=sum(ends) / len(ends) if ends else 0.0,
        with_an_end=len(ends),
    )
