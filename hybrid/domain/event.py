"""What happened, for timelines and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What an event is about."""

    JOB = "job"
    RUN = "run"
    CLAIM = "claim"
    NODE = "node"
    POOL = "pool"
    BUDGET = "budget"
    POLICY = "policy"
    TOKEN = "token"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a timeline. ``job_id`` files it under a job, whatever it is about."""

    kind: EventKind
    subject: str
    what: str
    at: float
    words: str = ""
    job_id: str = ""
    actor: str = "loop"
