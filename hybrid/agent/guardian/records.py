"""What agent and guardian tell each other, as frozen records with a JSON form."""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybrid.agent.guardian.processes import ProcessIdentity

EXIT_DONE = 0
EXIT_CHECKPOINTED = 85
MAX_GRACE_S = 86_400.0
DEFAULT_OUTPUT_LIMIT_BYTES = 64 << 20

#: Stop causes from mild to hard, as in the domain (which is too heavy to import in a guardian).
HARDNESS = (
    "return",
    "consolidate",
    "preempt",
    "drain",
    "lease",
    "interruption",
    "timeout",
    "cancel",
    "peer_failed",
    "node_lost",
)
CAUSE_LEASE = "lease"
CAUSE_TIMEOUT = "timeout"
CAUSE_INTERRUPTION = "interruption"
CAUSE_NODE_LOST = "node_lost"

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


class InvalidOrder(ValueError):
    """A run order that no guardian may take; the message names the field."""


def harder_cause(first: str, second: str) -> str:
    """The cause that wins when a run is stopped for two reasons."""

    def rank(cause: str) -> int:
        return HARDNESS.index(cause) if cause in HARDNESS else -1

    return second if rank(second) > rank(first) else first


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What the guardian is to run.

    ``env`` is the whole environment of the process (nothing is inherited); secrets travel beside
    it, in memory. ``rank`` tells the members of a gang apart. ``cleanup`` holds commands, each
    safe to repeat, that remove what the process leaves outside its process tree: a container.
    ``output_limit_bytes`` bounds the disk that the merged output takes; stdout and stderr take at
    most a quarter of it each.
    """

    run_id: str
    job_id: str
    attempt: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float = 30.0
    stop_signal: str = "SIGTERM"
    walltime_s: float | None = None
    cleanup: tuple[tuple[str, ...], ...] = ()
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    rank: int = 0

    def __post_init__(self) -> None:
        for name in ("run_id", "job_id"):
            if not _IDENTIFIER.match(getattr(self, name)):
                raise InvalidOrder(f"{name}: {getattr(self, name)!r} is not a plain identifier")
        if not self.argv or not self.argv[0]:
            raise InvalidOrder("argv: a command is needed")
        if any("\0" in text for text in (*self.argv, *self.env, *self.env.values(), self.cwd)):
            raise InvalidOrder("argv, env and cwd: a zero byte cannot reach a process")
        if not 0 <= self.grace_s <= MAX_GRACE_S:
            raise InvalidOrder(f"grace_s: {self.grace_s} is outside 0…{MAX_GRACE_S:.0f}")
        if self.walltime_s is not None and self.walltime_s <= 0:
            raise InvalidOrder(f"walltime_s: {self.walltime_s} is not above 0")
        if self.output_limit_bytes < 1 << 16:
            raise InvalidOrder("output_limit_bytes: at least 65536")
        if self.stop_signal not in signal.Signals.__members__:
            raise InvalidOrder(f"stop_signal: {self.stop_signal!r} is not a signal's name")

    @property
    def stop_signum(self) -> int:
        """The number of ``stop_signal``."""
        return signal.Signals[self.stop_signal].value

    def to_record(self) -> dict[str, Any]:
        """For ``spec.json``."""
        return {
            "run_id": self.run_id,
            "job_id": self.job_id,
            "attempt": self.attempt,
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "grace_s": self.grace_s,
            "stop_signal": self.stop_signal,
            "walltime_s": self.walltime_s,
            "cleanup": [list(argv) for argv in self.cleanup],
            "output_limit_bytes": self.output_limit_bytes,
            "rank": self.rank,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> RunOrder:
        """Read ``spec.json`` back; raises InvalidOrder."""
        try:
            walltime_s = record["walltime_s"]
            return cls(
                run_id=str(record["run_id"]),
                job_id=str(record["job_id"]),
                attempt=int(record["attempt"]),
                argv=tuple(str(word) for word in record["argv"]),
                env={str(name): str(value) for name, value in record["env"].items()},
                cwd=str(record["cwd"]),
                grace_s=float(record["grace_s"]),
                stop_signal=str(record["stop_signal"]),
                walltime_s=None if walltime_s is None else float(walltime_s),
                cleanup=tuple(tuple(str(word) for word in argv) for argv in record["cleanup"]),
                output_limit_bytes=int(record["output_limit_bytes"]),
                rank=int(record["rank"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidOrder(f"spec.json: {error}") from error


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Stop for ``cause``, and kill at ``deadline_boottime_s`` (CLOCK_BOOTTIME)."""

    cause: str
    deadline_boottime_s: float

    def merged(self, other: StopRequest) -> StopRequest:
        """Both at once: the harder cause, the earlier deadline. Grace shrinks, never grows."""
        return StopRequest(
            harder_cause(self.cause, other.cause),
            min(self.deadline_boottime_s, other.deadline_boottime_s),
        )

    def to_record(self) -> dict[str, Any]:
        """For ``stop.json``."""
        return {"cause": self.cause, "deadline_boottime_s": self.deadline_boottime_s}

    @classmethod
    def from_record(cls, record: dict[str, Any] | None) -> StopRequest | None:
        """None for anything that is not a stop request."""
        try:
            assert record is not None
            return cls(str(record["cause"])[:64], float(record["deadline_boottime_s"]))
        except (AssertionError, KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Started:
    """The run's first process."""

    process: ProcessIdentity
    started_at: float
    started_boottime_s: float

    def to_record(self) -> dict[str, Any]:
        """For ``started.json``."""
        return {
            **self.process.to_record(),
            "started_at": self.started_at,
            "started_boottime_s": self.started_boottime_s,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any] | None) -> Started | None:
        """None for anything that is not such a record."""
        try:
            assert record is not None
            return cls(
                ProcessIdentity.from_record(record),
                float(record["started_at"]),
                float(record["started_boottime_s"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Stopping:
    """A stop in progress."""

    cause: str
    stop_at: float
    stop_boottime_s: float
    deadline_boottime_s: float

    def to_record(self) -> dict[str, Any]:
        """For ``stopping.json``."""
        return {
            "cause": self.cause,
            "stop_at": self.stop_at,
            "stop_boottime_s": self.stop_boottime_s,
            "deadline_boottime_s": self.deadline_boottime_s,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any] | None) -> Stopping | None:
        """None for anything that is not such a record."""
        try:
            assert record is not None
            return cls(
                str(record["cause"]),
                float(record["stop_at"]),
                float(record["stop_boottime_s"]),
                float(record["deadline_boottime_s"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError):
            return None


class Outcome(enum.StrEnum):
    """What the exit says, whatever the cause of the end."""

    DONE = "done"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    ``cause`` is None when the process ended by itself, else the stop cause. ``exit_code`` and
    ``exit_signal`` are both None when nobody saw the end (``node_lost``) or when the process
    could not be started (``error`` says why). ``stop_took_s`` counts from the signal until no
    process of the run was left. ``killed`` tells that the first process had to be
    ended by SIGKILL; ``leftovers_killed`` counts other processes of the run that had to be.
    """

    run_id: str
    job_id: str
    attempt: int
    exit_code: int | None
    exit_signal: str | None
    cause: str | None
    ended_at: float
    ended_boottime_s: float
    started_at: float | None = None
    stop_took_s: float | None = None
    killed: bool = False
    leftovers_killed: int = 0
    lost_output_bytes: int = 0
    error: str | None = None
    process: ProcessIdentity | None = None
    rank: int = 0

    @property
    def outcome(self) -> Outcome:
        """The exit code in the words of the job contract."""
        if self.exit_code == EXIT_DONE:
            return Outcome.DONE
        if self.exit_code == EXIT_CHECKPOINTED:
            return Outcome.CHECKPOINTED
        if self.exit_code is None and self.exit_signal is None and self.error is None:
            return Outcome.UNKNOWN
        return Outcome.FAILED

    def to_record(self) -> dict[str, Any]:
        """For ``ended.json``."""
        return {
            "run_id": self.run_id,
            "job_id": self.job_id,
            "attempt": self.attempt,
            "exit_code": self.exit_code,
            "exit_signal": self.exit_signal,
            "cause": self.cause,
            "outcome": self.outcome.value,
            "ended_at": self.ended_at,
            "ended_boottime_s": self.ended_boottime_s,
            "started_at": self.started_at,
            "stop_took_s": self.stop_took_s,
            "killed": self.killed,
            "leftovers_killed": self.leftovers_killed,
            "lost_output_bytes": self.lost_output_bytes,
            "error": self.error,
            "process": None if self.process is None else self.process.to_record(),
            "rank": self.rank,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any] | None) -> Ended | None:
        """None for anything that is not such a record."""
        try:
            assert record is not None
            process = record["process"]
            return cls(
                run_id=str(record["run_id"]),
                job_id=str(record["job_id"]),
                attempt=int(record["attempt"]),
                exit_code=record["exit_code"],
                exit_signal=record["exit_signal"],
                cause=record["cause"],
                ended_at=float(record["ended_at"]),
                ended_boottime_s=float(record["ended_boottime_s"]),
                started_at=record["started_at"],
                stop_took_s=record["stop_took_s"],
                killed=bool(record["killed"]),
                leftovers_killed=int(record["leftovers_killed"]),
                lost_output_bytes=int(record["lost_output_bytes"]),
                error=record["error"],
                process=None if process is None else ProcessIdentity.from_record(process),
                rank=int(record["rank"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError):
            return None
