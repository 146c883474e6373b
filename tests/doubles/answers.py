"""Answers of the API, as documents."""

from __future__ import annotations

from typing import Any

AT = "2030-01-01T00:00:00Z"


def run(attempt: int, state: str, job_id: str = "j", **changes: Any) -> dict[str, Any]:
    """One run of a job."""
    return {
        "id": f"{job_id}.{attempt}", "attempt": attempt, "state": state, "pool": "local",
        "engine": "agent", "slots": [{"node_id": "n1", "gpu_ids": []}], "claim_ids": [],
        "gpu_model": "", "price_usd_per_hour": "0.000000", "assigned_at": AT, "started_at": AT,
        "expected_end_at": None, "ended_at": AT if state == "ended" else None, "stop_cause": None,
        "exit_code": None, "resumed_from": None, "first_step": None, "progress": None,
        "outputs": [], **changes,
    }  # fmt: skip


def job(state: str, *runs: dict[str, Any], job_id: str = "j", **changes: Any) -> dict[str, Any]:
    """A job with its runs."""
    ended = state in ("succeeded", "failed", "cancelled")
    return {
        "id": job_id, "name": "job", "team": "red", "user": "ann", "priority": "normal",
        "state": state, "reason": "", "submitted_at": AT, "queued_at": AT,
        "ended_at": AT if ended else None, "nodes": 1, "gpus": 1, "attempts": len(runs),
        "failures": 0, "cancel_requested": False, "stop_cause": None, "exit_code": None,
        "cost_usd": "0.000000", "pool": None, "decision": None,
        "spec": {"command": ["true"]}, "checkpoint": None, "history": [], "runs": list(runs),
        "wait_s": None, **changes,
    }  # fmt: skip
