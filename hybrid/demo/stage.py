"""The processes of the demo: the sandbox cloud, the server, and this machine's agent.

Each is a process of its own, as in life. They are ended by their pids; what is left is looked for
by the state directory's path, which stands in the arguments or the environment of each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import httpx
import yaml

from hybrid.demo import scene
from providers.sandbox.config import SandboxConfig
from providers.sandbox.process import SandboxHandle, start_sandbox

START_S = 60.0
"""Long for a server, which is up in two seconds; not for one that shares a core with all jobs."""
END_S = 15.0

QUICK_PACE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "tick_s": 0.5,
        "replan_s": 1.0,
        "list_every_s": 1.0,
        "list_idle_every_s": 5.0,
        "offers_every_s": 20.0,
        "loop_lease_s": 5.0,
        "silent_after_s": 15.0,
        "absent_grace_s": 5.0,
        "call_deadline_s": 20.0,
        "run_lease_s": 60.0,
        "planning_s": 0.2,
    }
)
"""Settings of a server for which a second stands for a minute."""


class StageError(Exception):
    """A process of the demo did not come up; the message says which and where its log is."""


class Stage:
    """Starts, kills and ends the processes, all below one directory.

    ``cloud`` is what the sandbox sells, ``settings`` what the server is told beyond where it and
    the cloud are; the demo's own unless given.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cloud: SandboxConfig | None = None,
        settings: Mapping[str, Any] = QUICK_PACE,
    ) -> None:
        self.folder = folder
        self._cloud_config = cloud or scene.cloud()
        self._own_settings = settings
        self.server_dir = folder / "server"
        self.agent_dir = folder / "agent"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.cloud: SandboxHandle | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self.killed: list[str] = []
        self._join_token = ""
        self._logs: list[IO[bytes]] = []

    def start_cloud(self) -> SandboxHandle:
        """The cloud on this machine. It ends itself when this process is gone."""
        self.cloud = start_sandbox(self.folder / "cloud", self._cloud_config, until_pid=os.getpid())
        return self.cloud

    def start_server(self) -> None:
        """The server, or the server again after it was killed: on the same port and state."""
        if self.cloud is None:
            raise StageError("the cloud comes before the server")
        self.server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = self.server_dir / "config.yaml"
        if not settings.exists():
            settings.write_text(yaml.safe_dump(self._settings()))
        self.server = self._spawn(
            "server",
            ["serve", "--state-dir", str(self.server_dir), "--port", str(self.port)],
            self.cloud.environment(),
        )
        self._wait_for(self.server_answers, "server")

    def start_agent(self, join_token: str = "") -> None:
        """This machine's agent, or the agent again; it remembers who it is."""
        self._join_token = join_token or self._join_token
        self.agent = self._spawn(
            "agent",
            [
                *("agent", "--server", self.url, "--pool", "local"),
                *("--state-dir", str(self.agent_dir)),
                *("--virtual-gpus", scene.VIRTUAL_GPUS),
            ],
            {"HYBRID_JOIN_TOKEN": self._join_token},
        )

    def kill_server(self) -> None:
        """End the server as a power cut would."""
        self._kill(self.server, "server")

    def kill_agent(self) -> None:
        """End the agent as a power cut would; its guardians and their runs go on."""
        self._kill(self.agent, "agent")

    def server_answers(self) -> bool:
        """Whether the server answers requests: its socket takes connections before that."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=1.0).is_success
        except httpx.HTTPError:
            return False

    @property
    def admin_token(self) -> str:
        """The first admin token, where the server keeps it for the command line."""
        return (self.server_dir / "admin.token").read_text().strip()

    def end_nodes(self, *, keep_server: bool) -> None:
        """End the agent and, unless it is to stay, the server. The cloud's machines are over."""
        _end(self.agent)
        if not keep_server:
            _end(self.server)

    def end(self) -> None:
        """End everything that still runs, the cloud last."""
        self.end_nodes(keep_server=False)
        if self.cloud is not None:
            self.cloud.stop()
        for log in self._logs:
            log.close()

    def agents_left(self) -> list[int]:
        """Agents, guardians and jobs that still live: processes that name the demo's directory in
        their arguments or environment, but for the server and the cloud."""
        mark = str(self.folder).encode()
        ours = {os.getpid()}
        ours |= {process.pid for process in (self.server,) if process is not None}
        ours |= {self.cloud.pid} if self.cloud is not None else set()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in ours:
                continue
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if stat.rpartition(")")[2].split()[0] == "Z":
                    continue
                if mark in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return sorted(found)

    # --- inside ---------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        assert self.cloud is not None
        return {
            "advertise_url": self.url,
            **self._own_settings,
            "providers": [
                {
                    "name": "sandbox",
                    "kind": "aws",
                    "region": self._cloud_config.region,
                    "endpoint_url": self.cloud.url,
                }
            ],
        }

    def _spawn(
        self, name: str, arguments: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        return subprocess.Popen(
            [sys.executable, "-m", "hybrid", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=self.folder,
            env={**os.environ, **environment},
        )

    def _wait_for(self, ready: Any, name: str) -> None:
        deadline = time.monotonic() + START_S
        while not ready():
            process = self.server if name == "server" else self.agent
            ended = process is not None and process.poll() is not None
            if ended or time.monotonic() > deadline:
                log = self.folder / f"{name}.log"
                tail = log.read_text(errors="replace")[-1500:].strip()
                raise StageError(f"the {name} did not come up; {log} ends with:\n{tail}")
            time.sleep(0.05)

    def _kill(self, process: subprocess.Popen[bytes] | None, name: str) -> None:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(END_S)
            self.killed.append(name)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
