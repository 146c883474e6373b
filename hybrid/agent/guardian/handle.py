"""The agent's side of a guardian: start it, find it again, read it, tell it to stop."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hybrid.agent.guardian.durable import read_record, write_record, write_record_once
from hybrid.agent.guardian.processes import ProcessIdentity, boottime_s, read_stat
from hybrid.agent.guardian.records import (
    Ended,
    InvalidOrder,
    RunOrder,
    Started,
    Stopping,
    StopRequest,
)
from hybrid.agent.guardian.rundir import RunDir

# What a Python process and a container client need; never the agent's own credentials.
_GUARDIAN_ENV = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
)


class RunPhase(enum.StrEnum):
    """Where a run stands on its node.

    ``unclaimed``: no guardian has it (start one, or recover it to give it up). ``lost``: its
    guardian died without recording an end (recover it).
    """

    UNCLAIMED = "unclaimed"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run's phase and the facts behind it."""

    run_id: str
    job_id: str
    attempt: int
    phase: RunPhase
    guardian: ProcessIdentity | None = None
    started: Started | None = None
    stopping: Stopping | None = None
    ended: Ended | None = None


class GuardianHandle:
    """One run on this node. Threads may share a handle; so may handles share a run directory."""

    def __init__(self, run_dir: Path, order: RunOrder, child_pid: int | None = None) -> None:
        self._run = RunDir(run_dir)
        self._order = order
        self._child_pid = child_pid

    @classmethod
    def spawn(
        cls,
        run_dir: Path,
        order: RunOrder,
        *,
        lease_until_boottime_s: float,
        secrets: Mapping[str, str] | None = None,
    ) -> GuardianHandle:
        """Start a guardian for ``order`` in ``run_dir``; the same run twice is started once.

        Returns at once; ``status()`` tells how it goes. ``secrets`` join the environment of the
        job and touch no file. Raises InvalidOrder when the directory holds another run, OSError
        when it cannot be written.
        """
        run_dir = run_dir.absolute()
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = RunDir(run_dir)
        record = read_record(run.spec)
        if record is None:
            write_record(run.spec, order.to_record())
        elif record.get("run_id") != order.run_id:
            raise InvalidOrder(f"{run_dir} belongs to run {record.get('run_id')}")
        handle = cls(run_dir, order)
        handle.renew_lease(lease_until_boottime_s)
        # There from the beginning, so that a stop can be written when the disk is full.
        write_record_once(run.stop, {})
        if run.claimed.exists():
            return handle
        handle._child_pid = _spawn_guardian(run, secrets or {})
        return handle

    @classmethod
    def adopt(cls, run_dir: Path) -> GuardianHandle:
        """Take over a run that another agent process started; raises InvalidOrder, whatever state
        its guardian is in: ``status()`` tells."""
        run_dir = run_dir.absolute()
        record = read_record(RunDir(run_dir).spec)
        if record is None:
            raise InvalidOrder(f"{run_dir} holds no readable spec.json")
        return cls(run_dir, RunOrder.from_record(record))

    @property
    def run_dir(self) -> Path:
        """Where the run's files are."""
        return self._run.path

    @property
    def order(self) -> RunOrder:
        """What it runs."""
        return self._order

    def is_alive(self) -> bool:
        """Whether the run's guardian lives, by boot id, pid and start time."""
        guardian = self._guardian()
        if guardian is not None:
            alive = guardian.is_alive()
            self._collect()
            return alive
        self._collect()
        return self._child_pid is not None and read_stat(self._child_pid) is not None

    def status(self) -> RunStatus:
        """What the run directory and /proc say now."""
        alive = self.is_alive()  # first: a guardian that ends meanwhile has written its record
        guardian = self._guardian()
        claimed = self._run.claimed.exists()
        started = Started.from_record(read_record(self._run.started))
        stopping = Stopping.from_record(read_record(self._run.stopping))
        ended = Ended.from_record(read_record(self._run.ended))
        if ended is not None:
            phase = RunPhase.ENDED
        elif not claimed:
            phase = RunPhase.STARTING if alive else RunPhase.UNCLAIMED
        elif not alive:
            phase = RunPhase.LOST
        elif stopping is not None:
            phase = RunPhase.STOPPING
        else:
            phase = RunPhase.STARTING if started is None else RunPhase.RUNNING
        return RunStatus(
            run_id=self._order.run_id,
            job_id=self._order.job_id,
            attempt=self._order.attempt,
            phase=phase,
            guardian=guardian,
            started=started,
            stopping=stopping,
            ended=ended,
        )

    def request_stop(self, cause: str, grace_s: float | None = None) -> None:
        """Ask for a stop: signal now, SIGKILL after ``grace_s`` (None: the order's).

        Safe to repeat. Of several requests the hardest cause and the earliest deadline hold.
        """
        grace_s = self._order.grace_s if grace_s is None else max(0.0, grace_s)
        request = StopRequest(cause, boottime_s() + min(grace_s, self._order.grace_s))
        with self._locked():
            earlier = StopRequest.from_record(read_record(self._run.stop))
            merged = request if earlier is None else earlier.merged(request)
            if merged != earlier:
                write_record(self._run.stop, merged.to_record())
        guardian = self._guardian()
        if guardian is not None:
            guardian.send(signal.SIGURG)  # ignored by default: harmless if it is not ready yet

    def renew_lease(self, until_boottime_s: float) -> None:
        """Let the run go on until ``until_boottime_s`` (CLOCK_BOOTTIME); never shortens it."""
        with self._locked():
            record = read_record(self._run.lease) or {}
            with contextlib.suppress(TypeError, ValueError):
                if float(record.get("until_boottime_s", 0.0)) >= until_boottime_s:
                    return
            # No sync: a lease means nothing after a crash of the machine, which ends every run.
            write_record(self._run.lease, {"until_boottime_s": until_boottime_s}, durable=False)

    def _guardian(self) -> ProcessIdentity | None:
        """The guardian that claimed the run; None while nobody has, or when a recovery did."""
        record = read_record(self._run.claimed)
        try:
            if record is None or record.get("recovery"):
                return None
            return ProcessIdentity.from_record(record)
        except (KeyError, TypeError, ValueError):
            return None

    def _collect(self) -> None:
        """Let the kernel forget a dead guardian that is our child."""
        if self._child_pid is None:
            return
        try:
            pid, _ = os.waitpid(self._child_pid, os.WNOHANG)
        except ChildProcessError:
            pid = self._child_pid
        if pid:
            self._child_pid = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._run.stop_lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _spawn_guardian(run: RunDir, secrets: Mapping[str, str]) -> int:
    """Start the guardian's process in a session of its own; its pid.

    ``-P`` keeps the job's files out of the import path. posix_spawn, because a fork of a threaded
    agent is neither cheap nor safe.
    """
    read, write = os.pipe()
    log = os.open(run.guardian_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "hybrid.agent.guardian", str(run.path)],
            {name: os.environ[name] for name in _GUARDIAN_ENV if name in os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD],
            setsigmask=[],
        )
        os.close(read)
        read = -1
        with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(write), "wb") as pipe:
            pipe.write(json.dumps(dict(secrets)).encode() + b"\n")
    finally:
        for fd in (read, write, log):
            if fd >= 0:
                os.close(fd)
    return pid
