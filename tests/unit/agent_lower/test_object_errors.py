"""Errors of stores come out in our words, by their codes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.checkpoints import StoreFull, StoreReadOnly, StoreUnavailable, open_objects
from hybrid.agent.checkpoints.local import LocalObjects
from hybrid.agent.checkpoints.objects import ObjectMissing
from hybrid.agent.checkpoints.remote import translate


class ServiceError(Exception):
    """Shaped like botocore's ClientError."""

    def __init__(self, code: str, status: int) -> None:
        self.response: dict[str, Any] = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        super().__init__(f"{code} with words nobody should match: quota access denied")


class GoogleError(Exception):
    """Shaped like gcsfs's HttpError."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__("words")


def wrapped(error: Exception) -> Exception:
    outer = OSError("what the file system made of it")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), ObjectMissing),
        (ServiceError("NoSuchKey", 404), ObjectMissing),
        (GoogleError(404), ObjectMissing),
        (PermissionError("x"), StoreReadOnly),
        (ServiceError("AccessDenied", 403), StoreReadOnly),
        (GoogleError(403), StoreReadOnly),
        (ServiceError("QuotaExceeded", 403), StoreFull),
        (ServiceError("XMinioStorageFull", 507), StoreFull),
        (ServiceError("Anything", 507), StoreFull),
        (ServiceError("SlowDown", 503), StoreUnavailable),
        (ServiceError("InternalError", 500), StoreUnavailable),
        (TimeoutError("x"), StoreUnavailable),
        (ConnectionRefusedError("x"), StoreUnavailable),
        (ValueError("unheard of"), StoreUnavailable),
    ],
)
def test_errors_are_known_by_code(error: Exception, kind: type[Exception]) -> None:
    assert type(translate(error, "s3://b/k")) is kind
    if not isinstance(error, OSError | ValueError):
        assert type(translate(wrapped(error), "s3://b/k")) is kind


def test_an_error_names_place_and_code_but_not_the_services_words() -> None:
    words = str(translate(ServiceError("SlowDown", 503), "bucket/key"))
    assert words == "bucket/key: ServiceError (503, SlowDown)"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EROFS, StoreReadOnly),
        (errno.EACCES, StoreReadOnly),
        (errno.EIO, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
    ],
)
def test_a_local_store_says_what_is_wrong_and_leaves_no_half_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    objects = LocalObjects(tmp_path)
    objects.put("a/b", b"old")

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(kind):
            objects.put("a/b", b"new")
    assert objects.get("a/b") == b"old"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_a_store_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(StoreUnavailable):
        LocalObjects(tmp_path / "f").put("a", b"x")


def test_a_local_store_lists_reads_parts_and_forgets(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}/s")
    assert objects.list("a") == []
    assert objects.info("a/x") is None
    objects.put("a/x", b"0123456789")
    objects.put("a/sub/y", b"y")
    objects.put("b/z", b"z")
    assert [(i.key, i.size_bytes) for i in objects.list("a")] == [("a/sub/y", 1), ("a/x", 10)]
    assert objects.get("a/x", 2, 5) == b"234"
    objects.delete(["a/x", "a/gone"])
    with pytest.raises(ObjectMissing):
        objects.get("a/x")


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        open_objects("nonsense://x")
