"""Where checkpoints are kept: named bytes in a directory or in an object store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit


class ObjectMissing(KeyError):
    """No object has this key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object. ``modified_at`` is by the store's clock; None where it keeps none."""

    key: str
    size_bytes: int
    modified_at: float | None


class Objects(Protocol):
    """A store of objects by key (``a/b/c``). Methods raise StoreFull, StoreReadOnly or
    StoreUnavailable, and may be called from several threads."""

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` whole or not at all; an object with the key is replaced."""
        ...

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """An object's bytes, or those from ``start`` up to ``end``; raises ObjectMissing."""
        ...

    def info(self, key: str) -> ObjectInfo | None:
        """Size and age of an object; None when there is none."""
        ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Every object under ``prefix/``, by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are gone already are no error."""
        ...


def open_objects(url: str, options: Mapping[str, Any] | None = None) -> Objects:
    """The store at ``url``: a path, ``file://``, ``s3://``, ``gs://``, ``memory://`` or any other
    protocol of fsspec.

    ``options`` go to the file system; ``endpoint_url`` is understood for S3-compatible stores.
    Credentials are found by the provider's own chain. Raises ValueError for an unknown protocol
    and ImportError when the package for it is not installed.
    """
    # Imported here: a node with a local store need not load a cloud's library.
    from hybrid.agent.checkpoints.local import LocalObjects
    from hybrid.agent.checkpoints.remote import open_remote

    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return LocalObjects(Path(parts.path if parts.scheme else url))
    return open_remote(url, parts.scheme, dict(options or {}))
