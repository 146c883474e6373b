"""Errors in our words, and repeats only where repeating is safe."""

from __future__ import annotations

import socket

import pytest

from hybrid.client import HybridClient, Problem, Unreachable
from tests.doubles.scripted_server import Reply, ScriptedServer

ME = {"name": "ann", "role": "admin", "teams": None}
BUSY = Reply.problem(503, "busy", headers={"Retry-After": "0"})


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_refusal_carries_code_detail_errors_and_hint() -> None:
    fault = {"path": "gpus", "message": "too many", "hint": "at most 8"}
    refusal = Reply.problem(422, "too_many", "9 GPUs", errors=[fault], request_id="r1")
    with (
        ScriptedServer(refusal) as server,
        HybridClient(server.url) as client,
        pytest.raises(Problem) as caught,
    ):
        client.submit({"command": ["true"]})
    problem = caught.value
    assert (problem.status, problem.code, problem.detail) == (422, "too_many", "9 GPUs")
    assert (problem.errors[0].path, problem.errors[0].message) == ("gpus", "too many")
    assert problem.hint == "at most 8"
    assert problem.request_id == "r1"


def test_a_refusal_of_something_else_than_a_hybrid_server_is_still_one_line() -> None:
    proxy = Reply(403, b"<html>go away</html>", {"Content-Type": "text/html"})
    with (
        ScriptedServer(proxy) as server,
        HybridClient(server.url) as client,
        pytest.raises(Problem, match="403 Forbidden without a reason"),
    ):
        client.nodes()


def test_an_answer_that_is_no_answer_of_ours_is_as_none() -> None:
    strange = Reply.json({"hello": "world"})
    with (
        ScriptedServer(strange) as server,
        HybridClient(server.url) as client,
        pytest.raises(Unreachable, match="no hybrid server of this version"),
    ):
        client.nodes()


def test_nobody_there_says_where_and_why() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with HybridClient(url) as client, pytest.raises(Unreachable) as caught:
        client.nodes()
    assert str(caught.value) == f"no server answers at {url}: Connection refused"


def test_reading_is_repeated_while_the_server_is_busy() -> None:
    replies = (BUSY, BUSY, Reply.json(ME))
    with ScriptedServer(*replies) as server, HybridClient(server.url) as client:
        assert client.who_am_i().name == "ann"
        assert len(server.asked) == 3


def test_reading_is_given_up_after_four_tries() -> None:
    with ScriptedServer(script=lambda _: BUSY) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem, match="busy"):
            client.who_am_i()
        assert len(server.asked) == 4


def test_a_refusal_is_not_repeated() -> None:
    no = Reply.problem(403, "role_too_low")
    with ScriptedServer(script=lambda _: no) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem):
            client.who_am_i()
        assert len(server.asked) == 1


def test_making_a_token_is_never_repeated() -> None:
    with ScriptedServer(script=lambda _: BUSY) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem):
            client.create_token({"role": "admin", "user": "ann"})
        assert len(server.asked) == 1


def test_putting_a_policy_in_force_is_never_repeated() -> None:
    with ScriptedServer(script=lambda _: BUSY) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem):
            client.apply_policy("", over=3)
        assert len(server.asked) == 1
        assert server.asked[0].headers["If-Match"] == '"3"'


def test_submitting_repeats_under_one_key_also_when_none_was_given() -> None:
    refusal = Reply.problem(422, "too_many")
    with ScriptedServer(BUSY, BUSY, refusal) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem, match="too_many"):
            client.submit({"command": ["true"]})
        keys = [each.headers["Idempotency-Key"] for each in server.asked]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_two_submissions_have_two_keys() -> None:
    no = Reply.problem(422, "no")
    with ScriptedServer(script=lambda _: no) as server, HybridClient(server.url) as client:
        for _ in range(2):
            with pytest.raises(Problem):
                client.submit({"command": ["true"]})
        first, second = (each.headers["Idempotency-Key"] for each in server.asked)
    assert first != second


def test_the_token_is_sent_as_a_bearer_and_the_proxy_of_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    with ScriptedServer(Reply.json(ME)) as server, HybridClient(server.url, "hyb_x") as client:
        client.who_am_i()
        assert server.asked[0].headers["Authorization"] == "Bearer hyb_x"
        assert server.asked[0].path == "/v1/whoami"


def test_a_job_id_cannot_change_the_path() -> None:
    no = Reply.problem(404, "no_such_job")
    with ScriptedServer(no) as server, HybridClient(server.url) as client:
        with pytest.raises(Problem):
            client.job("../tokens?x=1")
        assert server.asked[0].path == "/v1/jobs/..%2Ftokens%3Fx%3D1"


def test_readiness_that_is_refused_is_no_error() -> None:
    replies = (Reply.json({"ready": False, "store": "cannot be reached", "loop": "dead"}, 503),)
    with ScriptedServer(*replies) as server, HybridClient(server.url) as client:
        assert client.ready().ready is False
