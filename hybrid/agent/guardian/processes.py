"""Who is alive on this machine, read from /proc; identities that survive pid reuse."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER_NAME = "HYBRID_GUARDED_IN"
"""The variable that every process of a run inherits: its run directory, which no two runs share
(the run id would not do: two ranks of a gang may meet on one machine)."""
_PROC = Path("/proc")
_MAX_ENVIRON_BYTES = 4 << 20


def boottime_s() -> float:
    """Seconds since boot, suspend included (CLOCK_BOOTTIME): no clock step can move it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The few fields of /proc/PID/stat that tell processes apart."""

    pid: int
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int

    @property
    def is_gone(self) -> bool:
        """A zombie runs nothing any more."""
        return self.state in "ZXx"


def read_stat(pid: int) -> ProcessStat | None:
    """The process, or None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields start after the last one.
    fields = text.rpartition(")")[2].split()
    try:
        return ProcessStat(
            pid=pid,
            state=fields[0],
            ppid=int(fields[1]),
            pgid=int(fields[2]),
            sid=int(fields[3]),
            start_ticks=int(fields[19]),
        )
    except (IndexError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process for good: the pid, the boot it belongs to and when it started in that boot."""

    pid: int
    boot_id: str
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The identity of a live process; raises ProcessLookupError."""
        stat = read_stat(pid)
        if stat is None:
            raise ProcessLookupError(pid)
        return cls(pid=pid, boot_id=boot_id(), start_ticks=stat.start_ticks)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ProcessIdentity:
        """Read back what :meth:`to_record` wrote; raises KeyError or ValueError."""
        return cls(
            pid=int(record["pid"]),
            boot_id=str(record["boot_id"]),
            start_ticks=int(record["start_ticks"]),
        )

    def to_record(self) -> dict[str, Any]:
        """For a JSON file."""
        return {"pid": self.pid, "boot_id": self.boot_id, "start_ticks": self.start_ticks}

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        stat = read_stat(self.pid)
        return (
            stat is not None
            and not stat.is_gone
            and stat.start_ticks == self.start_ticks
            and self.boot_id == boot_id()
        )

    def send(self, signum: int) -> bool:
        """Signal this very process; False when it is gone. Never hits a reused pid."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The descriptor pins the process, so what is_alive says now stays true for it.
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(fd, signum)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True


def all_processes() -> Iterator[ProcessStat]:
    """Every process that /proc shows, zombies included."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (stat := read_stat(int(entry.name))) is not None:
            yield stat


def descendants(root: int) -> list[ProcessStat]:
    """Live children, grandchildren and so on of ``root``, without ``root``."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in all_processes():
        children.setdefault(stat.ppid, []).append(stat)
    found: list[ProcessStat] = []
    front = [root]
    while front:
        for stat in children.pop(front.pop(), ()):
            front.append(stat.pid)
            if not stat.is_gone:
                found.append(stat)
    return found


def marked_with(run_dir: Path) -> list[ProcessStat]:
    """Live processes whose environment carries the marker of the run in ``run_dir``.

    Processes of other users cannot be read and are left out; the caller itself is never listed.
    """
    marker = f"{MARKER_NAME}={run_dir}".encode()
    own = os.getpid()
    found = []
    for stat in all_processes():
        if stat.is_gone or stat.pid == own:
            continue
        try:
            with (_PROC / str(stat.pid) / "environ").open("rb") as file:
                environ = file.read(_MAX_ENVIRON_BYTES)
        except OSError:
            continue
        if marker in environ.split(b"\0"):
            found.append(stat)
    return found


def kill_each(processes: Iterable[ProcessStat]) -> None:
    """SIGKILL every process and every group that one of them belongs to.

    A group is killed in one step by the kernel, so a process that keeps forking inside its group
    cannot outrun it. Every group met here was made inside the run (a process can only join groups
    of its own session, and the run began with one); the caller's own is left alone all the same.
    """
    stats = list(processes)
    this_boot = boot_id()
    for pgid in sorted({stat.pgid for stat in stats} - {0, 1, os.getpgrp()}):
        with contextlib.suppress(OSError):
            os.killpg(pgid, signal.SIGKILL)
    for stat in stats:
        ProcessIdentity(stat.pid, this_boot, stat.start_ticks).send(signal.SIGKILL)
