"""Looks at a checkpoint directory: what is in it, and whether it held still meanwhile."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hybrid.agent.checkpoints.errors import SnapshotChanged, UnsafeEntry

TEMPORARY_SUFFIX = ".tmp"
MIN_BLOCK_BYTES = 128 << 10
MAX_BLOCK_BYTES = 4 << 20
_BLOCKS_AIMED_AT = 1024


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


def read_blocks(
    root: Path, path: str, stamp: FileStamp, block_bytes: int, start: int, count: int
) -> list[tuple[bytes, bytes]]:
    """``count`` blocks from block ``start``, each with its SHA-256; raises SnapshotChanged."""
    blocks: list[tuple[bytes, bytes]] = []
    try:
        fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SnapshotChanged(path) from error
    try:
        if FileStamp.of(os.fstat(fd)) != stamp:
            raise SnapshotChanged(path)
        for block in _pieces(fd, stamp.size_bytes, block_bytes, start, count):
            if block is None:
                raise SnapshotChanged(path)
            blocks.append((hashlib.sha256(block).digest(), block))
        if FileStamp.of(os.fstat(fd)) != stamp:
            raise SnapshotChanged(path)
    finally:
        os.close(fd)
    return blocks


def _pieces(
    fd: int, size_bytes: int, block_bytes: int, start: int, count: int
) -> Iterator[bytes | None]:
    for index in range(start, start + count):
        offset = index * block_bytes
        wanted = min(block_bytes, size_bytes - offset)
        data = os.pread(fd, wanted, offset)
        while 0 < len(data) < wanted:
            more = os.pread(fd, wanted - len(data), offset + len(data))
            if not more:
                break
            data += more
        yield data if len(data) == wanted else None
