"""The guardian's loop: one run, from its start to the last of its processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybrid.agent.guardian import journal as events
from hybrid.agent.guardian.child import (
    reap_all,
    run_cleanup,
    start_child,
)
from hybrid.agent.guardian.durable import publish_reserved, read_record, write_record
from hybrid.agent.guardian.journal import Journal
from hybrid.agent.guardian.output import (
    OUTPUT_LOG,
    STDERR_LOG,
    STDOUT_LOG,
    BoundedLog,
    LineMerger,
)
from hybrid.agent.guardian.processes import (
    ProcessIdentity,
    boottime_s,
    descendants,
    kill_each,
)
from hybrid.agent.guardian.records import (
    CAUSE_INTERRUPTION,
    CAUSE_LEASE,
    CAUSE_TIMEOUT,
    EXIT_CHECKPOINTED,
    EXIT_DONE,
    Ended,
    RunOrder,
    Started,
    Stopping,
    StopRequest,
)
from hybrid.agent.guardian.rundir import RunDir

_READ_BYTES = 64 << 10
_PIPE_BYTES = 1 << 20
_CHECK_EVERY_S = 0.25
_DRAIN_S = 2.0
_OVERWRITE_S = 0.02
_PUBLISH_RETRY_S = 1.0


class Output:
    """Pumps the child's two pipes into three bounded logs."""

    def __init__(self, run: RunDir, limit_bytes: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._merged = BoundedLog(run.path / OUTPUT_LOG, limit_bytes)
        self._merger = LineMerger(self._merged)
        self._logs = {
            "stdout": BoundedLog(run.path / STDOUT_LOG, limit_bytes // 4),
            "stderr": BoundedLog(run.path / STDERR_LOG, limit_bytes // 4),
        }
        self._open: dict[str, int] = {}
        # Signals wake the loop through this pipe: no instant between a check and the wait is lost.
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, "")

    def pipe(self, stream: str) -> int:
        """A new pipe for ``stream``; the end to give to the child."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._open[stream] = read
        self._selector.register(read, selectors.EVENT_READ, stream)
        return write

    @property
    def is_open(self) -> bool:
        """Whether somebody can still write."""
        return bool(self._open)

    def pump(self, timeout_s: float) -> None:
        """Wait for output or a signal, and store at most one piece per stream."""
        ready = self._selector.select(max(0.0, timeout_s))
        for key, _ in ready:
            if not key.data:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                continue
            self._read(key.data, key.fd)
        if not any(key.data for key, _ in ready):
            self._merger.flush()

    def _read(self, stream: str, fd: int) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(fd)
            os.close(self._open.pop(stream))
            return
        self._logs[stream].write(data)
        self._merger.feed(stream, data)

    def close(self) -> int:
        """Flush everything; how many bytes of the merged log found no room."""
        self._merger.flush()
        for log in (self._merged, *self._logs.values()):
            log.close()
        return self._merged.lost_bytes


class Guard:
    """Guards one run. Must be used in the main thread of a process of its own."""

    def __init__(self, run: RunDir, order: RunOrder, journal: Journal) -> None:
        self._run = run
        self._order = order
        self._journal = journal
        self._output = Output(run, order.output_limit_bytes)
        self._child: subprocess.Popen[bytes] | None = None
        self._started: Started | None = None
        self._status: int | None = None
        self._stopping: Stopping | None = None
        self._told_to_end = False
        self._stop_seen: tuple[int, int] | None = None
        self._lease_until_s = self._read_lease()
        self._lease_seen: tuple[int, int] | None = None
        self._killed = False
        self._leftovers = 0
        for signum in (signal.SIGTERM, signal.SIGQUIT):
            signal.signal(signum, self._on_end_signal)
        # SIGCHLD and SIGURG (the agent's poke) only wake the loop; the others must not end it.
        for signum in (signal.SIGCHLD, signal.SIGURG, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)

    def _on_end_signal(self, *_: object) -> None:
        self._told_to_end = True

    def run(self, secrets: Mapping[str, str]) -> Ended:
        """Start, watch, stop, and record the end; returns the record."""
        # A stop or the end of the lease may have come first: then nothing is started at all.
        self._check(boottime_s())
        if self._stopping is not None:
            return self._publish("stopped before it started")
        error = self._start(secrets)
        if error is not None:
            return self._publish(error)
        self._watch()
        self._end_leftovers()
        return self._publish(None)

    # -- start ---------------------------------------------------------------------------------

    def _start(self, secrets: Mapping[str, str]) -> str | None:
        ends = [self._output.pipe("stdout"), self._output.pipe("stderr")]
        self._journal.note(events.STARTED)
        try:
            self._child = start_child(self._run.path, self._order, secrets, *ends)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            where = getattr(error, "filename", None) or self._order.argv[0]
            return f"cannot start {where}: {reason or 'refused by the system'}"[:1000]
        finally:
            for fd in ends:
                os.close(fd)
        started = Started(ProcessIdentity.of(self._child.pid), time.time(), boottime_s())
        self._started = started
        # A run whose start cannot be recorded (full disk) goes on: the claim tells whose it is.
        with contextlib.suppress(OSError):
            write_record(self._run.started, started.to_record())
        return None

    # -- watch ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        next_check_s = 0.0
        while True:
            now_s = boottime_s()
            self._output.pump(min(next_check_s, self._next_deadline_s()) - now_s)
            self._reap()
            now_s = boottime_s()
            if now_s >= min(next_check_s, self._next_deadline_s()) or self._has_news():
                self._check(now_s)
                next_check_s = now_s + _CHECK_EVERY_S
            if self._is_over(now_s):
                return

    def _next_deadline_s(self) -> float:
        if self._stopping is not None:
            return self._stopping.deadline_boottime_s
        return min(self._lease_until_s, self._walltime_end_s())

    def _walltime_end_s(self) -> float:
        if self._order.walltime_s is None or self._started is None:
            return float("inf")
        return self._started.started_boottime_s + self._order.walltime_s

    def _has_news(self) -> bool:
        return self._told_to_end or self._version("stop") != self._stop_seen

    def _version(self, which: str) -> tuple[int, int] | None:
        path = self._run.stop if which == "stop" else self._run.lease
        try:
            stat = path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns

    def _read_lease(self) -> float:
        """Until when the lease runs; a lease that cannot be read has ended."""
        record = self._read_settled(self._run.lease)
        try:
            return float(record["until_boottime_s"]) if record else 0.0
        except (KeyError, TypeError, ValueError):
            return 0.0

    @staticmethod
    def _read_settled(path: Path) -> dict[str, Any] | None:
        """A record that may be overwritten in place this very moment."""
        record = read_record(path)
        if record is None and path.exists():
            time.sleep(_OVERWRITE_S)
            record = read_record(path)
        return record

    def _check(self, now_s: float) -> None:
        version = self._version("lease")
        if version != self._lease_seen or version is None:
            self._lease_seen = version
            self._lease_until_s = self._read_lease()
        version = self._version("stop")
        if version != self._stop_seen:
            self._stop_seen = version
            request = StopRequest.from_record(self._read_settled(self._run.stop))
            if request is not None:
                self._stop(request, now_s)
        own_deadline_s = now_s + self._order.grace_s
        if self._told_to_end:
            self._told_to_end = False
            self._stop(StopRequest(CAUSE_INTERRUPTION, own_deadline_s), now_s)
        if self._stopping is not None:
            return
        if now_s >= self._walltime_end_s():
            self._stop(StopRequest(CAUSE_TIMEOUT, own_deadline_s), now_s)
        elif now_s >= self._lease_until_s:
            self._stop(StopRequest(CAUSE_LEASE, own_deadline_s), now_s)

    def _stop(self, request: StopRequest, now_s: float) -> None:
        first = self._stopping is None
        if self._stopping is not None:
            before = self._stopping
            request = request.merged(StopRequest(before.cause, before.deadline_boottime_s))
            if request == StopRequest(before.cause, before.deadline_boottime_s):
                return
            stopping = Stopping(
                request.cause, before.stop_at, before.stop_boottime_s, request.deadline_boottime_s
            )
        else:
            # A request written long ago by an agent that then died still gets at most our grace.
            deadline_s = min(request.deadline_boottime_s, now_s + self._order.grace_s)
            stopping = Stopping(request.cause, time.time(), now_s, deadline_s)
        self._stopping = stopping
        if first:
            self._signal_group(self._order.stop_signum)
        self._journal.note(events.STOPPING, cause=stopping.cause)
        with contextlib.suppress(OSError):
            write_record(self._run.stopping, stopping.to_record())

    def _signal_group(self, signum: int) -> None:
        # The first process has not been reaped here, so its pid still names its group.
        if self._child is not None and self._status is None:
            with contextlib.suppress(OSError):
                os.killpg(self._child.pid, signum)

    def _reap(self) -> None:
        """Collect the dead, adopted orphans included; keep how the first process ended."""
        assert self._child is not None
        status = reap_all().get(self._child.pid)
        if status is not None:
            self._status = status
            # Popen must not wait for what has been collected already.
            self._child.returncode = os.waitstatus_to_exitcode(status)

    def _is_over(self, now_s: float) -> bool:
        if self._stopping is not None and now_s >= self._stopping.deadline_boottime_s:
            self._killed = self._status is None
            return True
        if self._status is None:
            return False
        if self._stopping is None:
            return True
        code = os.waitstatus_to_exitcode(self._status)
        # It said that it is done; else members of its group may be in the middle of a checkpoint.
        return code in (EXIT_DONE, EXIT_CHECKPOINTED) or not self._group_members()

    def _group_members(self) -> bool:
        assert self._child is not None
        return any(stat.pgid == self._child.pid for stat in descendants(os.getpid()))

    # -- end -----------------------------------------------------------------------------------

    def _end_leftovers(self) -> None:
        assert self._child is not None
        left = descendants(os.getpid())
        self._leftovers = sum(1 for stat in left if stat.pid != self._child.pid)
        if left:
            self._journal.note(events.KILLING, pids=[stat.pid for stat in left][:100])
        self._kill_all()
        end_s = boottime_s() + _DRAIN_S
        while self._output.is_open and boottime_s() < end_s:
            self._output.pump(end_s - boottime_s())

    def _kill_all(self) -> None:
        """Return only when no process is left: an end is never recorded over a live one."""
        pause_s = 0.001
        said_so = False
        while True:
            left = descendants(os.getpid())
            kill_each(left)
            self._reap()
            if not left and self._status is not None:
                return
            self._output.pump(pause_s)
            pause_s = min(0.1, pause_s * 2)
            if pause_s == 0.1 and not said_so:
                said_so = True
                self._journal.note(events.KILLING, slow=[stat.pid for stat in left][:100])

    def _publish(self, error: str | None) -> Ended:
        unclean = None
        if self._child is not None and self._order.cleanup:
            unclean = run_cleanup(self._order.cleanup, self._order.env)
        lost_bytes = self._output.close()
        now_s = boottime_s()
        code, signame = _exit_of(self._status)
        ended = Ended(
            run_id=self._order.run_id,
            job_id=self._order.job_id,
            attempt=self._order.attempt,
            exit_code=code,
            exit_signal=signame,
            cause=None if self._stopping is None else self._stopping.cause,
            ended_at=time.time(),
            ended_boottime_s=now_s,
            started_at=None if self._started is None else self._started.started_at,
            stop_took_s=None if self._stopping is None else now_s - self._stopping.stop_boottime_s,
            killed=self._killed,
            leftovers_killed=self._leftovers,
            lost_output_bytes=lost_bytes,
            error=error or (f"not cleaned up: {unclean}"[:1000] if unclean else None),
            process=None if self._started is None else self._started.process,
            rank=self._order.rank,
        )
        self._journal.note(events.ENDED, exit_code=code, exit_signal=signame, cause=ended.cause)
        while True:
            try:
                publish_reserved(self._run.ended_reserve, self._run.ended, ended.to_record())
            except OSError:
                if not self._run.path.exists():
                    return ended
                # The result must not be lost: stay until it can be written.
                time.sleep(_PUBLISH_RETRY_S)
            else:
                return ended


def _exit_of(status: int | None) -> tuple[int | None, str | None]:
    if status is None:
        return None, None
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code, None
    try:
        return None, signal.Signals(-code).name
    except ValueError:
        return None, f"SIG{-code}"
