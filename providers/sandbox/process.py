"""Start, find and stop a sandbox process.

The process belongs to nobody: it has a session of its own and goes on when its starter ends, unless
it was started ``until_pid``, which ties its life to another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from providers.sandbox.config import SandboxConfig
from providers.sandbox.control import SandboxControl
from providers.sandbox.processes import process
from providers.sandbox.views import Endpoint

ENDPOINT_FILE = "endpoint.json"
LOG_FILE = "sandbox.log"
START_S = 30.0
STOP_S = 20.0
_POLL_S = 0.02


class SandboxNotRunning(RuntimeError):
    """There is no sandbox process for this state directory, or it could not be started."""


@dataclass(frozen=True, slots=True)
class SandboxHandle:
    """A running sandbox process: where it is and how to end it."""

    state_dir: Path
    endpoint: Endpoint

    @property
    def url(self) -> str:
        return self.endpoint.url

    @property
    def pid(self) -> int:
        return self.endpoint.pid

    def alive(self) -> bool:
        """Whether it still runs; a later process with the same pid does not count."""
        now = process(self.endpoint.pid)
        return now is not None and now.started_ticks == self.endpoint.pid_started_ticks

    def control(self) -> SandboxControl:
        """A client of its control API; close it when done."""
        return SandboxControl(self.url)

    def environment(self) -> dict[str, str]:
        """The variables that point any AWS SDK at it."""
        return client_environment(self.url, self.endpoint.region)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End its machines and then itself; killed when it does not obey in time."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            _reap(self.pid)
            time.sleep(_POLL_S)
        _reap(self.pid)


def client_environment(url: str, region: str) -> dict[str, str]:
    """The variables that point any AWS SDK at a sandbox cloud, and at nothing else."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def find_sandbox(state_dir: Path) -> SandboxHandle:
    """The sandbox that serves this state directory. Raises ``SandboxNotRunning``."""
    try:
        text = (state_dir / ENDPOINT_FILE).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SandboxNotRunning(f"no sandbox was started in {state_dir}") from error
    handle = SandboxHandle(state_dir, Endpoint.model_validate_json(text))
    if not handle.alive():
        raise SandboxNotRunning(f"the sandbox of {state_dir} (pid {handle.pid}) is gone")
    return handle


def start_sandbox(
    state_dir: Path,
    config: SandboxConfig | None = None,
    *,
    port: int = 0,
    until_pid: int | None = None,
    timeout_s: float = START_S,
) -> SandboxHandle:
    """Start a sandbox process and wait until it answers.

    ``until_pid``: it ends its machines and itself when that process is gone. Raises
    ``SandboxNotRunning`` with the end of its log when it does not come up in time.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    config_file = state_dir / "config.json"
    config_file.write_text((config or SandboxConfig()).model_dump_json(indent=1), encoding="utf-8")
    command = [sys.executable, "-m", "providers.sandbox", "--state", str(state_dir)]
    command += ["--port", str(port), "--config", str(config_file)]
    if until_pid is not None:
        command += ["--until-pid", str(until_pid)]
    home = str(Path(__file__).resolve().parents[2])
    path = [home, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    with (state_dir / LOG_FILE).open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        code = child.poll()
        if code is not None:
            raise SandboxNotRunning(f"the sandbox ended with {code}: {_log_end(state_dir)}")
        with contextlib.suppress(SandboxNotRunning):
            handle = find_sandbox(state_dir)
            if handle.pid == child.pid:
                # the handle is all there is from now on: it outlives this object and this process
                child.returncode = 0
                return handle
        time.sleep(_POLL_S)
    child.kill()
    child.wait()
    raise SandboxNotRunning(f"no answer within {timeout_s:g} s: {_log_end(state_dir)}")


def _log_end(state_dir: Path) -> str:
    with contextlib.suppress(OSError):
        return (state_dir / LOG_FILE).read_text(encoding="utf-8", errors="replace")[-2000:].strip()
    return "no log"


def _reap(pid: int) -> None:
    # a child that ended stays a zombie until its starter asks; for anyone else this is no child
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
