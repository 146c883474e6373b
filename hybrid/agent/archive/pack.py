"""Packs a folder: the same files give the same bytes, whoever packs them and whenever (and with
the same build of zlib, which may change how it compresses)."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from hybrid.agent.archive.entries import (
    DEFAULT_LIMITS,
    MAX_RATIO,
    RATIO_FROM_BYTES,
    Entry,
    Limits,
    refuse_too_large,
    refuse_unsafe,
)
from hybrid.agent.archive.errors import ArchiveTooLarge, UnsafeArchiveEntry
from hybrid.agent.archive.ignore import IgnoreRules

_COMPRESSION = 3
_SCAN_STOPS_AT_TIMES = 4


@dataclass(frozen=True, slots=True)
class PackReport:
    """A packed folder. ``digest`` (``sha256:…``) names its bytes."""

    digest: str
    entries: int
    content_bytes: int
    archive_bytes: int


def pack_folder(root: Path, destination: Path, limits: Limits = DEFAULT_LIMITS) -> PackReport:
    """Write ``root`` as a .tar.gz to ``destination``, which appears whole or not at all.

    Left out is what .gitignore and .hybridignore name, and .git. Raises ArchiveTooLarge,
    UnsafeArchiveEntry (a device, a socket, a link that leaves the folder), or OSError.
    """
    return _pack(root, list_folder(root, limits), destination, limits)


def pack_paths(
    root: Path, paths: Sequence[str], destination: Path, limits: Limits = DEFAULT_LIMITS
) -> PackReport:
    """Write only ``paths`` (files or folders under ``root``) with all they hold; what does not
    exist is left out. For outputs: ignore files do not apply. Raises like :func:`pack_folder`."""
    entries: dict[str, Entry] = {}
    for path in sorted(set(paths)):
        name = path.strip("/")
        refuse_unsafe([Entry(name)])
        if not os.path.lexists(root / name):
            continue
        for above in Path(name).parents:
            if str(above) != ".":
                _add_parent(root, str(above), entries)
        entry = _entry_of(root, name)
        entries[name] = entry
        if entry.is_directory:
            entries |= {e.path: e for e in _walk(root, name, None, limits)}
    return _pack(root, sorted(entries.values(), key=lambda entry: entry.path), destination, limits)


def _add_parent(root: Path, name: str, entries: dict[str, Entry]) -> None:
    entry = _entry_of(root, name)
    if not entry.is_directory:
        raise UnsafeArchiveEntry(name, "is no directory")
    entries[name] = entry


def list_folder(root: Path, limits: Limits = DEFAULT_LIMITS) -> list[Entry]:
    """What :func:`pack_folder` would pack, by path; for showing its size beforehand."""
    return sorted(_walk(root, "", IgnoreRules.top(), limits), key=lambda entry: entry.path)


def _walk(root: Path, start: str, rules: IgnoreRules | None, limits: Limits) -> Iterator[Entry]:
    """Every entry under ``start``; gives up on folders far beyond the limit."""
    waiting = [(start, rules)]
    count = 0
    while waiting:
        folder, above = waiting.pop()
        here = above.within(root, folder) if above else None
        for item in sorted(os.scandir(root / folder), key=lambda item: item.name):
            path = f"{folder}/{item.name}" if folder else item.name
            if here and here.excludes(path, is_directory=item.is_dir(follow_symlinks=False)):
                continue
            count += 1
            if count > limits.entries * _SCAN_STOPS_AT_TIMES:
                raise ArchiveTooLarge(limits.entries, count, (), "entries")
            entry = _entry_of(root, path)
            if entry.is_directory:
                waiting.append((path, here))
            yield entry


def _entry_of(root: Path, path: str) -> Entry:
    status = (root / path).lstat()
    # Only whether it may be executed travels: the rest of the mode is the packer's umask.
    mode = 0o755 if status.st_mode & 0o100 else 0o644
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, 0, 0o755, is_directory=True)
    if stat.S_ISREG(status.st_mode):
        return Entry(path, status.st_size, mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, 0, 0o777, target=str((root / path).readlink()))
    raise UnsafeArchiveEntry(path, "is a device, a socket or a pipe")


class _Digesting:
    """A file that hashes what passes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size_bytes += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _pack(root: Path, entries: list[Entry], destination: Path, limits: Limits) -> PackReport:
    refuse_unsafe(entries)
    content_bytes = refuse_too_large(entries, limits)
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    try:
        out = _write(root, entries, temporary, _COMPRESSION)
        if content_bytes > max(RATIO_FROM_BYTES, out.size_bytes * MAX_RATIO):
            # Whoever unpacks it would take it for a bomb.
            out = _write(root, entries, temporary, 0)
        temporary.replace(destination)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return PackReport(out.digest, len(entries), content_bytes, out.size_bytes)


def _write(root: Path, entries: list[Entry], path: Path, level: int) -> _Digesting:
    with path.open("wb") as file:
        out = _Digesting(file)
        # No name and no time in the gzip header: they would change the digest.
        with (
            gzip.GzipFile("", "wb", level, cast("IO[bytes]", out), mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for entry in entries:
                _add(tar, root, entry)
        file.flush()
        os.fsync(file.fileno())
    return out


def _add(tar: tarfile.TarFile, root: Path, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode = entry.mode
    if entry.is_directory:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    if entry.target is not None:
        info.type = tarfile.SYMTYPE
        info.linkname = entry.target
        tar.addfile(info)
        return
    fd = os.open(root / entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        # The size that was checked is the size that is packed, even if the file grows meanwhile.
        info.size = entry.size_bytes
        if os.fstat(fd).st_size < entry.size_bytes:
            raise UnsafeArchiveEntry(entry.path, "became shorter while it was packed")
        tar.addfile(info, file)
