"""Checkpoints in an S3-compatible object server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.agent.checkpoints import (
    CheckpointStore,
    CommitRequest,
    ManifestRef,
    StoreUnavailable,
    open_objects,
)
from hybrid.agent.checkpoints.objects import ObjectMissing, Objects

pytestmark = [
    pytest.mark.integration,
    # Which release of s3fs goes with which botocore is the lock file's business.
    pytest.mark.filterwarnings("ignore:Your installed version of s3fs"),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            _create_bucket(url)
            yield url
        finally:
            server.kill()


def _create_bucket(url: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            request = urllib.request.Request(f"{url}/checkpoints", method="PUT")
            urllib.request.urlopen(request, timeout=5).close()
        except OSError:
            assert time.monotonic() < end, "the object server did not come up"
            time.sleep(0.1)
        else:
            return


@pytest.fixture
def objects(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Objects:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return open_objects(f"s3://checkpoints/{tmp_path.name}", {"endpoint_url": endpoint})


def test_objects_are_put_listed_read_in_part_and_removed(objects: Objects) -> None:
    assert objects.list("a") == []
    assert objects.info("a/x") is None
    with pytest.raises(ObjectMissing):
        objects.get("a/x")
    objects.put("a/x", b"0123456789")
    objects.put("a/y", b"y")
    objects.put("b/z", b"z")
    listed = objects.list("a")
    assert [(info.key, info.size_bytes) for info in listed] == [("a/x", 10), ("a/y", 1)]
    assert all(info.modified_at is not None for info in listed)
    assert abs((listed[0].modified_at or 0) - time.time()) < 60
    assert objects.get("a/x", 2, 5) == b"234"
    objects.put("a/x", b"again")
    assert objects.get("a/x") == b"again"
    objects.delete(["a/x", "a/never"])
    assert [info.key for info in objects.list("a")] == ["a/y"]


def test_a_checkpoint_goes_to_s3_and_comes_back(objects: Objects, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in "abc":
        (work / name).write_bytes(os.urandom(700_000))
    now = time.time()
    store = CheckpointStore(objects, chunk_bytes=512 << 10, clock=lambda: now)
    request = CommitRequest(job_id="j", run_id="j.1", attempt=1, step=3)
    assert store.commit(request, work).sent_bytes == 2_100_000
    with (work / "b").open("r+b") as file:
        file.write(b"changed")
    assert store.commit(request, work).sent_bytes == 128 << 10
    restored = CheckpointStore(objects).restore("j", tmp_path / "out")
    assert restored is not None
    assert restored.seq == 100_002
    for name in "abc":
        assert (tmp_path / "out" / name).read_bytes() == (work / name).read_bytes()
    assert store.expire("j", keep_last=1) == (ManifestRef("j", 100_001),)
    now += 9000
    assert store.gc().chunks_removed == 0  # the chunk that changed in part is still in use
    store.forget("j")
    assert store.gc().chunks_kept == 0


def test_a_server_that_is_away_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    away = open_objects("s3://checkpoints/x", {"endpoint_url": f"http://127.0.0.1:{port}"})
    with pytest.raises(StoreUnavailable):
        away.put("a", b"x")
