"""Objects in S3, GCS or whatever else fsspec speaks, with its errors in our words."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

import fsspec

from hybrid.agent.checkpoints.errors import (
    CheckpointError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hybrid.agent.checkpoints.objects import ObjectInfo, ObjectMissing

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 30
#: One request for each of our chunks: a file system that splits them pays for every part.
_BLOCK_BYTES = 64 << 20

_FULL_CODES = frozenset(
    {"QuotaExceeded", "ServiceQuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "507"}
)
_READ_ONLY_CODES = frozenset(
    {"AccessDenied", "AllAccessDisabled", "AccountProblem", "MethodNotAllowed", "Forbidden", "403"}
)
_MISSING_CODES = frozenset({"NoSuchKey", "NotFound", "404"})


def open_remote(url: str, scheme: str, options: dict[str, Any]) -> FsspecObjects:
    """The file system behind ``url``, with timeouts and without caches of listings."""
    options.setdefault("use_listings_cache", False)
    options.setdefault("skip_instance_cache", True)
    if scheme in {"s3", "s3a"}:
        _set_up_s3(options)
    elif scheme in {"gs", "gcs"}:
        options.setdefault("timeout", _READ_TIMEOUT_S)
    file_system, root = fsspec.core.url_to_fs(url, **options)
    return FsspecObjects(file_system, str(root))


def _set_up_s3(options: dict[str, Any]) -> None:
    client = dict(options.get("client_kwargs", {}))
    endpoint_url = options.pop("endpoint_url", None)
    if endpoint_url is not None:
        client["endpoint_url"] = endpoint_url
    options["client_kwargs"] = client
    options["config_kwargs"] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": _READ_TIMEOUT_S,
        "retries": {"mode": "standard", "max_attempts": 3},
        "max_pool_connections": 32,
        # Bytes are summed once, not three times: what is sent carries a CRC that is signed with the
        # request, and every block is compared with its SHA-256 when it comes back.
        "s3": {"payload_signing_enabled": False},
        "response_checksum_validation": "when_required",
        **options.get("config_kwargs", {}),
    }
    options.setdefault("default_block_size", _BLOCK_BYTES)
    options.setdefault("default_fill_cache", False)


def _codes(error: BaseException | None) -> Iterator[str]:
    """The service's own codes, from the error and what it was made of."""
    seen = 0
    while error is not None and seen < 10:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            fault = response.get("Error", {})
            yield str(fault.get("Code", ""))
            yield str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        code = getattr(error, "code", None)  # google's errors
        if isinstance(code, int | str):
            yield str(code)
        error = error.__cause__ or error.__context__
        seen += 1


def translate(error: Exception, where: str) -> CheckpointError | ObjectMissing:
    """The error in our words, by the service's codes; StoreUnavailable when no table has them."""
    codes = set(_codes(error))
    words = f"{where}: {type(error).__name__}"
    named = sorted(codes - {""})
    if named:
        words += f" ({', '.join(named)})"
    if isinstance(error, FileNotFoundError) or codes & _MISSING_CODES:
        return ObjectMissing(where)
    if codes & _FULL_CODES:
        return StoreFull(words)
    if isinstance(error, PermissionError) or codes & _READ_ONLY_CODES:
        return StoreReadOnly(words)
    return StoreUnavailable(words)


class FsspecObjects:
    """Objects under ``root`` of an fsspec file system."""

    def __init__(self, file_system: Any, root: str) -> None:
        self._fs = file_system
        self._root = root.rstrip("/")

    @contextlib.contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # libraries of any kind raise here; the table sorts them
            raise translate(error, self._path(key)) from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def put(self, key: str, data: bytes) -> None:
        """One request; object stores show an object whole or not at all."""
        path = self._path(key)
        with self._translated(key):
            try:
                self._fs.pipe_file(path, data)
            except FileNotFoundError:
                # A file system with real directories.
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, data)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """One (ranged) read."""
        with self._translated(key):
            return bytes(self._fs.cat_file(self._path(key), start=start, end=end))

    def info(self, key: str) -> ObjectInfo | None:
        """One HEAD."""
        try:
            with self._translated(key):
                return _info(key, self._fs.info(self._path(key)))
        except ObjectMissing:
            return None

    def list(self, prefix: str) -> list[ObjectInfo]:
        """One listing, page by page."""
        try:
            with self._translated(prefix):
                self._fs.invalidate_cache()
                found = self._fs.find(self._path(prefix), detail=True)
        except ObjectMissing:
            return []
        start = len(self._root.lstrip("/")) + 1
        infos = [_info(path.lstrip("/")[start:], info) for path, info in found.items()]
        return sorted(infos, key=lambda info: info.key)

    def delete(self, keys: Iterable[str]) -> None:
        """One request each."""
        for key in keys:
            with contextlib.suppress(ObjectMissing), self._translated(key):
                self._fs.rm(self._path(key))


def _info(key: str, info: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, int(info.get("size") or 0), _modified_at(info))


def _modified_at(info: dict[str, Any]) -> float | None:
    """File systems agree neither on the name of this field nor on its type."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return dt.datetime.fromisoformat(value).timestamp()
    return None
