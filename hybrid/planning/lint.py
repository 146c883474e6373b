"""What no plan may do, checked on its actions alone. A plan with a finding is never committed.

Written apart from the steps that make plans: nothing here asks how a plan came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import BudgetName, ClaimId, GpuId, JobId, NodeId, PoolName, RunId
from hybrid.domain.job import JobState
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.money import cents, to_micros
from hybrid.domain.node import Node, NodeState, Slot
from hybrid.domain.plan import (
    Action,
    ActionBundle,
    CordonClaim,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    Stop,
)
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.run import Run
from hybrid.domain.snapshot import Snapshot
from hybrid.ledger.caps import covers
from hybrid.planning.replicas import replicas_in

_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant a plan breaks: a stable ``code``, what it is about, and words."""

    code: str
    subject: str
    words: str

    def __str__(self) -> str:
        return f"{self.code} {self.subject}: {self.words}"


def lint(snapshot: Snapshot, plan: Plan | Iterable[ActionBundle]) -> tuple[Finding, ...]:
    """Everything the plan breaks, empty for a clean one."""
    bundles = plan.bundles if isinstance(plan, Plan) else tuple(plan)
    return _Linter(snapshot, tuple(bundles)).findings()


@dataclass(slots=True)
class _Linter:
    snapshot: Snapshot
    bundles: tuple[ActionBundle, ...]
    found: list[Finding] = field(default_factory=list)

    def findings(self) -> tuple[Finding, ...]:
        actions = [action for bundle in self.bundles for action in bundle.actions]
        runs = [action.run for action in actions if isinstance(action, Place)]
        opened = [action for action in actions if isinstance(action, OpenClaim)]
        self._once(actions)
        for run in runs:
            self._run(run)
        self._slots(runs)
        self._gangs(runs, opened)
        self._money([a.hold for a in actions if isinstance(a, OpenClaim | RenewLease)])
        self._ceilings(opened)
        for action in opened:
            self._claim(action)
        ended = {action.claim_id for action in actions if isinstance(action, EndClaim)}
        self._ends(ended, runs)
        return tuple(self.found)

    def _say(self, code: str, subject: object, words: str) -> None:
        self.found.append(Finding(code, str(subject), words))

    # --- jobs and runs ------------------------------------------------------------------------

    def _once(self, actions: Sequence[Action]) -> None:
        """At most one fate for each thing; nothing named that is not there."""
        fates: Counter[str] = Counter()
        for action in actions:
            match action:
                case Place(run=run):
                    fates[f"job {run.job_id}"] += 1
                case FailJob(job_id=job_id):
                    fates[f"job {job_id}"] += 1
                    if job_id not in self.snapshot.jobs:
                        self._say("unknown_job", job_id, "fails but is not there")
                case Stop(run_id=run_id):
                    fates[f"run {run_id}"] += 1
                    self._stop(run_id)
                case EndClaim(claim_id=claim_id) | CordonClaim(claim_id=claim_id):
                    fates[f"claim {claim_id}"] += 1
                    if claim_id not in self.snapshot.claims:
                        self._say("unknown_claim", claim_id, "is not there")
                case RenewLease(claim_id=claim_id):
                    fates[f"lease {claim_id}"] += 1
                    if claim_id not in self.snapshot.claims:
                        self._say("unknown_claim", claim_id, "is not there")
                case OpenClaim(claim=claim):
                    fates[f"claim {claim.id}"] += 1
                case _:
                    pass
        for subject, count in sorted(fates.items()):
            if count > 1:
                self._say("twice", subject, f"decided {count} times in one plan")
        asked = {a.claim.job_id for a in actions if isinstance(a, OpenClaim)}
        placed = {a.run.job_id for a in actions if isinstance(a, Place)}
        for job_id in sorted(asked & placed):
            self._say("both", job_id, "is placed, and a machine is asked for it")

    def _stop(self, run_id: RunId) -> None:
        run = self.snapshot.runs.get(run_id)
        if run is None or not run.live:
            self._say("unknown_run", run_id, "is stopped but does not live")

    def _run(self, run: Run) -> None:
        job = self.snapshot.jobs.get(run.job_id)
        if job is None:
            self._say("unknown_job", run.job_id, "is placed but is not there")
            return
        if job.state is not JobState.PENDING:
            self._say("not_pending", job.id, f"is placed but is {job.state}")
        if any(other.live and other.job_id == job.id for other in self.snapshot.runs.values()):
            self._say("second_run", job.id, "has a live run already")
        if run.attempt != job.attempts + 1:
            self._say("attempt", run.id, f"is attempt {run.attempt} after {job.attempts}")
        for slot in run.slots:
            self._slot(run, slot)

    def _slot(self, run: Run, slot: Slot) -> None:
        node = self.snapshot.nodes.get(slot.node_id)
        if node is None or node.state is not NodeState.READY:
            state = "unknown" if node is None else node.state
            self._say("node_not_ready", slot.node_id, f"gets {run.id} but is {state}")
            return
        if not self.snapshot.knows(f"engine:{node.engine}"):
            self._say("engine_unknown", slot.node_id, f"gets {run.id}; its engine is not heard of")
        healthy = {gpu.id for gpu in node.gpus if gpu.healthy}
        for gpu in slot.gpu_ids:
            if gpu not in healthy:
                self._say("no_such_gpu", gpu, f"is given to {run.id} but is not working there")
        if node.claim_id is None:
            self._replica(run, slot, node)
            return
        claim = self.snapshot.claims.get(node.claim_id)
        if claim is None or claim.state is not ClaimState.READY or claim.notice_at is not None:
            self._say("claim_not_ready", node.claim_id, f"gets {run.id} but takes no runs")
        if node.claim_id not in run.claim_ids:
            self._say("claim_unnamed", run.id, f"does not name its claim {node.claim_id}")

    def _replica(self, run: Run, slot: Slot, node: Node) -> None:
        """A time-sliced GPU is given out in replicas alone, any other in none."""
        pool = self.snapshot.pools.get(node.pool)
        replicas = replicas_in(None if pool is None else pool.spec)
        devices = [gpu for gpu in slot.gpu_ids if not gpu.startswith("MIG-")]
        if not devices:
            return
        if slot.replicas != replicas or (replicas > 1 and slot.share > 1 / replicas + _SLACK):
            words = f"{slot.share:g} of {devices[0]}, which has {replicas} replicas"
            self._say("not_a_replica", run.id, words)

    def _slots(self, runs: list[Run]) -> None:
        """No device held beyond its whole, no node beyond its cores and memory."""
        gpus: dict[GpuId, float] = {}
        cpus: dict[NodeId, float] = {}
        memory: dict[NodeId, float] = {}
        touched = {slot.node_id for run in runs for slot in run.slots}
        given = {gpu for run in runs for slot in run.slots for gpu in slot.gpu_ids}
        live = [run for run in self.snapshot.runs.values() if run.live]
        for run in (*live, *runs):
            for slot in run.slots:
                if slot.node_id not in touched:
                    continue
                for gpu in slot.gpu_ids:
                    gpus[gpu] = gpus.get(gpu, 0.0) + slot.share
                cpus[slot.node_id] = cpus.get(slot.node_id, 0.0) + slot.cpus
                memory[slot.node_id] = memory.get(slot.node_id, 0.0) + slot.memory_gib
        self._gpu_memory((*live, *runs), touched)
        for gpu in sorted(given):
            if gpus[gpu] > 1 + _SLACK:
                self._say("gpu_twice", gpu, f"is held {gpus[gpu]:g} times over")
        for node_id in sorted(touched):
            node = self.snapshot.nodes.get(node_id)
            if node is None:
                continue
            if cpus[node_id] > node.cpus + _SLACK:
                self._say("cpus", node_id, f"{cpus[node_id]:g} of {node.cpus:g} cores are held")
            if memory[node_id] > node.memory_gib + _SLACK:
                words = f"{memory[node_id]:g} of {node.memory_gib:g} GiB are held"
                self._say("memory", node_id, words)

    def _gpu_memory(self, runs: Sequence[Run], touched: Collection[NodeId]) -> None:
        """No device's memory promised twice."""
        promised: dict[tuple[NodeId, GpuId], float] = {}
        for run in runs:
            for slot in run.slots:
                if slot.node_id in touched and slot.gpu_memory_gib is not None:
                    for gpu in slot.gpu_ids:
                        key = slot.node_id, gpu
                        promised[key] = promised.get(key, 0.0) + slot.gpu_memory_gib
        for (node_id, gpu), gib in sorted(promised.items()):
            node = self.snapshot.nodes.get(node_id)
            has = [g.memory_gib for g in node.gpus if g.id == gpu] if node is not None else []
            if has and gib > has[0] * (1 + _SLACK):
                self._say("gpu_memory", gpu, f"{gib:g} of {has[0]:g} GiB are promised")

    def _gangs(self, runs: list[Run], opened: list[OpenClaim]) -> None:
        """All of a gang or nothing of it, each rank on a node of its own."""
        for run in runs:
            job = self.snapshot.jobs.get(run.job_id)
            if job is None:
                continue
            wanted = job.spec.resources
            if len(run.slots) != wanted.nodes:
                self._say("gang_in_part", run.id, f"{len(run.slots)} of {wanted.nodes} nodes")
            if len(set(run.node_ids)) != len(run.slots):
                self._say("gang_on_one_node", run.id, "two ranks share a node")
            for slot in run.slots:
                if len(slot.gpu_ids) != wanted.gpus:
                    words = f"{len(slot.gpu_ids)} of {wanted.gpus} GPUs on {slot.node_id}"
                    self._say("slot_in_part", run.id, words)
        bundle_of = {id(action): bundle.id for bundle in self.bundles for action in bundle.actions}
        moving = self._moving()
        by_job: dict[JobId, list[OpenClaim]] = {}
        for action in opened:
            by_job.setdefault(action.claim.job_id, []).append(action)
        for job_id, claims in sorted(by_job.items()):
            job = self.snapshot.jobs.get(job_id)
            if job is None or (job.state is not JobState.PENDING and job_id not in moving):
                self._say("not_pending", job_id, "gets machines but is not pending")
            elif len(claims) != job.spec.resources.nodes:
                words = f"{len(claims)} of {job.spec.resources.nodes} machines"
                self._say("gang_in_part", job_id, words)
            if len({bundle_of[id(action)] for action in claims}) > 1:
                self._say("gang_torn", job_id, "its machines are in several bundles")

    def _moving(self) -> set[JobId]:
        """Jobs whose runs are being stopped because their machines are taken."""
        stops = {
            action.run_id: action.cause
            for bundle in self.bundles
            for action in bundle.actions
            if isinstance(action, Stop)
        }
        return {
            run.job_id
            for run in self.snapshot.runs.values()
            if run.live and (run.moving or ((cause := stops.get(run.id)) and cause.moves))
        }

    # --- claims and money ---------------------------------------------------------------------

    def _claim(self, action: OpenClaim) -> None:
        claim, hold = action.claim, action.hold
        if claim.id in self.snapshot.claims:
            self._say("claim_exists", claim.id, "is opened but is there already")
        if hold.claim_id != claim.id or hold.kind is not EntryKind.HOLD:
            self._say("wrong_hold", claim.id, "its hold is not for it")
        if hold.amount_micros <= 0:
            self._say("no_hold", claim.id, "nothing is held for it")
        if not self.snapshot.knows(f"provider:{claim.offer.provider}"):
            self._say("provider_unknown", claim.id, f"{claim.offer.provider} could not be read")
        if claim.lease_until <= self.snapshot.now:
            self._say("no_lease", claim.id, "its lease is over before it begins")

    def _money(self, holds: list[LedgerEntry]) -> None:
        """No cap passed: charges and holds stay within every limit."""
        extra: dict[BudgetName, int] = {}
        for hold in holds:
            covering = [b for b in self.snapshot.balances if covers(b.budget, hold)]
            if not covering and hold.amount_micros:
                self._say("no_budget", hold.id, f"no budget covers team {hold.team}")
            for balance in covering:
                extra[balance.name] = extra.get(balance.name, 0) + hold.amount_micros
        for balance in self.snapshot.balances:
            more = extra.get(balance.name, 0)
            limit = to_micros(balance.budget.limit_usd)
            if more and balance.charged_micros + balance.held_micros + more > limit:
                self._say("cap_passed", balance.name, f"${cents(more)} more does not fit")

    def _ceilings(self, opened: list[OpenClaim]) -> None:
        """No pool beyond its machines and its dollars per hour."""
        touched = {action.claim.pool for action in opened}
        machines: Counter[PoolName] = Counter()
        per_hour: Counter[PoolName] = Counter()
        held: list[Claim] = [c for c in self.snapshot.claims.values() if not c.state.over]
        for claim in (*held, *(action.claim for action in opened)):
            machines[claim.pool] += 1
            per_hour[claim.pool] += claim.offer.price_ceiling_micros_per_hour
        for name in sorted(touched):
            pool = self.snapshot.pools.get(name)
            if pool is None or pool.removed or not isinstance(pool.spec, BurstPool):
                self._say("no_such_pool", name, "a machine is asked of it")
                continue
            limits = pool.spec.ceilings
            if machines[name] > limits.machines:
                self._say("ceiling", name, f"{machines[name]} of {limits.machines} machines")
            if per_hour[name] > to_micros(limits.usd_per_hour):
                self._say("ceiling", name, f"${cents(per_hour[name])} an hour")

    def _ends(self, ended: set[ClaimId], runs: list[Run]) -> None:
        """No machine ended under a run, not even one that is stopping: it may be saving."""
        for run in (*runs, *self.snapshot.runs.values()):
            if not run.live:
                continue
            for claim_id in run.claim_ids:
                if claim_id in ended:
                    self._say("ended_under_run", claim_id, f"{run.id} runs on it")
