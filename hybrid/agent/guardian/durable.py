"""Small files that survive a crash: written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from pathlib import Path
from typing import Any

MAX_RECORD_BYTES = 4 << 20
_RESERVE_BYTES = 16 << 10
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_serial = itertools.count()


def fsync_directory(directory: Path) -> None:
    """Make renames and links inside ``directory`` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _encode(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _write_temporary(path: Path, data: bytes, *, durable: bool) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def write_record(path: Path, record: dict[str, Any], *, durable: bool = True) -> None:
    """Replace ``path`` by ``record``; readers see the old one or the new one.

    ``durable=False`` leaves out the syncs, for what means nothing after a reboot. On a full disk
    an old record is overwritten where it stands, which needs no room: whoever reads such a record
    must take one that does not parse for one that is being written.
    """
    data = _encode(record)
    try:
        temporary = _write_temporary(path, data, durable=durable)
    except OSError as error:
        if error.errno not in _FULL or not path.exists():
            raise
        _overwrite(path, data)
        return
    temporary.replace(path)
    if durable:
        fsync_directory(path.parent)


def _overwrite(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def write_record_once(path: Path, record: dict[str, Any]) -> bool:
    """Create ``path`` unless it exists; False when somebody else was first.

    A link is used instead of ``O_EXCL``: the file appears with its contents or not at all, so a
    crash cannot leave an empty one behind.
    """
    temporary = _write_temporary(path, _encode(record), durable=True)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    fsync_directory(path.parent)
    return True


def reserve(path: Path) -> None:
    """Set disk blocks aside at ``path``, so that a record fits when the disk is full later."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, _RESERVE_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)


def publish_reserved(reserved: Path, path: Path, record: dict[str, Any]) -> bool:
    """Like :func:`write_record_once`, into the blocks that :func:`reserve` set aside."""
    data = _encode(record)
    if not reserved.exists() or len(data) > _RESERVE_BYTES:
        return write_record_once(path, record)
    _overwrite(reserved, data)
    created = True
    try:
        os.link(reserved, path)
    except FileExistsError:
        created = False
    reserved.unlink()
    fsync_directory(path.parent)
    return created


def read_record(path: Path) -> dict[str, Any] | None:
    """The record at ``path``; None when it is missing, too large or not an object."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_RECORD_BYTES:
        return None
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line to ``path`` and sync it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, _encode(record))
        os.fsync(fd)
    finally:
        os.close(fd)
