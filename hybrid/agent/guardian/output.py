"""A run's output on disk: bounded whatever the job prints, readable by offset while it grows.

The rule: a log is written in segments of a quarter of its limit. A full segment is renamed to
``NAME.<offset of its first byte>`` and the three newest of those stay. So a log never takes more
than its limit, never holds less than its newest three quarters, and a byte keeps its offset for
ever, even when what came before it is gone.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

OUTPUT_LOG = "output.log"
STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"

_SEGMENTS = 4
_LONGEST_LINE_BYTES = 16 << 10
_READ_TRIES = 20


def _segments(path: Path) -> list[tuple[int, Path]]:
    """Full segments of the log at ``path``, oldest first, with their first offset."""
    found = []
    for other in path.parent.glob(f"{path.name}.*"):
        suffix = other.name[len(path.name) + 1 :]
        if suffix.isdigit():
            found.append((int(suffix), other))
    return sorted(found)


class BoundedLog:
    """The writing side. A full disk loses output (counted), never the run."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path = path
        self._segment_bytes = max(1, limit_bytes // _SEGMENTS)
        self._base = 0
        self._size = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append ``data``; it may be split over segments."""
        view = memoryview(data)
        while view:
            if self._size >= self._segment_bytes and not self._rotate():
                self.lost_bytes += len(view)
                return
            piece = view[: max(1, self._segment_bytes - self._size)]
            try:
                written = os.write(self._fd, piece)
            except OSError:
                self.lost_bytes += len(view)
                return
            self._size += written
            view = view[written:]

    def _rotate(self) -> bool:
        fresh = self._path.with_name(f".{self._path.name}.next")
        try:
            for _, old in _segments(self._path)[: -(_SEGMENTS - 2)]:
                old.unlink()
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:
            return False
        try:
            self._path.rename(f"{self._path}.{self._base}")
            fresh.rename(self._path)
        except OSError:
            os.close(fd)
            return False
        os.close(self._fd)
        self._fd = fd
        self._base += self._size
        self._size = 0
        return True

    def close(self) -> None:
        """Flush to disk and close."""
        with contextlib.suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)


class LineMerger:
    """Merges two streams into one log without cutting lines.

    Lines appear in the order in which the guardian read them. A line longer than 16 KiB, or one
    that stays unfinished for a moment (a progress bar), is written as it is.
    """

    def __init__(self, log: BoundedLog) -> None:
        self._log = log
        self._held: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> None:
        """Take what was just read from ``stream``."""
        whole = self._held.pop(stream, b"") + data
        cut = whole.rfind(b"\n") + 1
        if len(whole) - cut > _LONGEST_LINE_BYTES:
            cut = len(whole)
        if cut:
            self._log.write(whole[:cut])
        if cut < len(whole):
            self._held[stream] = whole[cut:]

    def flush(self) -> None:
        """Write what waits for the end of its line."""
        for stream in sorted(self._held):
            self._log.write(self._held[stream])
        self._held.clear()


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log.

    ``offset`` is where ``data`` starts, which is later than asked for when older output is gone;
    read on at ``next_offset``.
    """

    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last byte."""
        return self.offset + len(self.data)


def read_log(run_dir: Path, offset: int, limit_bytes: int, name: str = OUTPUT_LOG) -> LogChunk:
    """Up to ``limit_bytes`` of a run's log from ``offset``; empty at its present end."""
    path = run_dir / name
    for _ in range(_READ_TRIES):
        chunk = _read_once(path, max(0, offset), limit_bytes)
        if chunk is not None:
            return chunk
    return LogChunk(offset, b"")


def log_size(run_dir: Path, name: str = OUTPUT_LOG) -> int:
    """The offset after the last byte written so far."""
    path = run_dir / name
    older = _segments(path)
    try:
        base = older[-1][0] + older[-1][1].stat().st_size if older else 0
        return base + path.stat().st_size
    except OSError:
        return 0


def _read_once(path: Path, offset: int, limit_bytes: int) -> LogChunk | None:
    """One try; None when the log was rotated under the reader."""
    try:
        current = path.open("rb")
    except FileNotFoundError:
        return LogChunk(offset, b"")
    with current:
        try:
            older = [(base, base + seg.stat().st_size, seg) for base, seg in _segments(path)]
            if path.stat().st_ino != os.fstat(current.fileno()).st_ino:
                return None
            base = older[-1][1] if older else 0
            if offset < base:
                start, segment = next((s, seg) for s, end, seg in older if offset < end)
                return _piece(segment, start, max(offset, start), limit_bytes)
        except FileNotFoundError:
            return None
        current.seek(offset - base)
        return LogChunk(offset, current.read(limit_bytes))


def _piece(segment: Path, start: int, offset: int, limit_bytes: int) -> LogChunk:
    with segment.open("rb") as file:
        file.seek(offset - start)
        return LogChunk(offset, file.read(limit_bytes))
