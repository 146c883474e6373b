"""A plan's actions in words."""

from __future__ import annotations

from hybrid.domain.plan import (
    Action,
    CordonClaim,
    CordonNode,
    EndClaim,
    FailJob,
    OpenClaim,
    Place,
    RenewLease,
    Stop,
)


def told(action: Action) -> tuple[str, str, str]:
    """What kind of action it is, what it is about, and a sentence."""
    match action:
        case Place(run=run):
            where = ", ".join(run.node_ids)
            return "place", run.job_id, f"run {run.id} in {run.pool} on {where}"
        case Stop(run_id=run_id, cause=cause, words=words):
            return "stop", run_id, f"{cause}: {words}"
        case OpenClaim(claim=claim):
            return "open_claim", claim.id, f"{claim.offer.id} for job {claim.job_id}"
        case RenewLease(claim_id=claim_id):
            return "renew_lease", claim_id, "pay for the machine for longer"
        case CordonClaim(claim_id=claim_id, words=words):
            return "cordon_claim", claim_id, words
        case EndClaim(claim_id=claim_id, words=words):
            return "end_claim", claim_id, words
        case CordonNode(node_id=node_id, words=words):
            return "cordon_node", node_id, words
        case FailJob(job_id=job_id, reason=reason, cancelled=cancelled):
            return "cancel_job" if cancelled else "fail_job", job_id, str(reason)
