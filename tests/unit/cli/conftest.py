"""The command line without anything of the machine it is tested on, and a real server for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.server import Server
from hybrid.cli.main import main
from hybrid.config import Settings
from hybrid.services.log_lines import log_to_stderr


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("HYBRID_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Hybrid = Callable[..., Ended]


@pytest.fixture
def hybrid(capfd: pytest.CaptureFixture[str]) -> Hybrid:
    """Calls the command line in this process."""

    def call(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(arguments)
        said = capfd.readouterr()
        return Ended(int(code), said.out, said.err)

    return call


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of a server that runs, with its loop and without any node."""
    log_to_stderr(level="error")
    state_dir = tmp_path_factory.mktemp("serving")
    server = Server(Settings(state_dir=state_dir, port=0, tick_s=0.2))
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda _ready: ready.set(),))
    thread.start()
    assert ready.wait(30)
    yield state_dir
    server.stop()
    thread.join(30)


@pytest.fixture
def asking(hybrid: Hybrid, serving: Path, monkeypatch: pytest.MonkeyPatch) -> Hybrid:
    """Calls the command line where that server is."""
    monkeypatch.setenv("HYBRID_STATE_DIR", str(serving))
    return hybrid
