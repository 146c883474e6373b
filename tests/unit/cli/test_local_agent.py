"""The agent that `hybrid up` keeps: started again when it dies, ended when we end."""

from __future__ import annotations

import os
import queue
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrid.cli import local_agent
from hybrid.cli.local_agent import LocalAgent
from tests.doubles.node_server import wait_until

SOON_S = 30.0
Make = Any


@pytest.fixture
def told() -> queue.Queue[str]:
    return queue.Queue()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a server that never answers: it is bound and does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def make(
    tmp_path: Path, nowhere: str, told: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    monkeypatch.setattr(local_agent, "_PAUSES_S", (0.01,))
    made: list[LocalAgent] = []

    def start(token: str | None = "hybj_x", **settings: Any) -> LocalAgent:
        agent = LocalAgent(
            server=nowhere, folder=tmp_path / "agent", join_token=lambda: token, told=told.put,
            **settings,
        )  # fmt: skip
        made.append(agent)
        agent.start()
        return agent

    yield start
    for agent in made:
        agent.end()


def pid_of(agent: LocalAgent) -> int:
    assert agent._child is not None
    return agent._child.pid


def test_an_agent_that_dies_is_started_again_and_ends_when_told(
    make: Make, told: queue.Queue[str]
) -> None:
    agent = make()
    first = pid_of(agent)
    os.kill(first, signal.SIGKILL)
    assert told.get(timeout=SOON_S).startswith("the agent ended (-9) and is started again")
    wait_until(lambda: pid_of(agent) != first, SOON_S)
    agent.end()
    assert not agent.alive
    assert told.empty()


def test_an_agent_that_cannot_start_is_tried_three_times_and_its_reason_told(
    make: Make, told: queue.Queue[str]
) -> None:
    make(token=None)
    said = told.get(timeout=3 * SOON_S)
    assert said.startswith("the agent cannot start: this machine has not joined yet")
    assert told.empty()


def test_an_agent_gets_its_token_by_environment_and_nothing_else_of_ours(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYBRID_TOKEN", "hyb_mine")
    agent = make()
    process = Path("/proc") / str(pid_of(agent))
    # its memory is not filled in at the very moment in which it becomes another program
    wait_until(lambda: b"agent" in (process / "cmdline").read_bytes(), SOON_S)
    wait_until(lambda: (process / "environ").read_bytes() != b"", SOON_S)
    environ = (process / "environ").read_bytes().split(b"\0")
    command = (process / "cmdline").read_bytes()
    assert b"HYBRID_JOIN_TOKEN=hybj_x" in environ
    assert b"HYBRID_TOKEN=hyb_mine" not in environ
    assert b"hybj_x" not in command
