"""Starts the run's first process, collects the dead, and runs clean-up commands."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from hybrid.agent.guardian.processes import MARKER_NAME, boottime_s
from hybrid.agent.guardian.records import RunOrder

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE_OF_JOBS = b"500"
_CLEANUP_TRY_S = 30.0
_CLEANUP_DEADLINE_S = 120.0

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Let orphaned descendants become our children, so that none gets out of sight."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def start_child(
    run_dir: Path, order: RunOrder, secrets: Mapping[str, str], stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    """Start the first process in a session of its own; raises OSError when it cannot be.

    The process dies with the guardian (PR_SET_PDEATHSIG), and the kernel prefers it to the
    guardian and the agent when memory runs out.
    """
    guardian = os.getpid()

    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guardian:
            os._exit(1)  # the guardian died between fork and prctl
        # What the agent's own starter ignored or blocked is no business of the job.
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError):
            fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(fd, _OOM_SCORE_OF_JOBS)
            os.close(fd)

    return subprocess.Popen(
        list(order.argv),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=order.cwd,
        env={**order.env, **secrets, **_markers(run_dir, order.env)},
        start_new_session=True,
        preexec_fn=before_exec,
    )


def _markers(run_dir: Path, env: Mapping[str, str]) -> dict[str, str]:
    """What recovery looks for, also behind the prefix that carries variables into a container."""
    markers = {MARKER_NAME: str(run_dir)}
    for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
        if any(name.startswith(prefix) for name in env):
            markers[prefix + MARKER_NAME] = str(run_dir)
    return markers


def reap_all() -> dict[int, int]:
    """Collect every dead child; wait status by pid."""
    dead: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if pid == 0:
            return dead
        dead[pid] = status


def run_cleanup(
    commands: Iterable[tuple[str, ...]],
    env: Mapping[str, str],
    deadline_s: float = _CLEANUP_DEADLINE_S,
) -> str | None:
    """Run each clean-up command until it succeeds; None, or what could not be cleaned.

    They are repeated because a container engine that is restarting must not leave the job's
    container alive behind a record that says it ended.
    """
    end = boottime_s() + deadline_s
    for argv in commands:
        pause_s = 0.2
        while (fault := _try_command(argv, env)) is not None:
            if boottime_s() + pause_s > end:
                return f"{' '.join(argv)}: {fault}"
            time.sleep(pause_s)
            pause_s = min(5.0, pause_s * 2)
    return None


def _try_command(argv: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=Path("/"),
            timeout=_CLEANUP_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return f"exit {done.returncode}: {done.stderr[-300:].decode(errors='replace').strip()}"
