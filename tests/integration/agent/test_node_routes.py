"""The node protocol over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hybrid.agent.desk import sha256_of
from hybrid.agent.protocol import MAX_LOG_CHUNK_BYTES
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import JobSpec
from tests.doubles.node_server import NodeServer, wait_until

pytestmark = pytest.mark.integration

INVENTORY = {"hostname": "box", "cpus": 4, "memory_gib": 8}


@pytest.fixture
def http(server: NodeServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/v1", trust_env=False, timeout=30) as client:
        joining = {
            "node_id": "n1",
            "pool": "rack",
            "token_sha256": sha256_of("own"),
            "inventory": INVENTORY,
        }
        answer = client.post("/nodes:join", json=joining, headers=bearer("join-1"))
        assert answer.status_code == 200, answer.text
        client.headers = httpx.Headers(bearer("own"))
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def beat(**fields: Any) -> dict[str, Any]:
    return {"sent_boottime_s": 1.0, "inventory": INVENTORY, **fields}


def test_refusals_are_problems_with_a_stable_code(http: httpx.Client) -> None:
    answer = http.post("/nodes/n1:heartbeat", json=beat(), headers=bearer("wrong"))
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "unknown_node_token"
    assert http.post("/nodes/n2:heartbeat", json=beat()).json()["code"] == "not_your_node"
    assert http.get("/nodes/n1/work", headers={"Authorization": "Basic own"}).status_code == 401


def test_a_heartbeat_and_a_goodbye(server: NodeServer, http: httpx.Client) -> None:
    answer = http.post("/nodes/n1:heartbeat", json=beat(field_of_a_later_version=1))
    assert answer.status_code == 200
    assert answer.json()["sent_boottime_s"] == 1.0
    assert http.post("/nodes/n1:leave").status_code == 204
    assert server.only_node().left


def test_work_that_is_known_is_waited_for_and_news_end_the_wait_at_once(
    server: NodeServer, http: httpx.Client
) -> None:
    known = http.get("/nodes/n1/work").json()["revision"]
    began = time.monotonic()
    assert (
        http.get("/nodes/n1/work", params={"revision": known, "wait_s": 0.5}).json()["revision"]
        == known
    )
    assert time.monotonic() - began >= 0.5
    timer = threading.Timer(0.3, lambda: server.run(JobSpec(command=("true",))))
    timer.start()
    began = time.monotonic()
    answer = http.get("/nodes/n1/work", params={"revision": known, "wait_s": 20}).json()
    assert time.monotonic() - began < 3
    assert [order["run_id"] for order in answer["orders"]] == ["job1.1"]
    timer.join()


def test_work_written_by_another_process_is_found_without_a_ring(
    server: NodeServer, http: httpx.Client
) -> None:
    known = http.get("/nodes/n1/work").json()["revision"]
    timer = threading.Timer(
        0.2, lambda: server.mailbox.set_cordon(server.only_node().id, True, server.epoch)
    )
    timer.start()
    answer = http.get("/nodes/n1/work", params={"revision": known, "wait_s": 20}).json()
    assert answer["cordoned"]
    timer.join()


def test_a_server_that_goes_down_lets_its_waiters_go(
    server: NodeServer, http: httpx.Client
) -> None:
    known = http.get("/nodes/n1/work").json()["revision"]
    threading.Timer(0.3, server.bell.close).start()
    began = time.monotonic()
    http.get("/nodes/n1/work", params={"revision": known, "wait_s": 20})
    assert time.monotonic() - began < 3


def test_output_is_taken_by_offset_and_a_chunk_is_bounded(
    server: NodeServer, http: httpx.Client
) -> None:
    run = server.run(JobSpec(command=("true",)))
    url = f"/nodes/n1/runs/{run}/0/logs"
    assert http.post(url, params={"offset": 0}, content=b"hello").json() == {"offset": 5}
    assert http.post(url, params={"offset": 0}, content=b"hello!").json() == {"offset": 6}
    too_long = http.post(url, params={"offset": 6}, content=b"x" * (MAX_LOG_CHUNK_BYTES + 1))
    assert (too_long.status_code, too_long.json()["code"]) == (413, "log_chunk_too_large")
    assert http.post(url, params={"offset": -1}, content=b"x").status_code == 422
    stranger = http.post("/nodes/n1/runs/other.1/0/logs", params={"offset": 0}, content=b"x")
    assert (stranger.status_code, stranger.json()["code"]) == (404, "no_such_run")
    assert server.printed(run) == "hello!"


def test_many_nodes_may_wait_at_once_without_holding_a_thread_each(
    server: NodeServer, http: httpx.Client
) -> None:
    known = http.get("/nodes/n1/work").json()["revision"]
    with httpx.Client(
        base_url=f"{server.url}/v1",
        trust_env=False,
        timeout=60,
        headers=bearer("own"),
        limits=httpx.Limits(max_connections=100),
    ) as crowd:
        waiters = [
            threading.Thread(
                target=crowd.get,
                args=("/nodes/n1/work",),
                kwargs={"params": {"revision": known, "wait_s": 20}},
            )
            for _ in range(60)
        ]
        for waiter in waiters:
            waiter.start()
        wait_until(lambda: len(server.bell._waiting.get("node:n1", ())) == 60)
        began = time.monotonic()
        assert http.post("/nodes/n1:heartbeat", json=beat()).status_code == 200
        assert time.monotonic() - began < 2
        run = server.run(JobSpec(command=("true",)))
        server.engine.stop(run, StopCause.CANCEL, 1.0, server.epoch)
        for waiter in waiters:
            waiter.join(20)
            assert not waiter.is_alive()
