"""Following a job, and what Ctrl-C does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from hybrid.cli.exits import Exit
from hybrid.cli.watching import Teller, Wish, ask, follow
from hybrid.client import HybridClient
from hybrid.client.answers import Job
from tests.doubles.answers import job, run
from tests.doubles.scripted_server import Asked, Reply, ScriptedServer


class Terminal(io.StringIO):
    """Text that comes from, or goes to, a terminal."""

    def isatty(self) -> bool:
        return True


class Interrupting(Terminal):
    """Somebody presses Ctrl-C instead of answering."""

    def readline(self, *_: Any) -> str:
        raise KeyboardInterrupt


class Cancellable:
    """A server with a job that prints one line and then runs until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = False
        self.read = False

    def __call__(self, asked: Asked) -> Reply:
        if asked.path.endswith(":cancel"):
            self.cancelled = True
        if "/logs" in asked.path:
            first, self.read = not self.read, True
            return Reply(200, b"line\n" if first else b"")
        if self.cancelled:
            ended = run(1, "ended", exit_code=143)
            return Reply.json(job("cancelled", ended, reason="cancelled", exit_code=143))
        return Reply.json(job("running", run(1, "running")))


@pytest.fixture
def server() -> Iterator[tuple[Cancellable, HybridClient]]:
    script = Cancellable()
    with ScriptedServer(script=script) as server, HybridClient(server.url) as client:
        yield script, client


def interrupted_after(line: bytes) -> tuple[list[bytes], Any]:
    """Where output goes: once the line has come, Ctrl-C is pressed."""
    seen: list[bytes] = []

    def out(piece: bytes) -> None:
        seen.append(piece)
        if piece == line:
            raise KeyboardInterrupt

    return seen, out


def test_detaching_leaves_the_job_and_says_how_to_come_back(
    server: tuple[Cancellable, HybridClient],
) -> None:
    script, client = server
    told: list[str] = []
    seen, out = interrupted_after(b"line\n")
    code = follow(client, "j", out=out, wish=lambda: Wish.DETACH, tell=told.append)
    assert code == Exit.INTERRUPTED
    assert seen == [b"line\n"]
    assert not script.cancelled
    assert told[-1] == "j goes on; `hybrid logs --follow j` shows the rest"


def test_cancelling_follows_the_job_to_its_end(server: tuple[Cancellable, HybridClient]) -> None:
    script, client = server
    told: list[str] = []
    _, out = interrupted_after(b"line\n")
    code = follow(client, "j", out=out, wish=lambda: Wish.CANCEL, tell=told.append)
    assert script.cancelled
    assert code == Exit.FAILED
    assert told == ["j is running in local on n1", "j is being cancelled", "j cancelled after 0s"]


def test_a_second_ctrl_c_detaches() -> None:
    assert ask(Interrupting(), Terminal()) is Wish.DETACH


def test_without_a_terminal_nobody_is_asked_and_the_job_goes_on() -> None:
    assert ask(io.StringIO("c\n"), Terminal()) is Wish.DETACH


@pytest.mark.parametrize(
    ("typed", "wish"),
    [
        ("c\n", Wish.CANCEL),
        ("Detach\n", Wish.DETACH),
        ("\n", Wish.GO_ON),
        ("what?\nc\n", Wish.CANCEL),
        ("", Wish.DETACH),
    ],
)
def test_an_answer_is_a_letter(typed: str, wish: Wish) -> None:
    assert ask(Terminal(typed), Terminal()) is wish


def test_what_is_new_about_a_job_is_said_once() -> None:
    told: list[str] = []
    teller = Teller(told.append)
    decision = {
        "at": "2030-01-01T00:00:00Z", "verdict": "wait", "sentence": "waits for GPUs",
        "chosen": "", "reason": None,
    }  # fmt: skip
    for document in (
        job("pending", decision=decision),
        job("pending", decision=decision),
        job("running", run(1, "running")),
        job("succeeded", run(1, "ended")),
    ):
        teller(Job.model_validate(document))
    assert told == ["j is pending: waits for GPUs", "j is running in local on n1"]
