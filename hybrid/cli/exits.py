"""What the exit code of a command says, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. ``hybrid run`` ends with its job's own code instead, and ``hybrid logs
    --follow`` with 0 or 1."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    NOT_FOUND = 5
    CANNOT_START = 6
    FAULT = 70
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """One line for the reference."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "Done.",
    Exit.FAILED: "The job failed or was cancelled; or a check of `hybrid doctor` failed.",
    Exit.USAGE: "The command line or a file named on it cannot be understood.",
    Exit.UNREACHABLE: "No server was found, or it does not answer.",
    Exit.REFUSED: "The server refused: the message says why and what to write instead.",
    Exit.NOT_FOUND: "There is no such job, pool, node, token or output.",
    Exit.CANNOT_START: (
        "The server or the agent cannot start, or the state directory cannot be used:"
        " a port in use, a folder that cannot be written to, a database newer than the program."
    ),
    Exit.FAULT: "A fault of hybrid itself; `HYBRID_DEBUG=1` shows where.",
    Exit.INTERRUPTED: "Interrupted with Ctrl-C; a job that was followed goes on.",
}


class CliError(Exception):
    """Ends a command: one line for people (what, where, what to do) and the exit code."""

    def __init__(self, exit_: Exit, message: str, *, hint: str = "") -> None:
        self.exit, self.hint = exit_, hint
        super().__init__(message)


def job_exit(state: str, exit_code: int | None) -> int:
    """With what ``hybrid run`` ends for a job that ended so: its own exit code, 128 + n for a
    signal, 1 where the job has none."""
    if state == "succeeded":
        return Exit.OK
    if state != "failed" or not exit_code:
        return Exit.FAILED
    return 128 - exit_code if exit_code < 0 else exit_code
