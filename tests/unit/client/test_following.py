"""Logs and events across broken connections, restarted servers and several runs."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hybrid.client import HybridClient, LogFollower, Problem, events
from tests.doubles.answers import job, run
from tests.doubles.scripted_server import Asked, Reply, ScriptedServer


def nothing(_seconds: float) -> None:
    """Sleep not at all."""


class OneJob:
    """A server with one job: each look is the next of ``states``, the last for ever; logs by run,
    each read the next of its replies, then nothing more."""

    def __init__(self, *states: dict[str, Any], **logs: list[Reply]) -> None:
        self.states = list(states)
        self.logs = {name.replace("_", "."): replies for name, replies in logs.items()}
        self.offsets: list[tuple[str, int]] = []

    def __call__(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        if parts.path == "/v1/jobs/j":
            return Reply.json(self.states.pop(0) if len(self.states) > 1 else self.states[0])
        query = parse_qs(parts.query)
        name = query["run"][0]
        self.offsets.append((name, int(query["offset"][0])))
        replies = self.logs.get(name, [])
        return replies.pop(0) if replies else Reply(200)


def followed(script: OneJob, **settings: Any) -> tuple[bytes, LogFollower]:
    with ScriptedServer(script=script) as server, HybridClient(server.url) as client:
        follower = LogFollower(client, "j", sleep=nothing, **settings)
        return b"".join(follower.pieces()), follower


DONE = job("succeeded", run(1, "ended"))


def test_a_job_is_waited_for_until_it_runs_and_read_to_its_end() -> None:
    script = OneJob(
        job("pending"), job("pending"), job("running", run(1, "running")), DONE,
        j_1=[Reply(200, b"one\ntwo\n")],
    )  # fmt: skip
    said, follower = followed(script)
    assert said == b"one\ntwo\n"
    assert follower.last is not None
    assert follower.last.state == "succeeded"


def test_a_broken_connection_is_made_anew_where_it_broke() -> None:
    script = OneJob(
        job("running", run(1, "running")), job("running", run(1, "running")), DONE,
        j_1=[Reply(200, b"abcdef", cut_after=4), Reply(200, b"ef")],
    )  # fmt: skip
    said, _ = followed(script)
    assert said == b"abcdef"
    assert script.offsets[:2] == [("j.1", 0), ("j.1", 4)]


def test_a_server_that_is_away_is_waited_for() -> None:
    running = job("running", run(1, "running"))
    script = OneJob(running, DONE, j_1=[Reply.problem(503, "busy"), Reply(200, b"all")])
    assert followed(script)[0] == b"all"


def test_the_runs_after_are_read_from_their_beginning() -> None:
    both = job("succeeded", run(1, "ended"), run(2, "ended"))
    script = OneJob(
        job("running", run(1, "running")), both,
        j_1=[Reply(200, b"first ")], j_2=[Reply(200, b"second")],
    )  # fmt: skip
    said, _ = followed(script)
    assert said == b"first second"
    assert ("j.2", 0) in script.offsets


def test_a_job_that_waits_between_two_runs_is_not_over() -> None:
    script = OneJob(
        job("running", run(1, "running")),
        job("pending", run(1, "ended")),
        job("pending", run(1, "ended")),
        job("succeeded", run(1, "ended"), run(2, "ended")),
        j_1=[Reply(200, b"a")],
        j_2=[Reply(200, b"b")],
    )
    assert followed(script)[0] == b"ab"


def test_a_job_that_never_ran_ends_without_a_word() -> None:
    assert followed(OneJob(job("pending"), job("cancelled")))[0] == b""


def test_one_run_alone_is_read_to_its_own_end() -> None:
    script = OneJob(job("running", run(1, "ended"), run(2, "running")), j_1=[Reply(200, b"one")])
    assert followed(script, run_id="j.1", only=True)[0] == b"one"


def test_a_run_that_the_job_does_not_have_is_said() -> None:
    with pytest.raises(Problem, match=r"job j has no run j\.7"):
        followed(OneJob(DONE), run_id="j.7", only=True)


def test_a_rank_that_is_not_there_is_said_and_not_waited_for() -> None:
    script = OneJob(
        job("running", run(1, "running")), j_1=[Reply.problem(404, "no_such_rank", "ranks 0 to 0")]
    )
    with pytest.raises(Problem, match="no_such_rank"):
        followed(script, rank=3)


def message(seq: int) -> str:
    data = {
        "seq": seq, "at": "2030-01-01T00:00:00Z", "kind": "job", "subject": "j", "what": f"w{seq}",
        "words": "", "job_id": "j", "actor": "loop",
    }  # fmt: skip
    return f"id: {seq}\nevent: job\ndata: {json.dumps(data)}\n\n"


def test_events_go_on_after_the_last_one_seen() -> None:
    replies = (
        Reply(200, f"retry: 2000\n\n{message(7)}: still here\n\n".encode()),
        Reply(200, (message(8) + message(9)[:20]).encode()),
        Reply(200, message(9).encode()),
    )
    with ScriptedServer(*replies) as server, HybridClient(server.url) as client:
        stream = events(client, after=6, sleep=nothing)
        assert [next(stream).seq for _ in range(3)] == [7, 8, 9]
        seen = [each.headers.get("Last-Event-ID") for each in server.asked]
    assert seen == ["6", "7", "8"]


def test_events_so_far_end() -> None:
    with ScriptedServer(Reply(200, message(1).encode())) as server, HybridClient(server.url) as c:
        assert [each.what for each in events(c, follow=False)] == ["w1"]
