"""A plan: actions plus a report. The plan *is* the dry run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hybrid.domain.claim import Claim
from hybrid.domain.hot_values import hot_value
from hybrid.domain.ids import ClaimId, JobId, NodeId, RunId
from hybrid.domain.job import StopCause
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.reasons import Reason
from hybrid.domain.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Give a job its slots: ``run`` is the new run, in state assigned."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop a live run; the whole stop must be over at ``by`` (None: the job's own grace)."""

    run_id: RunId
    cause: StopCause
    words: str
    by: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClaim:
    """Ask for one machine, its worst case held first. ``claim.request`` is filled in between
    planning and commit, by the provider's pure ``prepare``."""

    claim: Claim
    hold: LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLease:
    """Pay for a machine until ``until``."""

    claim_id: ClaimId
    until: float
    hold: LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonClaim:
    """No new runs on this machine; it finishes what it has."""

    claim_id: ClaimId
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndClaim:
    """End a machine (or a request that no machine has come of)."""

    claim_id: ClaimId
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonNode:
    """No new runs on this node."""

    node_id: NodeId
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailJob:
    """A pending job that can never run, or is cancelled before it did, ends here."""

    job_id: JobId
    reason: Reason
    cancelled: bool = False


Action = Place | Stop | OpenClaim | RenewLease | CordonClaim | EndClaim | CordonNode | FailJob


@hot_value(frozen=True, slots=True, kw_only=True)
class RowRef:
    """A row that a bundle rests on, at the version it was read."""

    kind: str
    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionBundle:
    """Actions that need each other: all are committed, or none."""

    id: str
    actions: tuple[Action, ...]
    rests_on: tuple[RowRef, ...] = ()


class Verdict(StrEnum):
    """What was decided for a job."""

    PLACE = "place"
    WAIT = "wait"
    BURST = "burst"
    STAY = "stay"
    PREEMPT = "preempt"
    RETURN = "return"
    STOP = "stop"
    REFUSE = "refuse"


@hot_value(frozen=True, slots=True, kw_only=True)
class CostTerm:
    """One part of what an option costs. The terms add up to the total exactly."""

    name: str
    micros: int


@hot_value(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One option for a job, with its cost, or the first guard that refused it.

    ``option`` is ``pool:NAME`` for a local pool, ``offer:ID`` for a new machine, ``claim:ID`` for
    one already held, ``stay`` for going on where it runs. Offers that differ in nothing the planner
    weighs are one class: ``members`` counts them.
    """

    option: str
    label: str
    start_p50_at: float | None = None
    start_p90_at: float | None = None
    finish_at: float | None = None
    terms: tuple[CostTerm, ...] = ()
    refused: Reason | None = None
    members: int = 1
    speed: str = ""
    """How fast the job is taken to be there and where that is known from; empty without a GPU."""

    @property
    def total_micros(self) -> int:
        """The sum of the terms."""
        return sum(term.micros for term in self.terms)


@hot_value(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided for one job, why, and what else there was."""

    job_id: JobId
    at: float
    verdict: Verdict
    sentence: str
    chosen: str
    policy_version: int
    alternatives: tuple[Alternative, ...] = ()
    reason: Reason | None = None

    def same_as(self, other: Decision | None) -> bool:
        """Whether a person would learn nothing new from this one: a row is written on change."""
        return other is not None and (
            (self.verdict, self.chosen, self._why()) == (other.verdict, other.chosen, other._why())  # noqa: SLF001
        )

    def _why(self) -> str:
        code = getattr(self.reason, "said_code", None) or (self.reason.code if self.reason else "")
        return f"{code}/{self.policy_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. ``complete`` is false when the evaluation budget ran out before the search
    for improvements did; the plan is valid all the same."""

    at: float
    revision: int
    bundles: tuple[ActionBundle, ...]
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()
    evaluations: int = 0
    complete: bool = True

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions, bundle by bundle."""
        return tuple(action for bundle in self.bundles for action in bundle.actions)

    def without(self, dropped: frozenset[str]) -> tuple[ActionBundle, ...]:
        """The bundles that remain when some are dropped."""
        return tuple(bundle for bundle in self.bundles if bundle.id not in dropped)
