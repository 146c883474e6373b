"""The artifact store: whole and true, or not there."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import fsspec
import pytest

from hybrid.services.artifacts import Artifacts, RemoteShelf
from hybrid.services.errors import NotFound, Refused, StartupError, TooLarge


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(params=["folder", "memory"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    """The same store on a folder and on a remote file system."""
    url = f"file://{tmp_path}/kept" if request.param == "folder" else f"memory://{tmp_path.name}"
    return Artifacts.opened(url, drafts=tmp_path / "drafts", limit_bytes=10_000)


def store(artifacts: Artifacts, data: bytes) -> str:
    digest = digest_of(data)
    with artifacts.receive(digest) as receiving:
        receiving.write(data[:3])
        receiving.write(data[3:])
        assert receiving.finish() == len(data)
    return digest


def test_what_was_stored_is_read_back(artifacts: Artifacts) -> None:
    digest = store(artifacts, b"weights and biases")
    assert b"".join(artifacts.read(digest)) == b"weights and biases"
    assert artifacts.size(digest) == 18
    assert list(artifacts.drafts.iterdir()) == []


def test_storing_twice_changes_nothing(artifacts: Artifacts) -> None:
    assert store(artifacts, b"same") == store(artifacts, b"same")
    assert b"".join(artifacts.read(digest_of(b"same"))) == b"same"


def test_an_empty_artifact_is_one(artifacts: Artifacts) -> None:
    digest = store(artifacts, b"")
    assert artifacts.size(digest) == 0
    assert b"".join(artifacts.read(digest)) == b""


def test_bytes_that_are_not_what_the_digest_says_are_refused(artifacts: Artifacts) -> None:
    digest = digest_of(b"the right ones")
    with artifacts.receive(digest) as receiving:
        receiving.write(b"the wrong ones")
        with pytest.raises(Refused) as caught:
            receiving.finish()
    assert caught.value.code == "digest_mismatch"
    assert not artifacts.has(digest)
    assert list(artifacts.drafts.iterdir()) == []


def test_what_broke_off_leaves_nothing(artifacts: Artifacts) -> None:
    digest = digest_of(b"half")

    def broken_off() -> None:
        with artifacts.receive(digest) as receiving:
            receiving.write(b"ha")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        broken_off()
    assert not artifacts.has(digest)
    assert list(artifacts.drafts.iterdir()) == []


def test_more_than_the_limit_is_refused_while_it_comes(artifacts: Artifacts) -> None:
    with artifacts.receive(digest_of(b"x" * 10_001)) as receiving:
        receiving.write(b"x" * 10_000)
        with pytest.raises(TooLarge) as caught:
            receiving.write(b"x")
    assert caught.value.code == "artifact_too_large"


def test_what_is_not_there_is_not_found_before_the_first_byte(artifacts: Artifacts) -> None:
    digest = digest_of(b"nothing")
    for ask in (artifacts.size, artifacts.read, artifacts.link):
        with pytest.raises(NotFound):
            ask(digest)


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:" + "A" * 64, "md5:" + "0" * 64, "sha256:../" + "0" * 61]
)
def test_a_digest_is_nothing_else(artifacts: Artifacts, digest: str) -> None:
    with pytest.raises(Refused) as caught:
        artifacts.receive(digest)
    assert caught.value.code == "bad_digest"


def test_neither_a_folder_nor_memory_signs_links(artifacts: Artifacts) -> None:
    assert artifacts.link(store(artifacts, b"linked")) is None


def test_another_file_system_is_copied_to_and_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = Artifacts.opened(f"{tmp_path}/kept", drafts=tmp_path / "drafts", limit_bytes=99)
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.parent == artifacts.drafts:
            raise OSError(18, "Invalid cross-device link")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    digest = store(artifacts, b"far away")
    assert b"".join(artifacts.read(digest)) == b"far away"
    assert [each.name for each in (tmp_path / "kept").rglob("*") if each.is_file()] == [
        digest.removeprefix("sha256:")
    ]


def test_drafts_that_somebody_left_a_day_ago_are_swept(tmp_path: Path) -> None:
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    old, new = drafts / "old", drafts / "new"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))
    Artifacts.opened(f"{tmp_path}/kept", drafts=drafts, limit_bytes=99)
    assert list(drafts.iterdir()) == [new]


def test_a_store_that_nobody_knows_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"the artifact store nosuch://x cannot be used: "):
        Artifacts.opened("nosuch://x", drafts=tmp_path, limit_bytes=99)


def test_objects_that_appear_whole_need_no_rename(tmp_path: Path) -> None:
    class Bucket(fsspec.implementations.memory.MemoryFileSystem):  # type: ignore[misc]
        protocol = ("s3", "s3a")
        moved = 0

        def mv(self, *_: object, **__: object) -> None:
            self.moved += 1

        def sign(self, path: str, expiration: int = 100, **_: object) -> str:
            return f"https://bucket.test{path}?expires={expiration}"

    shelf = RemoteShelf(Bucket(), f"/{tmp_path.name}")
    artifacts = Artifacts(shelf, tmp_path, limit_bytes=99)
    digest = store(artifacts, b"object")
    assert b"".join(artifacts.read(digest)) == b"object"
    assert shelf.fs.moved == 0
    key = f"sha256/{digest[7:9]}/{digest[7:]}"
    assert artifacts.link(digest) == f"https://bucket.test/{tmp_path.name}/{key}?expires=900"
