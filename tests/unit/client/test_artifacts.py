"""Uploads and downloads: whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hybrid.client import HybridClient, Problem, WrongBytes
from tests.doubles.scripted_server import Reply, ScriptedServer

DATA = bytes(range(256)) * 4096
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
STORED = Reply.json({"digest": DIGEST, "size_bytes": len(DATA)}, 201)
BUSY = Reply.problem(503, "busy", headers={"Retry-After": "0"})


def test_an_upload_tells_how_far_it_is_and_takes_it_back_when_it_begins_again(
    tmp_path: Path,
) -> None:
    source = tmp_path / "a"
    source.write_bytes(DATA)
    told: list[int] = []
    with ScriptedServer(BUSY, STORED) as server, HybridClient(server.url) as client:
        assert client.upload(DIGEST, source, team="red", sent=told.append).digest == DIGEST
        assert [each.path for each in server.asked] == [f"/v1/artifacts/{DIGEST}?team=red"] * 2
        assert server.asked[1].body == DATA
    assert sum(told) == len(DATA)
    assert min(told) < 0


def test_an_upload_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(DATA)
    too_large = Reply.problem(413, "artifact_too_large")
    with (
        ScriptedServer(too_large) as server,
        HybridClient(server.url) as client,
        pytest.raises(Problem, match="artifact_too_large"),
    ):
        client.upload(DIGEST, source)


def test_a_download_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "got"
    told: list[tuple[int, int]] = []
    with ScriptedServer(Reply(200, DATA)) as server, HybridClient(server.url) as client:
        client.download(DIGEST, target, got=lambda count, total: told.append((count, total)))
    assert target.read_bytes() == DATA
    assert told[-1] == (len(DATA), len(DATA))


def test_a_download_that_breaks_begins_again(tmp_path: Path) -> None:
    target = tmp_path / "got"
    replies = (Reply(200, DATA, cut_after=1000), Reply(200, DATA))
    with ScriptedServer(*replies) as server, HybridClient(server.url) as client:
        client.download(DIGEST, target)
    assert target.read_bytes() == DATA


def test_wrong_bytes_leave_nothing_behind(tmp_path: Path) -> None:
    with (
        ScriptedServer(Reply(200, b"other")) as server,
        HybridClient(server.url) as client,
        pytest.raises(WrongBytes),
    ):
        client.download(DIGEST, tmp_path / "got")
    assert list(tmp_path.iterdir()) == []
