"""Reads the progress file, which the job writes and nobody can trust."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TypeGuard

from hybrid.domain.job import Progress

_MAX_BYTES = 4096
_MAX_STEP = 1 << 53
_MAX_AT = 1e11
"""Seconds since the epoch, as in all messages to the server: more are milliseconds, or nonsense."""


def read_progress(path: Path) -> Progress | None:
    """What the job last said of itself; None for nothing, garbage, or something that is no file.

    Reads at most 4 KiB and never blocks, whatever the job put there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, _MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) > _MAX_BYTES:
        return None
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return _progress_of(record)


def _progress_of(record: object) -> Progress | None:
    if not isinstance(record, dict):
        return None
    step, total, at = record.get("step"), record.get("total", 0), record.get("at")
    if not (_is_count(step) and _is_count(total) and isinstance(at, int | float)):
        return None
    if isinstance(at, bool) or not 0 <= at <= _MAX_AT:  # false for what is not a number as well
        return None
    return Progress(step=step, total=total, at=float(at))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_STEP
