"""Unpacks an archive from somebody else: everything is checked before anything is written."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hybrid.agent.archive.entries import (
    DEFAULT_LIMITS,
    MAX_RATIO,
    RATIO_FROM_BYTES,
    Entry,
    Limits,
    refuse_too_large,
    refuse_unsafe,
)
from hybrid.agent.archive.errors import ArchiveTooLarge, BrokenArchive, UnsafeArchiveEntry

_READ_BYTES = 1 << 20
#: tar's own headers, on top of the content: one block and at most a few for a long name.
_HEADER_BYTES = 10 << 10


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """What was unpacked."""

    digest: str
    entries: int
    content_bytes: int


def unpack(
    archive: Path, target: Path, digest: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> UnpackReport:
    """Unpack ``archive`` to ``target``, which must not exist or be empty and appears whole.

    The whole listing is verified first. Raises BrokenArchive (also for another ``digest``),
    UnsafeArchiveEntry, ArchiveTooLarge, or OSError; then nothing is left behind.
    """
    found = file_digest(archive)
    if digest is not None and found != digest:
        raise BrokenArchive(f"its digest is {found} where {digest} was expected")
    target = target.absolute()
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Plain tar on disk: verified and unpacked from the same bytes, and never larger than allowed.
    with tempfile.TemporaryFile(dir=target.parent) as plain:
        _inflate(archive, plain.fileno(), limits)
        plain.seek(0)
        try:
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                members = _members(tar, limits)
                entries = [_entry_of(member) for member in members]
                refuse_unsafe(entries)
                content_bytes = refuse_too_large(entries, limits)
                _write_out(tar, members, target)
        except tarfile.FilterError as error:
            raise UnsafeArchiveEntry(
                error.tarinfo.name, "is refused by tar's own filter"
            ) from error
        except (tarfile.TarError, EOFError) as error:
            raise BrokenArchive(f"not a readable archive: {error}") from error
    return UnpackReport(found, len(entries), content_bytes)


def file_digest(path: Path) -> str:
    """``sha256:…`` of a file's bytes."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _inflate(archive: Path, out: int, limits: Limits) -> None:
    """Decompress within the limits, whatever the archive claims."""
    ceiling = limits.total_bytes + limits.entries * _HEADER_BYTES
    packed_bytes = archive.stat().st_size
    written = 0
    for data in _inflated(archive):
        written += len(data)
        if written > ceiling:
            raise ArchiveTooLarge(limits.total_bytes, written, ())
        if written > max(RATIO_FROM_BYTES, packed_bytes * MAX_RATIO):
            raise BrokenArchive(f"{packed_bytes} bytes unfold to more than {written}: a bomb")
        os.write(out, data)


def _inflated(archive: Path) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    with archive.open("rb") as file:
        try:
            while data := file.read(_READ_BYTES):
                while data:
                    yield decompressor.decompress(data, _READ_BYTES)
                    data = decompressor.unconsumed_tail
                if decompressor.eof:
                    break
        except zlib.error as error:
            raise BrokenArchive(f"not a gzip file: {error}") from error
        if not decompressor.eof:
            raise BrokenArchive("it ends too early")
        if decompressor.unused_data or file.read(1):
            raise BrokenArchive("something follows its end")


def _members(tar: tarfile.TarFile, limits: Limits) -> list[tarfile.TarInfo]:
    members: list[tarfile.TarInfo] = []
    for member in tar:
        members.append(member)
        if len(members) > limits.entries:
            raise ArchiveTooLarge(limits.entries, len(members), (), "entries")
    return members


def _entry_of(member: tarfile.TarInfo) -> Entry:
    name = member.name
    if member.isdir():
        return Entry(name, 0, member.mode, is_directory=True)
    if member.isreg() and not member.issparse():
        return Entry(name, member.size, member.mode)
    if member.issym():
        return Entry(name, 0, member.mode, target=member.linkname)
    raise UnsafeArchiveEntry(name, "is neither a file, a directory nor a symbolic link")


def _write_out(tar: tarfile.TarFile, members: list[tarfile.TarInfo], target: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.unpack-", dir=target.parent))
    try:
        for member in members:
            # Ownership and times say nothing here; the filter strips set-id bits as well.
            tar.extract(member, building, set_attrs=True, filter="data")
        building.chmod(0o755)
        building.replace(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
