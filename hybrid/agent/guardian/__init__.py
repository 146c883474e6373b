"""The guardian: a small process that parents one run and writes down how it went.

It outlives the agent, which finds it again by boot id, pid and start time. It stops the run when
it is told to, when the run lease ends or when the walltime is over: signal, grace, SIGKILL of the
whole group and of whatever forked away. Only the standard library is used here, so that a
guardian starts in a few hundredths of a second.
"""

from __future__ import annotations

from hybrid.agent.guardian.handle import GuardianHandle, RunPhase, RunStatus
from hybrid.agent.guardian.journal import LiveSpan, live_span, read_journal
from hybrid.agent.guardian.output import (
    OUTPUT_LOG,
    STDERR_LOG,
    STDOUT_LOG,
    LogChunk,
    log_size,
    read_log,
)
from hybrid.agent.guardian.processes import ProcessIdentity, boot_id, boottime_s
from hybrid.agent.guardian.records import (
    EXIT_CHECKPOINTED,
    EXIT_DONE,
    Ended,
    InvalidOrder,
    Outcome,
    RunOrder,
    Started,
    Stopping,
    harder_cause,
)
from hybrid.agent.guardian.recover import GuardianAlive, LeftoversRemain, recover

__all__ = [
    "EXIT_CHECKPOINTED",
    "EXIT_DONE",
    "OUTPUT_LOG",
    "STDERR_LOG",
    "STDOUT_LOG",
    "Ended",
    "GuardianAlive",
    "GuardianHandle",
    "InvalidOrder",
    "LeftoversRemain",
    "LiveSpan",
    "LogChunk",
    "Outcome",
    "ProcessIdentity",
    "RunOrder",
    "RunPhase",
    "RunStatus",
    "Started",
    "Stopping",
    "boot_id",
    "boottime_s",
    "harder_cause",
    "live_span",
    "log_size",
    "read_journal",
    "read_log",
    "recover",
]
