"""What may be in an archive, judged by names alone: the same rules at packing and unpacking."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from hybrid.agent.archive.errors import ArchiveTooLarge, UnsafeArchiveEntry

MAX_ENTRIES = 200_000
DEFAULT_LIMIT_BYTES = 512 << 20
#: An archive that unfolds to more than this many times its size, and to more than these bytes, is
#: taken for a bomb. (Deflate ends at about 1032:1; folders of code and data stay below 20:1.)
MAX_RATIO = 200
RATIO_FROM_BYTES = 64 << 20
_MAX_PATH = 4096
_BIGGEST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a link (``target``) by relative path."""

    path: str
    size_bytes: int = 0
    mode: int = 0o644
    is_directory: bool = False
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may hold, unpacked."""

    total_bytes: int = DEFAULT_LIMIT_BYTES
    entries: int = MAX_ENTRIES


DEFAULT_LIMITS = Limits()


def refuse_unsafe(entries: Iterable[Entry]) -> None:
    """Raise UnsafeArchiveEntry for the first entry, in order, that could write or point outside,
    comes twice, or lies behind something that is no directory."""
    kinds: dict[str, Entry] = {}
    listed = list(entries)
    for entry in listed:
        _refuse_path(entry.path)
        if entry.path in kinds:
            raise UnsafeArchiveEntry(entry.path, "is there twice")
        kinds[entry.path] = entry
    for entry in listed:
        above = posixpath.dirname(entry.path)
        while above:
            parent = kinds.get(above)
            if parent is not None and not parent.is_directory:
                raise UnsafeArchiveEntry(entry.path, f"lies behind {above}, which is no directory")
            above = posixpath.dirname(above)
        if entry.target is not None:
            _refuse_target(entry, kinds)


def _refuse_path(path: str) -> None:
    if not path or path.startswith("/"):
        raise UnsafeArchiveEntry(path or "(empty name)", "is not a relative path")
    parts = path.split("/")
    if ".." in parts:
        raise UnsafeArchiveEntry(path, "contains ..")
    if "" in parts or "." in parts or "\0" in path or len(path) > _MAX_PATH:
        raise UnsafeArchiveEntry(path, "is not a plain path")


def _refuse_target(entry: Entry, kinds: dict[str, Entry]) -> None:
    """A link must stay inside by its text, also where it goes through other links."""
    target = entry.target or ""
    if not target or target.startswith("/") or "\0" in target:
        raise UnsafeArchiveEntry(entry.path, f"links to {target or 'nothing'}, which is outside")
    here = posixpath.dirname(entry.path)
    waiting = target.split("/")[::-1]
    hops = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                raise UnsafeArchiveEntry(entry.path, f"links to {target}, which is outside")
            here = posixpath.dirname(here)
            continue
        here = posixpath.join(here, part)
        through = kinds.get(here)
        if through is not None and through.target is not None:
            hops += 1
            if hops > 40 or through.target.startswith("/"):
                raise UnsafeArchiveEntry(entry.path, f"links to {target}, which leads nowhere safe")
            waiting += through.target.split("/")[::-1]
            here = posixpath.dirname(here)


def refuse_too_large(entries: Iterable[Entry], limits: Limits) -> int:
    """The bytes of all files; raises ArchiveTooLarge."""
    listed = list(entries)
    total = sum(entry.size_bytes for entry in listed)
    if total > limits.total_bytes:
        by_size = sorted(listed, key=lambda entry: (-entry.size_bytes, entry.path))
        biggest = [(entry.path, entry.size_bytes) for entry in by_size[:_BIGGEST_SHOWN]]
        raise ArchiveTooLarge(limits.total_bytes, total, biggest)
    if len(listed) > limits.entries:
        raise ArchiveTooLarge(limits.entries, len(listed), (), "entries")
    return total
