"""Carries a plan out on the snapshot it was made for, with clock and facts frozen: what the loop
would read next if nothing but its own rows had changed."""

from __future__ import annotations

from dataclasses import replace

from hybrid.domain.budget import Balance
from hybrid.domain.claim import ClaimState
from hybrid.domain.job import JobState
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.domain.node import NodeState
from hybrid.domain.plan import (
    CordonClaim,
    CordonNode,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    Plan,
    RenewLease,
    Stop,
)
from hybrid.domain.run import RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.ledger.caps import covers


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after the plan's actions. Transition tables are obeyed, so an impossible action
    raises InvalidTransition."""
    now = snapshot.now
    jobs, runs = dict(snapshot.jobs), dict(snapshot.runs)
    claims, nodes = dict(snapshot.claims), dict(snapshot.nodes)
    balances = snapshot.balances
    for action in plan.actions:
        match action:
            case Place(run=run):
                assert run.id not in runs
                runs[run.id] = run
                job = jobs[run.job_id]
                jobs[job.id] = job.to(
                    JobState.PLACED, at=now, attempts=run.attempt, stop_cause=None
                )
                for claim_id in run.claim_ids:
                    claims[claim_id] = replace(claims[claim_id], idle_since=None)
            case Stop(run_id=run_id, cause=cause, words=words, by=by):
                run = runs[run_id]
                job = jobs[run.job_id]
                if run.state is RunState.STOPPING:
                    runs[run_id] = replace(run, stop_cause=cause, stop_by=by or run.stop_by)
                    jobs[job.id] = replace(job, stop_cause=cause)
                    continue
                runs[run_id] = run.to(
                    RunState.STOPPING,
                    at=now,
                    cause=words,
                    stop_cause=cause,
                    stop_requested_at=now,
                    stop_by=by,
                )
                jobs[job.id] = job.to(JobState.STOPPING, at=now, cause=words, stop_cause=cause)
            case OpenClaim(claim=claim, hold=hold):
                assert claim.id not in claims
                claims[claim.id] = replace(claim, held_micros=hold.amount_micros)
                balances = _held(balances, hold)
                job = jobs[claim.job_id]
                jobs[job.id] = replace(job, claims_opened=job.claims_opened + 1)
            case RenewLease(claim_id=claim_id, until=until, hold=hold):
                claim = claims[claim_id]
                claims[claim_id] = replace(
                    claim, lease_until=until, held_micros=claim.held_micros + hold.amount_micros
                )
                balances = _held(balances, hold)
            case CordonClaim(claim_id=claim_id, words=words):
                claims[claim_id] = claims[claim_id].to(ClaimState.CORDONED, at=now, cause=words)
            case EndClaim(claim_id=claim_id, words=words):
                claims[claim_id] = claims[claim_id].to(ClaimState.TERMINATING, at=now, cause=words)
            case CordonNode(node_id=node_id, words=words):
                nodes[node_id] = nodes[node_id].to(NodeState.CORDONED, at=now, cause=words)
            case FailJob(job_id=job_id, cancelled=cancelled):
                state = JobState.CANCELLED if cancelled else JobState.FAILED
                jobs.pop(job_id).to(state, at=now)
    return replace(
        snapshot,
        jobs=jobs,
        runs=runs,
        claims=claims,
        nodes=nodes,
        balances=balances,
        decisions={**snapshot.decisions, **{d.job_id: d for d in plan.decisions}},
    )


def _held(balances: tuple[Balance, ...], hold: LedgerEntry) -> tuple[Balance, ...]:
    return tuple(
        replace(balance, held_micros=balance.held_micros + hold.amount_micros)
        if covers(balance.budget, hold)
        else balance
        for balance in balances
    )
