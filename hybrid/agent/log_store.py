"""The server's copy of what runs print: bounded per rank, addressed by byte offset.

A rank's log is a directory of segments, each named by the offset of its first byte. The oldest
segments go when the log passes its limit, so a byte keeps its offset for ever and readers are told
when what they ask for is gone. Where the node itself had to drop output, the next segment simply
begins later.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hybrid.domain.ids import JobId, RunId

DEFAULT_LIMIT_BYTES = 64 << 20
_SEGMENTS = 8
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_LOCKS = 64


class BadName(ValueError):
    """A job or run id that is not safe as a file name."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of a log. ``offset`` is later than asked for when older output is gone."""

    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        return self.offset + len(self.data)


class LogStore:
    """Logs of all runs under one directory, ``JOB/RUN/RANK/OFFSET``. Safe for many threads, and
    for several processes on one directory as long as one of them takes a given node's logs at a
    time (a node sends in order)."""

    def __init__(self, root: Path, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._root = root
        self._segment_bytes = max(1, limit_bytes // _SEGMENTS)
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._grown = threading.Condition()

    def append(
        self, job_id: JobId, run_id: RunId, rank: int, offset: int, data: bytes, *, gap: bool
    ) -> int:
        """Take bytes that begin at ``offset``; where the log ends now.

        What is there already is skipped, so repeating is harmless. Bytes beyond the end are
        taken only with ``gap``: the node no longer has what is missing. Raises OSError when the
        disk is full, BadName.
        """
        folder = self._folder(job_id, run_id, rank)
        with self._locks[hash(folder) % _LOCKS]:
            segments = _segments(folder)
            end = _end(segments)
            if offset > end and not gap:
                return end
            fresh = data[max(0, end - offset) :]
            if not fresh:
                return end
            begin = max(offset, end)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(folder, segments, begin, fresh, contiguous=begin == end)
            end = begin + len(fresh)
        with self._grown:
            self._grown.notify_all()
        return end

    def _write(
        self,
        folder: Path,
        segments: list[tuple[int, int, Path]],
        begin: int,
        data: bytes,
        *,
        contiguous: bool,
    ) -> None:
        view = memoryview(data)
        last = segments[-1] if segments and contiguous else None
        while view:
            if last is None or last[1] - last[0] >= self._segment_bytes:
                last = (begin, begin, folder / f"{begin:020d}")
            piece = view[: self._segment_bytes - (last[1] - last[0])]
            with last[2].open("ab") as file:
                file.write(piece)
            begin += len(piece)
            last = (last[0], begin, last[2])
            view = view[len(piece) :]
        for _, _, path in _segments(folder)[:-_SEGMENTS]:
            path.unlink(missing_ok=True)

    def end(self, job_id: JobId, run_id: RunId, rank: int) -> int:
        """The offset after the last byte; 0 for a log that nobody has written."""
        return _end(_segments(self._folder(job_id, run_id, rank)))

    def ranks(self, job_id: JobId, run_id: RunId) -> tuple[int, ...]:
        """The ranks of a run that have printed anything."""
        folder = self._folder(job_id, run_id, 0).parent
        with contextlib.suppress(OSError):
            return tuple(sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit()))
        return ()

    def read(
        self, job_id: JobId, run_id: RunId, rank: int, offset: int, *, limit_bytes: int = 1 << 16
    ) -> LogPiece:
        """Up to ``limit_bytes`` from ``offset``, or from the next byte there is; empty at the
        end."""
        for begin, end, path in _segments(self._folder(job_id, run_id, rank)):
            if end <= offset:
                continue
            start = max(offset, begin)
            try:
                with path.open("rb") as file:
                    file.seek(start - begin)
                    return LogPiece(start, file.read(limit_bytes))
            except FileNotFoundError:
                continue  # the oldest segment has just been dropped
        return LogPiece(offset, b"")

    def pieces(
        self, job_id: JobId, run_id: RunId, rank: int, offset: int = 0
    ) -> Iterator[LogPiece]:
        """What there is now, from ``offset`` on."""
        while (piece := self.read(job_id, run_id, rank, offset)).data:
            yield piece
            offset = piece.next_offset

    def follow(
        self,
        job_id: JobId,
        run_id: RunId,
        rank: int,
        offset: int = 0,
        *,
        over: Callable[[], bool],
        poll_s: float = 0.5,
        idle_s: float = 86_400.0,
    ) -> Iterator[LogPiece]:
        """What there is, then what comes, until ``over()`` and all has been read.

        Yields an empty piece about every 15 s of silence, so that a server can notice that its
        reader is gone; ends after ``idle_s`` of silence.
        """
        silent_since = spoke_at = time.monotonic()
        while True:
            was_over = over()  # asked first: what was written before it became true is read below
            before = offset
            for piece in self.pieces(job_id, run_id, rank, offset):
                yield piece
                offset = piece.next_offset
            now = time.monotonic()
            if offset != before:
                silent_since = spoke_at = now
            elif was_over or now - silent_since > idle_s:
                return
            elif now - spoke_at > 15.0:
                spoke_at = now
                yield LogPiece(offset, b"")
            if offset == before:
                self.wait(poll_s)

    def wait(self, limit_s: float) -> None:
        """Until any log of this process has grown, or ``limit_s`` are over."""
        with self._grown:
            self._grown.wait(limit_s)

    def drop(self, job_id: JobId) -> None:
        """Remove all logs of a job."""
        shutil.rmtree(self._folder(job_id, RunId("x"), 0).parent.parent, ignore_errors=True)

    def _folder(self, job_id: JobId, run_id: RunId, rank: int) -> Path:
        for name in (job_id, run_id):
            if not _SAFE.match(name):
                raise BadName(f"{name!r} is not an id")
        return self._root / job_id / run_id / str(int(rank))


def _segments(folder: Path) -> list[tuple[int, int, Path]]:
    """Begin, end and path of each segment, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.isdigit():
                begin = int(entry.name)
                with contextlib.suppress(OSError):
                    found.append((begin, begin + entry.stat().st_size, Path(entry.path)))
    return sorted(found)


def _end(segments: list[tuple[int, int, Path]]) -> int:
    return segments[-1][1] if segments else 0
