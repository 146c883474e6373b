"""A job from submission to its end over HTTP, with readers of its log and of the events."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import HandNode, Running, until

pytestmark = pytest.mark.integration

SPEC = {"command": ["train"], "expected_runtime": "1m", "resources": {"cpus": 1}}


class Follower(threading.Thread):
    """Reads a stream to its end, in a thread."""

    def __init__(self, client: httpx.Client, url: str, headers: dict[str, str] | None = None):
        super().__init__(daemon=True)
        self._client, self._url, self._headers = client, url, headers
        self.data = b""
        self.status = 0
        self.start()

    def run(self) -> None:
        try:
            with self._client.stream("GET", self._url, headers=self._headers) as response:
                self.status = response.status_code
                for chunk in response.iter_bytes():
                    self.data += chunk
        except httpx.HTTPError:
            self.status = -1

    def whole(self) -> bytes:
        """What was read by the end of the stream."""
        self.join(20)
        assert not self.is_alive()
        return self.data


def finish(node: HandNode, admin: httpx.Client, job: dict[str, Any], run_id: str) -> None:
    """Let the node say that the run has ended well, until the job has."""
    url = f"/v1/jobs/{job['id']}"
    now = time.time()
    rank = {
        "run_id": run_id,
        "rank": 0,
        "phase": "ended",
        "started_at": now - 1,
        "ended_at": now,
        "exit_code": 0,
    }

    def ended() -> bool:
        node.beat(rank)
        return bool(admin.get(url).json()["state"] == "succeeded")

    until(ended)


def test_a_job_runs_is_followed_and_ends(
    running: Running, node: HandNode, admin: httpx.Client
) -> None:
    events = Follower(running.client(), "/v1/events?after=0")
    job = admin.post("/v1/jobs", json=SPEC).json()
    log = Follower(running.client(), f"/v1/jobs/{job['id']}/logs?follow=true")
    order = node.order()
    run_id = order["run_id"]
    assert (order["document"]["job_id"], order["document"]["gpu_ids"]) == (job["id"], ["n1-g0"])
    node.beat({"run_id": run_id, "rank": 0, "phase": "running", "started_at": time.time()})
    end = node.prints(run_id, 0, b"step 1\n")
    until(lambda: log.data == b"step 1\n")
    end = node.prints(run_id, end, b"step 2\n")
    until(lambda: log.data == b"step 1\nstep 2\n")
    node.beat(
        {
            "run_id": run_id,
            "rank": 0,
            "phase": "running",
            "started_at": time.time(),
            "progress": {"step": 2, "total": 4, "at": time.time()},
        }
    )
    shown = until(
        lambda: (
            (found := admin.get(f"/v1/jobs/{job['id']}").json())["runs"][0]["progress"] and found
        )
    )
    assert (shown["state"], shown["pool"], shown["runs"][0]["progress"]["step"]) == (
        "running",
        "local",
        2,
    )
    node.prints(run_id, end, b"done\n")
    finish(node, admin, job, run_id)
    assert log.whole() == b"step 1\nstep 2\ndone\n"
    assert log.status == 200
    assert admin.get(f"/v1/jobs/{job['id']}/logs").content == b"step 1\nstep 2\ndone\n"
    until(lambda: b"succeeded" in events.data)
    whats = [
        json.loads(line.removeprefix("data: "))["what"]
        for line in events.data.decode().splitlines()
        if line.startswith("data: ") and f'"job_id": "{job["id"]}"' in line
    ]
    assert whats[0] == "submitted"
    assert running.stop() < 5
    assert events.whole().startswith(b"retry: 2000\n\n")


def test_a_log_follows_a_job_into_its_next_run(
    running: Running, node: HandNode, admin: httpx.Client
) -> None:
    spec = {**SPEC, "retries": {"max": 1, "backoff": "10ms"}}
    job = admin.post("/v1/jobs", json=spec).json()
    log = Follower(running.client(), f"/v1/jobs/{job['id']}/logs?follow=true")
    first = node.order()["run_id"]
    node.prints(first, 0, b"first try\n")
    now = time.time()
    failed = {"run_id": first, "rank": 0, "phase": "ended", "started_at": now, "ended_at": now}
    until(lambda: first in node.beat({**failed, "exit_code": 1})["acknowledged"])

    def next_order() -> Any:
        return (found := node.order())["run_id"] != first and found

    second = until(next_order)["run_id"]
    assert second == f"{job['id']}.2"
    node.prints(second, 0, b"second try\n")
    finish(node, admin, job, second)
    assert log.whole() == b"first try\nsecond try\n"
    only = admin.get(f"/v1/jobs/{job['id']}/logs?follow=true&run={first}")
    assert only.content == b"first try\n"


def test_a_cancelled_jobs_follower_is_let_go(running: Running, admin: httpx.Client) -> None:
    job = admin.post("/v1/jobs", json=SPEC).json()
    log = Follower(running.client(), f"/v1/jobs/{job['id']}/logs?follow=true")
    until(lambda: log.status == 200)
    admin.post(f"/v1/jobs/{job['id']}:cancel")
    assert log.whole() == b""


def test_many_who_wait_take_nothing_from_those_who_ask(
    running: Running, node: HandNode, admin: httpx.Client
) -> None:
    job = admin.post("/v1/jobs", json=SPEC).json()
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(
        base_url=running.ready.url, headers=admin.headers, limits=limits, timeout=30
    ) as many:
        followers = [
            Follower(many, f"/v1/jobs/{job['id']}/logs?follow=true") for _ in range(75)
        ] + [Follower(many, "/v1/events") for _ in range(75)]
        until(lambda: all(each.status == 200 for each in followers))
        slowest = 0.0
        for _ in range(20):
            begun = time.monotonic()
            assert admin.get("/v1/nodes").status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 3.0
        assert running.stop() < 5
        for each in followers:
            each.join(10)
        assert not any(each.is_alive() for each in followers)


def test_a_watcher_that_comes_back_misses_nothing(running: Running, admin: httpx.Client) -> None:
    admin.post("/v1/jobs", json=SPEC)
    seen = _numbers(admin.get("/v1/events?follow=false").text)
    second = admin.post("/v1/jobs", json=SPEC).json()["id"]
    back = Follower(running.client(), "/v1/events", {"Last-Event-ID": str(seen[-1])})
    until(lambda: second.encode() in back.data)
    heard = _numbers(back.data.decode())
    assert heard == list(range(seen[-1] + 1, seen[-1] + 1 + len(heard)))


def _numbers(stream: str) -> list[int]:
    """The numbers of the events of a stream that have come whole."""
    whole = stream.rpartition("\n\n")[0]
    return [int(line[4:]) for line in whole.splitlines() if line.startswith("id: ")]


def test_a_reader_that_goes_away_is_forgotten(running: Running, admin: httpx.Client) -> None:
    job = admin.post("/v1/jobs", json=SPEC).json()
    bell = running.server.app.bell
    with httpx.Client(base_url=running.ready.url, headers=admin.headers, timeout=30) as leaving:
        for url in (f"/v1/jobs/{job['id']}/logs?follow=true", "/v1/events?after=0"):
            with leaving.stream("GET", url) as response:
                assert response.status_code == 200
                until(lambda: bell._waiting)
            until(lambda: not bell._waiting)
            for _ in range(30):  # it listens anew every half second while anybody is there
                assert not bell._waiting
                time.sleep(0.04)
