"""Finding and ending every process of a machine.

A machine's processes start their own sessions, double-fork and outlive their parents: guardians are
built to. Without root there are no cgroups or PID namespaces to hold them, and process groups and
sessions lose whoever calls ``setsid``. Two ties remain, and both are used:

- **An environment marker.** ``HYBRID_SANDBOX_MACHINE=<instance id>`` is set for the machine's first
  process. ``/proc/<pid>/environ`` shows the environment that a process was started with: it is
  inherited through ``fork`` and (unless scrubbed on purpose) ``exec``, and neither re-parenting nor
  ``setsid`` changes it.
- **Descent.** The machine's init is a *child subreaper*: orphans below it become its children
  instead of leaving, so everything stays in its tree, scrubbed environment or not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MARKER = "HYBRID_SANDBOX_MACHINE"
UNIT_MARKER = "HYBRID_SANDBOX_UNIT"

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_SCAN_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A live process; ``started_ticks`` tells it from a later one with the same pid."""

    pid: int
    parent: int
    started_ticks: int


def become_subreaper() -> None:
    """Adopt orphaned descendants from now on. Raises ``OSError`` where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def process(pid: int) -> Process | None:
    """The live process with this pid, or None; a zombie is not alive."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the command's name is in brackets and may hold anything: fields are counted after it
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return None
    return Process(pid, int(fields[1]), int(fields[19]))


def processes() -> dict[int, Process]:
    """Every live process of this machine by pid."""
    found = {}
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            alive = process(int(entry.name))
            if alive is not None:
                found[alive.pid] = alive
    return found


def marked_as(pid: int, marker: str = MARKER) -> str | None:
    """The instance (or unit) that a process belongs to by its environment, or None."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    wanted = marker.encode() + b"="
    for variable in environment.split(b"\0"):
        if variable.startswith(wanted):
            return variable[len(wanted) :].decode("utf-8", "replace")
    return None


def descendants(root: int, alive: Mapping[int, Process]) -> set[int]:
    """Everything below a process in the tree, itself excluded."""
    children: dict[int, list[int]] = {}
    for each in alive.values():
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    open_pids = [root]
    while open_pids:
        for pid in children.get(open_pids.pop(), ()):
            if pid not in found:
                found.add(pid)
                open_pids.append(pid)
    return found


def census() -> dict[str, set[int]]:
    """Instance id → the pids marked as its own, in one pass over the process table."""
    found: dict[str, set[int]] = {}
    for pid in processes():
        owner = marked_as(pid)
        if owner is not None:
            found.setdefault(owner, set()).add(pid)
    return found


def members(instance_id: str, init_pid: int | None) -> dict[int, Process]:
    """The live processes of a machine: marked as its own, or below its init."""
    alive = processes()
    below = set() if init_pid is None else descendants(init_pid, alive) | {init_pid}
    return {
        pid: each for pid, each in alive.items() if pid in below or marked_as(pid) == instance_id
    }


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each; those that are gone by now are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_until_none(instance_id: str, known: Mapping[int, Process], timeout_s: float) -> set[int]:
    """SIGKILL the known and the marked processes until none is left; returns those still there."""
    deadline = time.monotonic() + timeout_s
    while True:
        # a process known before may have lost its place in the tree since, but not its start time
        left = {pid for pid, each in known.items() if _same(pid, each)}
        left |= set(members(instance_id, None))
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _same(pid: int, before: Process) -> bool:
    now = process(pid)
    return now is not None and now.started_ticks == before.started_ticks
