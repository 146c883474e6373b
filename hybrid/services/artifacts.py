"""Work folders and outputs, stored under the digest of their bytes.

What is written is checked while it streams in, and becomes visible only when it is whole and is
what its digest says: a reader never sees a part. Writing the same bytes twice stores them once.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

from hybrid.services.errors import NotFound, Refused, StartupError, TooLarge

CHUNK_BYTES = 1 << 20
ABANDONED_AFTER_S = 86_400.0
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_WHOLE_AT_ONCE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az"})
"""Protocols whose objects appear whole or not at all; elsewhere a rename makes it so."""


class Shelf(Protocol):
    """Where finished artifacts lie."""

    def size(self, key: str) -> int | None:
        """Bytes stored under a key, None if there are none."""
        ...

    def put(self, draft: Path, key: str) -> None:
        """Store a finished local file; the file is gone after."""
        ...

    def open(self, key: str) -> IO[bytes]:
        """Read what is stored; FileNotFoundError if nothing is."""
        ...

    def link(self, key: str, valid_s: int) -> str | None:
        """A URL that anyone can read it by for a while, None where there is no such thing."""
        ...


@dataclass(frozen=True, slots=True)
class FolderShelf:
    """A folder of this machine."""

    root: Path

    def size(self, key: str) -> int | None:
        """Bytes stored under a key, None if there are none."""
        try:
            return (self.root / key).stat().st_size
        except FileNotFoundError:
            return None

    def put(self, draft: Path, key: str) -> None:
        """Store a finished local file; the file is gone after."""
        target = self.root / key
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            draft.replace(target)
        except OSError:  # another file system: copy beside it, then rename
            beside = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
            shutil.copyfile(draft, beside)
            beside.replace(target)
            draft.unlink()

    def open(self, key: str) -> IO[bytes]:
        """Read what is stored; FileNotFoundError if nothing is."""
        return (self.root / key).open("rb")

    def link(self, key: str, valid_s: int) -> str | None:  # noqa: ARG002  as in Shelf
        """A folder has no URLs."""
        return None


@dataclass(frozen=True, slots=True)
class RemoteShelf:
    """A bucket, or anything else that fsspec reaches."""

    fs: Any
    root: str

    def size(self, key: str) -> int | None:
        """Bytes stored under a key, None if there are none."""
        try:
            # past the listing cache: another server may have written it
            self.fs.invalidate_cache(f"{self.root}/{key}")
            return int(self.fs.info(f"{self.root}/{key}")["size"])
        except FileNotFoundError:
            return None

    def put(self, draft: Path, key: str) -> None:
        """Store a finished local file; the file is gone after."""
        target = f"{self.root}/{key}"
        protocol = self.fs.protocol if isinstance(self.fs.protocol, str) else self.fs.protocol[0]
        if protocol in _WHOLE_AT_ONCE:
            self.fs.put_file(str(draft), target)
        else:
            self.fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            part = f"{target}.part-{secrets.token_hex(4)}"
            self.fs.put_file(str(draft), part)
            self.fs.mv(part, target)
        draft.unlink()

    def open(self, key: str) -> IO[bytes]:
        """Read what is stored; FileNotFoundError if nothing is."""
        opened: IO[bytes] = self.fs.open(f"{self.root}/{key}", "rb")
        return opened

    def link(self, key: str, valid_s: int) -> str | None:
        """A signed URL, where the store behind it can make one."""
        try:
            return str(self.fs.sign(f"{self.root}/{key}", expiration=valid_s))
        except NotImplementedError:
            return None


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The artifact store. ``drafts`` is a local folder for what is still arriving."""

    shelf: Shelf
    drafts: Path
    limit_bytes: int

    @classmethod
    def opened(cls, url: str, *, drafts: Path, limit_bytes: int) -> Artifacts:
        """The store at a folder or fsspec URL; StartupError when it cannot be reached."""
        try:
            drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
            for draft in drafts.iterdir():
                if draft.stat().st_mtime < time.time() - ABANDONED_AFTER_S:
                    draft.unlink()
            return cls(_shelf(url), drafts, limit_bytes)
        except (OSError, ValueError, ImportError) as problem:
            said = " ".join(str(problem).split())
            raise StartupError(f"the artifact store {url} cannot be used: {said}") from problem

    def size(self, digest: str) -> int:
        """Bytes of an artifact; NotFound when it is not there."""
        found = self.shelf.size(_key(digest))
        if found is None:
            raise _nothing(digest)
        return found

    def has(self, digest: str) -> bool:
        """Whether the artifact is there, whole."""
        return self.shelf.size(_key(digest)) is not None

    def receive(self, digest: str) -> Receiving:
        """Begin to write an artifact; use it as a context manager."""
        return Receiving(self, digest)

    def read(self, digest: str) -> Iterator[bytes]:
        """The artifact's bytes in chunks; NotFound, before the first, when it is not there."""
        try:
            file = self.shelf.open(_key(digest))
        except FileNotFoundError as problem:
            raise _nothing(digest) from problem
        return _chunks(file)

    def link(self, digest: str, *, valid_s: int = 900) -> str | None:
        """A URL that serves the artifact without the server, where the store can sign one."""
        self.size(digest)
        return self.shelf.link(_key(digest), valid_s)


class Receiving:
    """An artifact on its way in. Leaving without :meth:`finish` leaves nothing behind."""

    def __init__(self, store: Artifacts, digest: str):
        self._store, self._digest, self._target = store, digest, _key(digest)
        self._hash = hashlib.sha256()
        self._path = store.drafts / secrets.token_hex(16)
        self._file: IO[bytes] | None = None
        self.size = 0

    def __enter__(self) -> Self:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def write(self, chunk: bytes) -> None:
        """Take the next bytes; TooLarge past the store's limit."""
        assert self._file is not None
        self.size += len(chunk)
        if self.size > self._store.limit_bytes:
            raise TooLarge(
                "artifact_too_large", f"an artifact has at most {self._store.limit_bytes} bytes"
            )
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self) -> int:
        """Make it visible and return its size; Refused when the bytes are not what the digest
        says."""
        assert self._file is not None
        found = f"sha256:{self._hash.hexdigest()}"
        if found != self._digest:
            raise Refused("digest_mismatch", f"the bytes that came are {found}, not {self._digest}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._store.shelf.put(self._path, self._target)
        return self.size


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _key(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise Refused("bad_digest", "a digest is sha256: and 64 hex digits, in lower case")
    return f"sha256/{match[1][:2]}/{match[1]}"


def _nothing(digest: str) -> NotFound:
    return NotFound("no_such_artifact", f"there is no artifact {digest}")


def _shelf(url: str) -> Shelf:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        root = Path(unquote(parts.path))
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FolderShelf(root)
    import fsspec  # only a server with a bucket needs it

    fs, path = fsspec.core.url_to_fs(url)
    return RemoteShelf(fs, str(path).rstrip("/"))
