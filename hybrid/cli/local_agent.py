"""The agent of ``hybrid up``: a child process that is started again when it dies, and that ends
when we do, however we end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hybrid.cli.exits import Exit

END_S = 15.0
"""For an agent that was told to end; it leaves its runs behind, so it is quick."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 15.0)
_GIVEN_UP_AFTER = 3
_WELL_S = 60.0
"""An agent that worked for so long is started again at once."""


@dataclass
class LocalAgent:
    """Supervises one agent. ``join_token`` gives the token to join with, None when the agent has
    joined already; ``told`` hears what people should know."""

    server: str
    folder: Path
    join_token: Callable[[], str | None]
    told: Callable[[str], None]
    virtual_gpus: str | None = None
    drain: bool = False
    log_level: str = "warning"
    ca_file: Path | None = None
    _ending: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _child: subprocess.Popen[bytes] | None = None
    _watcher: threading.Thread | None = None

    @property
    def log(self) -> Path:
        """Where the agent writes."""
        return self.folder / "agent.log"

    def start(self) -> None:
        """Start the agent and watch it. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._spawn()
        self._watcher = threading.Thread(target=self._watch, name="local-agent", daemon=True)
        self._watcher.start()

    def end(self, *, timeout_s: float | None = END_S) -> None:
        """Tell it to end, and wait; after ``timeout_s`` it is killed. Its runs go on."""
        self.ask_to_end()
        child = self._child
        if child is not None:
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            _close(child)
        if self._watcher is not None:
            self._watcher.join()

    def ask_to_end(self) -> None:
        """Send SIGTERM; with ``drain`` the second one ends it at once."""
        self._ending.set()
        with self._lock:
            if self._child is not None and self._child.poll() is None:
                self._child.terminate()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.poll() is None

    def _spawn(self) -> None:
        command = [
            sys.executable, "-m", "hybrid", "agent", "--server", self.server,
            "--state-dir", str(self.folder), "--log-level", self.log_level,
            "--until-stdin-closes",
        ]  # fmt: skip
        if self.virtual_gpus is not None:
            command += ["--virtual-gpus", self.virtual_gpus]
        if self.drain:
            command.append("--drain")
        if self.ca_file is not None:
            command += ["--ca", str(self.ca_file)]
        with self._lock, self.log.open("ab") as log:
            if self._ending.is_set():
                return
            self._child = subprocess.Popen(
                command,
                # it reads until we are gone; nobody else holds this pipe
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for us: we end it in order
                start_new_session=True,
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str]:
        mine = {
            name: value
            for name, value in os.environ.items()
            # settings and tokens of the server and of users are none of the agent's business
            if not name.startswith("HYBRID_") or name == "HYBRID_DEBUG"
        }
        token = self.join_token()
        if token is not None:
            mine["HYBRID_JOIN_TOKEN"] = token
        return mine

    def _watch(self) -> None:
        failures = 0
        while not self._ending.is_set():
            child, began = self._child, time.monotonic()
            if child is None:
                return
            code = child.wait()
            _close(child)
            if self._ending.is_set():
                return
            failures = 0 if time.monotonic() - began > _WELL_S else failures + 1
            if code == Exit.CANNOT_START:
                # one that ends just now may still hold the folder
                if failures >= _GIVEN_UP_AFTER:
                    self.told(f"the agent cannot start: {self._last_line()}")
                    return
            else:
                self.told(f"the agent ended ({code}) and is started again; its log is {self.log}")
            pause_s = _PAUSES_S[min(failures, len(_PAUSES_S)) - 1] if failures else 0.0
            if self._ending.wait(pause_s):
                return
            self._spawn()

    def _last_line(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1].removeprefix("hybrid: ") if lines else f"its log {self.log} says nothing"


def _close(child: subprocess.Popen[bytes]) -> None:
    """Let go of our end of the pipe to a child that has ended."""
    if child.stdin is not None:
        child.stdin.close()
