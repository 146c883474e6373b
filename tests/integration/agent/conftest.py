"""Agents of this test, each a process of its own, and the server they talk to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.guardian.processes import all_processes
from hybrid.domain.job_spec import JobSpec
from tests.doubles.node_server import NodeServer, wait_until

REPOSITORY = Path(__file__).resolve().parents[3]
_PROGRAM = """
import sys
from pathlib import Path
import os
from hybrid.agent.config import load_config
from hybrid.agent.main import run
from hybrid.domain.ids import GpuId
from hybrid.domain.node import Gpu
from hybrid.ports.gpus import DeclaredGpus, GpuSet
config = load_config(Path(sys.argv[1]), {}, os.environ)
gpu = Gpu(id=GpuId("GPU-0"), index=0, model="a100-sxm4-80gb", memory_gib=79.0, virtual=True)
run(config, DeclaredGpus(GpuSet(gpus=(gpu,), links_gbps=((0.0,),))),
    drain_on_end="--drain" in sys.argv)
"""


def python(code: str, **fields: Any) -> JobSpec:
    """A job that runs a Python program."""
    return JobSpec(command=(sys.executable, "-u", "-c", code), **fields)


class AgentProcess:
    """One agent over a state directory; it can be killed and started again."""

    def __init__(self, folder: Path, server: NodeServer, **config: Any) -> None:
        self.folder = folder
        self.state = folder / "state"
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "server": server.url,
            "pool": "rack",
            "join_token": "join-1",
            "state_dir": str(self.state),
            "lease_file": str(folder / "lease"),
            "heartbeat": 0.3,
            "idle_heartbeat": 0.5,
            **config,
        }
        self.config = folder / "agent.json"
        self.config.write_text(json.dumps(document))
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(REPOSITORY),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", _PROGRAM, str(self.config), *arguments],
                env=self.environ,
                cwd=self.folder,
                stderr=log,
                stdout=log,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL: nothing of its own is cleaned up."""
        self.process.kill()
        self.process.wait(10)

    def end(self, timeout_s: float = 15) -> int:
        """SIGTERM and wait."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout_s)

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def run_dirs(self) -> list[Path]:
        return sorted((self.state / "runs").glob("*/*"))

    def journal(self) -> list[dict[str, Any]]:
        path = self.state / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def clean_up(self) -> None:
        """End the agent, and every guardian and job that it left."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        marker = str(self.folder).encode()
        for _ in range(50):
            left = [pid for pid in _pids() if marker in _seen_of(pid)]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not any(marker in _seen_of(p) for p in left), 0.5)  # noqa: B023


def _pids() -> list[int]:
    return [stat.pid for stat in all_processes() if not stat.is_gone and stat.pid != os.getpid()]


def _seen_of(pid: int) -> bytes:
    seen = b""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            seen += Path(f"/proc/{pid}/{name}").read_bytes()
    return seen


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NodeServer]:
    server = NodeServer(tmp_path / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def agent(tmp_path: Path, server: NodeServer) -> Iterator[AgentProcess]:
    agent = AgentProcess(tmp_path / "agent", server)
    agent.start()
    yield agent
    agent.clean_up()
