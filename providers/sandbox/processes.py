"""Finding and ending every process of a machine.

A machine's processes start their own sessions, double-fork and outlive their parents: guardians are
built to. Without root there are no cgroups or PID namespaces to hold them, and process groups and
sessions lose whoever calls ``setsid``. Three ties remain, and each covers for the others:

- **Descent.** The machine's init is a *child subreaper*: orphans below it become its children
  instead of leaving, so everything stays in its tree as long as init lives.
- **An environment marker.** ``HYBRID_SANDBOX_MACHINE=<instance id>`` is set for the machine's first
  process. ``/proc/<pid>/environ`` shows the environment that a process was started with: it is
  inherited through ``fork`` and (unless scrubbed, as agents do for their jobs) ``exec``, and
  neither re-parenting nor ``setsid`` changes it. It holds even when init was killed.
- **The disk.** Whoever works in a directory of the machine without a terminal is on that machine:
  that is where jobs with a scrubbed environment run. (Someone with a terminal is looking at it.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
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
    has_terminal: bool
    stopped: bool = False
    """It runs nothing until it is told to go on (SIGSTOP)."""


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
    return Process(pid, int(fields[1]), int(fields[19]), fields[4] != "0", fields[0] == "T")


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


@dataclass(frozen=True, slots=True)
class Ties:
    """What a machine's processes are known by; ``init_pid`` None once it has no power."""

    instance_id: str
    directory: Path
    init_pid: int | None


def members(machine: Ties) -> dict[int, Process]:
    """The live processes of a machine, init included."""
    return census([machine])[machine.instance_id]


def census(machines: Collection[Ties]) -> dict[str, dict[int, Process]]:
    """Instance id → its live processes, for all machines in one pass over the process table."""
    alive = processes()
    homes = {f"{ties.directory}/": ties.instance_id for ties in machines}
    found: dict[str, dict[int, Process]] = {name: {} for name in homes.values()}
    for ties in machines:
        if ties.init_pid is not None:
            below = descendants(ties.init_pid, alive) | {ties.init_pid}
            found[ties.instance_id] = {pid: alive[pid] for pid in below if pid in alive}
    for pid, each in alive.items():
        owner = marked_as(pid) or ("" if each.has_terminal else _at_home(pid, homes))
        if owner in found:
            found[owner][pid] = each
    return found


def _at_home(pid: int, homes: Mapping[str, str]) -> str:
    try:
        directory = f"{(_PROC / str(pid) / 'cwd').readlink()}/"
    except OSError:
        return ""
    return next((name for home, name in homes.items() if directory.startswith(home)), "")


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each; those that are gone by now are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_until_all(machine: Ties, timeout_s: float) -> tuple[int, set[int]]:
    """SIGSTOP the processes of a machine until all stand still; how many there are, and those that
    do not. Once is not enough: one that is not stopped yet may have begun another meanwhile."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = members(machine)
        running = {pid for pid, each in found.items() if not each.stopped}
        if not running or time.monotonic() > deadline:
            return len(found), running
        send(running, signal.SIGSTOP)


def kill_until_none(machine: Ties, known: Mapping[int, Process], timeout_s: float) -> set[int]:
    """SIGKILL the known and the tied processes until none is left; returns those still there."""
    deadline = time.monotonic() + timeout_s
    while True:
        # a process known before may have lost its ties since, but not its start time
        left = {pid for pid, each in known.items() if _same(pid, each)}
        left |= set(members(machine))
        if not left or time.monotonic() > deadline:
            return left
        send(left, signal.SIGKILL)
        time.sleep(_SCAN_S)


def _same(pid: int, before: Process) -> bool:
    now = process(pid)
    return now is not None and now.started_ticks == before.started_ticks
