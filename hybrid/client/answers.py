"""What a server answers, as far as this package's callers look at it.

A newer server may say more: what is not named here is kept as it came, so that writing an answer
out again loses nothing. Instants are aware datetimes, money is exact Decimal dollars.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from hybrid.domain.claim import ClaimState
from hybrid.domain.job import JobState
from hybrid.domain.node import NodeState
from hybrid.domain.run import RunState


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Reason(Answer):
    """Why not: a stable code, and the sentence."""

    code: str
    text: str


class Step(Answer):
    """One state that was entered, when and why."""

    state: str
    at: datetime
    cause: str = ""


class Progress(Answer):
    """What a job says of itself; ``total`` 0 when unknown."""

    step: int
    total: int


class Checkpoint(Answer):
    """The last committed checkpoint."""

    seq: int
    step: int
    committed_at: datetime
    size_bytes: int


class Slot(Answer):
    """What a run holds on one node of its gang."""

    node_id: str
    gpu_ids: tuple[str, ...]


class Run(Answer):
    """One attempt. ``outputs`` are digests of archives of what it left behind, by rank."""

    id: str
    attempt: int
    state: RunState
    pool: str
    slots: tuple[Slot, ...]
    gpu_model: str
    price_usd_per_hour: Decimal
    assigned_at: datetime
    started_at: datetime | None
    expected_end_at: datetime | None
    ended_at: datetime | None
    stop_cause: str | None
    exit_code: int | None
    resumed_from: int | None
    progress: Progress | None
    checkpoint_problem: str = ""
    outputs: tuple[str, ...] = ()


class Decision(Answer):
    """What was decided last, in one sentence."""

    at: datetime
    verdict: str
    sentence: str
    chosen: str
    reason: Reason | None


class JobLine(Answer):
    """A job in a listing."""

    id: str
    name: str
    team: str
    user: str
    priority: str
    state: JobState
    reason: str
    submitted_at: datetime
    queued_at: datetime
    ended_at: datetime | None
    nodes: int
    gpus: int
    attempts: int
    failures: int
    cancel_requested: bool
    exit_code: int | None
    cost_usd: Decimal
    pool: str | None
    decision: Decision | None


class Job(JobLine):
    """A job, whole."""

    spec: dict[str, Any]
    checkpoint: Checkpoint | None
    history: tuple[Step, ...]
    runs: tuple[Run, ...]
    wait_s: float | None


class JobPage(Answer):
    """A page of jobs, newest first."""

    jobs: tuple[JobLine, ...]
    next_cursor: str | None


class Event(Answer):
    """One line of a timeline or of the event stream."""

    seq: int
    at: datetime
    kind: str
    subject: str
    what: str
    words: str
    job_id: str
    actor: str


class Timeline(Answer):
    """What happened to a job, in order."""

    job_id: str
    events: tuple[Event, ...]
    next_after: int | None


class Term(Answer):
    """One part of what an option costs."""

    name: str
    usd: Decimal


class Alternative(Answer):
    """One option: what it would cost, or why it was refused."""

    option: str
    label: str
    chosen: bool
    members: int
    start_p50_at: datetime | None
    start_p90_at: datetime | None
    finish_at: datetime | None
    terms: tuple[Term, ...]
    total_usd: Decimal | None
    refused: Reason | None
    speed: str = ""


class Explanation(Answer):
    """Why a job is where it is, and what else there was."""

    job_id: str
    state: JobState
    at: datetime | None
    verdict: str | None
    sentence: str
    chosen: str
    policy_version: int | None = None
    reason: Reason | None
    alternatives: tuple[Alternative, ...]


class Quote(Answer):
    """Where, when and at what cost a job would run."""

    at: datetime
    team: str
    verdict: str
    sentence: str
    chosen: str
    reason: Reason | None
    alternatives: tuple[Alternative, ...]


class Gpu(Answer):
    """One device, and who holds it."""

    id: str
    index: int
    model: str
    memory_gib: float
    healthy: bool
    health_reason: str
    virtual: bool
    run_ids: tuple[str, ...]


class MigRoom(Answer):
    """Memory slices at which one more MIG instance of a profile could begin."""

    profile: str
    starts: tuple[int, ...]


class PartedGpu(Answer):
    """A GPU in MIG mode, and what would still fit on it."""

    id: str
    index: int
    model: str
    room: tuple[MigRoom, ...]


class Node(Answer):
    """A machine that has joined."""

    id: str
    pool: str
    engine: str
    state: NodeState
    hostname: str
    claim_id: str | None
    joined_at: datetime
    gpus: tuple[Gpu, ...]
    parted: tuple[PartedGpu, ...] = ()
    cpus: float
    memory_gib: float
    container_runtimes: tuple[str, ...]
    cordon_cause: str
    drain_by: datetime | None = None
    run_ids: tuple[str, ...]


class Drain(Answer):
    """How far a node or a pool has been emptied."""

    target: str
    by: datetime | None
    empty: bool
    runs_left: int
    nodes: tuple[Node, ...]


class NodeList(Answer):
    """All nodes that are not gone."""

    nodes: tuple[Node, ...]


class Pool(Answer):
    """A pool document and what is in the pool now."""

    name: str
    version: int
    spec: dict[str, Any]
    nodes: int
    gpus: int
    machines: int
    runs: int
    warnings: tuple[str, ...] = ()


class PoolList(Answer):
    """All pools by name."""

    pools: tuple[Pool, ...]


class Breaker(Answer):
    """What keeps an offer from being asked for, and until when."""

    scope: str
    cause: str
    until: datetime


class Offer(Answer):
    """One machine type of a burst pool in one zone and market."""

    id: str
    pool: str
    zone: str
    machine_type: str
    market: str
    gpus: int
    gpu_model: str
    gpu_models: tuple[str, ...] = ()
    price_usd_per_hour: Decimal
    price_ceiling_usd_per_hour: Decimal
    priced_at: datetime
    price_source: str = ""
    interruptions_per_hour: float
    price_pressure: float = 1.0
    boot_s: float
    quota_left: int | None = None
    quota: str = ""
    breaker: Breaker | None = None


class Ignored(Answer):
    """What a provider has and cannot be used, and why."""

    what: str
    why: str


class OfferList(Answer):
    """What could be had now."""

    offers: tuple[Offer, ...]
    ignored: tuple[Ignored, ...]
    unknown: tuple[str, ...]


class Claim(Answer):
    """Our intent to hold one cloud machine."""

    id: str
    state: ClaimState
    pool: str
    offer: Offer
    job_id: str
    team: str
    machine_id: str | None
    node_id: str | None
    requested_at: datetime
    launched_at: datetime | None
    lease_until: datetime | None
    notice_at: datetime | None
    rebalance_at: datetime | None = None
    ended_at: datetime | None
    held_usd: Decimal
    charged_usd: Decimal
    cause: str


class ClaimList(Answer):
    """Claims, newest first."""

    claims: tuple[Claim, ...]


class Spender(Answer):
    """What a user of a team has been charged."""

    team: str
    user: str
    charged_usd: Decimal


class Hold(Answer):
    """What is held for one machine."""

    claim_id: str
    job_id: str
    team: str
    user: str
    what: str
    held_usd: Decimal
    lease_until: datetime


class Budget(Answer):
    """A budget with what is charged and held in its current period."""

    name: str
    scope: str
    subject: str | None
    period: str
    period_start_at: datetime
    limit_usd: Decimal
    charged_usd: Decimal
    held_usd: Decimal
    free_usd: Decimal
    overdrawn: bool
    period_end_at: datetime | None
    burn_usd_per_hour: Decimal
    mean_usd_per_hour: Decimal
    runs_out_p50_at: datetime | None
    runs_out_p90_at: datetime | None
    top_spenders: tuple[Spender, ...]
    holds: tuple[Hold, ...]
    held_claims: int


class TeamUsage(Answer):
    """What a team has used and spent since an instant."""

    team: str
    local_gpu_hours: float
    cloud_gpu_hours: float
    local_cost_usd: Decimal
    cloud_cost_usd: Decimal
    total_cost_usd: Decimal
    saved_usd: Decimal
    machines_weighed: int
    machines_without_home: int
    held_usd: Decimal
    jobs: int


class Usage(Answer):
    """Usage by team."""

    since: datetime
    until: datetime
    teams: tuple[TeamUsage, ...]
    total_cost_usd: Decimal
    saved_usd: Decimal


class BudgetList(Answer):
    """All budgets that the asker may see."""

    budgets: tuple[Budget, ...]


class Policy(Answer):
    """The policy in force; version 0 when none has been set."""

    version: int
    document: str
    actor: str
    at: datetime | None
    why: str


class Change(Answer):
    """One place where two policies differ."""

    path: str
    before: Any
    after: Any


class Entry(Answer):
    """One line of the ledger."""

    id: str
    at: datetime
    kind: str
    what: str
    amount_usd: Decimal


class ClaimLedger(Answer):
    """What the ledger says of one claim."""

    claim_id: str
    entries: tuple[Entry, ...]
    held_usd: Decimal
    charged_usd: Decimal


class Mismatch(Answer):
    """A kept balance that is not what the ledger comes to."""

    budget: str
    kept_charged_usd: Decimal
    true_charged_usd: Decimal
    kept_held_usd: Decimal
    true_held_usd: Decimal


class LedgerCheck(Answer):
    """Every balance against a replay of the whole ledger."""

    ok: bool
    entries: int
    budgets: int
    mismatches: tuple[Mismatch, ...]


class ClaimBill(Answer):
    """One claim in one billing period."""

    claim_id: str
    period: str
    state: str
    charged_usd: Decimal
    settled_usd: Decimal
    billed_usd: Decimal
    difference_usd: Decimal
    by_kind_usd: dict[str, Decimal]


class UnmatchedLine(Answer):
    """Lines of a bill that no claim stands for."""

    claim_id: str
    period: str
    kind: str
    usd: Decimal
    count: int
    what: str


class MissingClaim(Answer):
    """A claim that was charged and that the bill does not name."""

    claim_id: str
    machine_id: str
    charged_usd: Decimal


class BillComparison(Answer):
    """A bill against the ledger."""

    claims: tuple[ClaimBill, ...]
    unmatched: tuple[UnmatchedLine, ...]
    missing: tuple[MissingClaim, ...]
    untagged_usd: Decimal
    elsewhere_usd: Decimal
    difference_usd: Decimal
    settled: int


class Doubt(Answer):
    """What is valid in a policy and can hardly be meant."""

    line: int
    column: int
    path: str
    message: str
    hint: str


class PolicyCheck(Answer):
    """What putting a policy in force would change."""

    version: int
    changes: tuple[Change, ...]
    warnings: tuple[Doubt, ...]


class PolicyHistory(Answer):
    """Versions of the policy, newest first."""

    versions: tuple[Policy, ...]
    next_before: int | None


class Outlook(Answer):
    """What one policy decides for a job."""

    verdict: str
    option: str
    sentence: str
    reason_code: str
    cloud_usd: Decimal | None
    total_usd: Decimal | None
    start_at: datetime | None
    finish_at: datetime | None


class DecisionChange(Answer):
    """One job that is decided otherwise."""

    job_id: str
    name: str
    team: str
    before: Outlook
    after: Outlook
    cloud_change_usd: Decimal
    finish_change_s: float | None


class PlanSums(Answer):
    """What one plan comes to."""

    verdicts: dict[str, int]
    cloud_usd: Decimal
    held_now_usd: Decimal
    machines_asked: int
    runs_stopped: int
    mean_finish_s: float


class PolicyTrial(Answer):
    """The jobs of now under the policy in force and under another one."""

    version: int
    at: datetime
    settings: tuple[Change, ...]
    jobs: int
    changed: int
    changes: tuple[DecisionChange, ...]
    before: PlanSums
    after: PlanSums
    unknown: tuple[str, ...]


class Token(Answer):
    """A token, without its secret."""

    id: str
    kind: str
    role: str
    user: str | None
    teams: tuple[str, ...]
    pool: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked: bool
    used_by: str | None
    note: str


class NewToken(Answer):
    """A token just made, with its secret."""

    token: Token
    secret: str


class TokenList(Answer):
    """All tokens, oldest first."""

    tokens: tuple[Token, ...]


class WhoAmI(Answer):
    """Whose token asks; ``teams`` None means all."""

    name: str
    role: str
    teams: tuple[str, ...] | None


class Stored(Answer):
    """An upload."""

    digest: str
    size_bytes: int


class Readiness(Answer):
    """Whether the server can do its work."""

    ready: bool
    store: str
    loop: str
