"""Looks at a checkpoint directory: what is in it, and whether it held still meanwhile."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hybrid.agent.checkpoints.errors import SnapshotChanged, UnsafeEntry

TEMPORARY_SUFFIX = ".tmp"
MIN_BLOCK_BYTES = 128 << 10
MAX_BLOCK_BYTES = 4 << 20
_BLOCKS_AIMED_AT = 1024
_buffers = threading.local()


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells that a file is still the one that was looked at."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """From a stat result."""
        return cls(
            size_bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            mode=stat.S_IMODE(status.st_mode),
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything in a directory by relative path, in order."""

    files: tuple[tuple[str, FileStamp], ...]
    directories: tuple[tuple[str, int], ...]
    links: tuple[tuple[str, str], ...]


def scan(root: Path) -> Listing:
    """List ``root``; names ending in ``.tmp`` are left out, directories of that name with all they
    hold. Links that stay inside are kept; raises UnsafeEntry for any other special entry,
    SnapshotChanged when something disappears meanwhile."""
    files: list[tuple[str, FileStamp]] = []
    directories: list[tuple[str, int]] = []
    links: list[tuple[str, str]] = []
    waiting = [""]
    while waiting:
        here = waiting.pop()
        try:
            entries = sorted(os.scandir(root / here), key=lambda entry: entry.name)
            for entry in entries:
                if entry.name.endswith(TEMPORARY_SUFFIX):
                    continue
                path = f"{here}/{entry.name}" if here else entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    directories.append((path, stat.S_IMODE(status.st_mode)))
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files.append((path, FileStamp.of(status)))
                elif stat.S_ISLNK(status.st_mode):
                    links.append((path, _inner_target(root, path)))
                else:
                    raise UnsafeEntry(path, "is neither a file, a directory nor a link")
        except FileNotFoundError as error:
            raise SnapshotChanged(str(error.filename)) from error
    return Listing(tuple(sorted(files)), tuple(sorted(directories)), tuple(sorted(links)))


def _inner_target(root: Path, path: str) -> str:
    target = str((root / path).readlink())
    if not stays_inside(path, target):
        raise UnsafeEntry(path, f"links to {target}, which is outside")
    return target


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at relative ``path`` to ``target`` points into the same tree, by its text."""
    if target.startswith("/"):
        return False
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return joined != ".." and not joined.startswith("../")


def block_bytes_for(size_bytes: int) -> int:
    """The block size for a file: a power of two that gives about a thousand blocks, between
    128 KiB and 4 MiB.

    Blocks have a fixed size instead of content-defined bounds: training state changes in place
    (tensors keep their offsets) or as a whole, and is hardly ever shifted; fixed blocks cost no
    rolling hash and let a restore write every block where it belongs.
    """
    block = MIN_BLOCK_BYTES
    while block < MAX_BLOCK_BYTES and block * _BLOCKS_AIMED_AT < size_bytes:
        block *= 2
    return block


class ReadBlock(NamedTuple):
    """A block of a file. ``data`` is None where whoever asked has no use for it."""

    digest: bytes
    size_bytes: int
    data: bytes | None


def read_blocks(
    root: Path,
    path: str,
    stamp: FileStamp,
    block_bytes: int,
    blocks: range,
    known: Callable[[bytes], bool],
) -> list[ReadBlock]:
    """The blocks of a file with these numbers, each with its SHA-256; raises SnapshotChanged.

    The data of blocks whose digest is ``known`` is let go at once.
    """
    found: list[ReadBlock] = []
    buffer = _own_buffer()
    try:
        fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SnapshotChanged(path) from error
    try:
        if FileStamp.of(os.fstat(fd)) != stamp:
            raise SnapshotChanged(path)
        for number in blocks:
            offset = number * block_bytes
            view = buffer[: min(block_bytes, stamp.size_bytes - offset)]
            if not _read_fully(fd, view, offset):
                raise SnapshotChanged(path)
            digest = hashlib.sha256(view).digest()
            found.append(ReadBlock(digest, len(view), None if known(digest) else bytes(view)))
        if FileStamp.of(os.fstat(fd)) != stamp:
            raise SnapshotChanged(path)
    finally:
        os.close(fd)
    return found


def _own_buffer() -> memoryview:
    """This thread's buffer. Fresh memory for each block costs as much as hashing it."""
    buffer: memoryview | None = getattr(_buffers, "own", None)
    if buffer is None:
        buffer = _buffers.own = memoryview(bytearray(MAX_BLOCK_BYTES))
    return buffer


def _read_fully(fd: int, view: memoryview, offset: int) -> bool:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if not count:
            return False
        done += count
    return True
