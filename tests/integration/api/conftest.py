"""A whole server on a free port of this machine, its loop running, and a node played by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.server import Ready, Server
from hybrid.config import Settings
from hybrid.services.log_lines import log_to_stderr

PATIENCE_S = 20.0


def until(what: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
    """What ``what`` returns once it is true; fails when that takes too long."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s")


@dataclass
class Running:
    """A server in a thread of this process."""

    server: Server
    ready: Ready
    thread: threading.Thread
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, token: str | None = None, timeout_s: float = 30.0) -> httpx.Client:
        """A client of the server; the admin's if no token is given."""
        secret = self.ready.admin_token if token is None else token
        client = httpx.Client(
            base_url=self.ready.url,
            headers={"Authorization": f"Bearer {secret}"},
            timeout=timeout_s,
        )
        self.clients.append(client)
        return client

    def stop(self) -> float:
        """End it; how long that took in seconds."""
        begun = time.monotonic()
        self.server.stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        for client in self.clients:
            client.close()
        return time.monotonic() - begun


def run_server(settings: Settings) -> Running:
    """Start a server and wait until it answers."""
    server = Server(settings)
    told: list[Ready] = []
    came = threading.Event()

    def on_ready(ready: Ready) -> None:
        told.append(ready)
        came.set()

    thread = threading.Thread(target=server.run, args=(on_ready,), name="server", daemon=True)
    thread.start()
    assert came.wait(PATIENCE_S)
    return Running(server, told[0], thread)


@pytest.fixture(scope="session", autouse=True)
def _logs_as_in_life() -> None:
    log_to_stderr()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A server on an empty state directory."""
    begun = run_server(Settings(state_dir=tmp_path / "state", port=0, tick_s=0.2, replan_s=0.5))  # type: ignore[arg-type]
    yield begun
    if begun.thread.is_alive():
        begun.stop()


@pytest.fixture
def admin(running: Running) -> httpx.Client:
    return running.client()


class HandNode:
    """A node whose agent is the test: it joins, and says what it is told to say."""

    def __init__(self, running: Running, name: str = "n1", gpus: int = 1):
        self.name = name
        self.inventory = {
            "hostname": name,
            "address": "127.0.0.1",
            "cpus": 8,
            "memory_gib": 64,
            "boot_id": "b",
            "gpus": [
                {"id": f"{name}-g{i}", "index": i, "model": "a100-sxm4-80gb", "memory_gib": 79}
                for i in range(gpus)
            ],
        }
        made = running.client().post("/v1/tokens", json={"role": "node", "pool": "local"})
        joining = running.client(made.json()["secret"])
        import hashlib

        own = f"own-token-of-{name}"
        answer = joining.post(
            "/v1/nodes:join",
            json={
                "node_id": name,
                "pool": "local",
                "token_sha256": hashlib.sha256(own.encode()).hexdigest(),
                "inventory": self.inventory,
            },
        )
        assert answer.status_code == 200, answer.text
        self.http = running.client(own)

    def beat(self, *ranks: dict[str, Any]) -> dict[str, Any]:
        """A heartbeat that says so of the runs."""
        answer = self.http.post(
            f"/v1/nodes/{self.name}:heartbeat",
            json={"sent_boottime_s": 1.0, "inventory": self.inventory, "ranks": list(ranks)},
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def order(self) -> dict[str, Any]:
        """The first order, waited for."""

        def ask() -> Any:
            self.beat()
            work = self.http.get(f"/v1/nodes/{self.name}/work", params={"wait_s": 0.5}).json()
            return work["orders"]

        found: dict[str, Any] = until(ask)[0]
        return found

    def prints(self, run_id: str, offset: int, data: bytes) -> int:
        """Output of the run; where the server's copy ends then."""
        answer = self.http.post(
            f"/v1/nodes/{self.name}/runs/{run_id}/0/logs",
            params={"offset": offset},
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.status_code == 200, answer.text
        end: int = answer.json()["offset"]
        return end


@pytest.fixture
def node(running: Running) -> HandNode:
    return HandNode(running)
