"""Remembers which local file is which entry of which manifest, so that it is not read again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from hybrid.agent.checkpoints.manifest import ManifestRef
from hybrid.agent.checkpoints.scan import FileStamp

#: A file this young may change again without its time moving on: clocks of file systems tick.
RACY_NS = 2_000_000_000


def save_stamps(
    path: Path | None, ref: ManifestRef, stamps: Mapping[str, FileStamp], before_ns: int
) -> None:
    """Keep the stamps of files that were last written well before ``before_ns``.

    Losing this file costs reading, nothing else; so it is written without a sync.
    """
    if path is None:
        return
    record = {
        "manifest": ref.key,
        "files": {
            name: [stamp.size_bytes, stamp.mtime_ns, stamp.inode]
            for name, stamp in stamps.items()
            if stamp.mtime_ns < before_ns - RACY_NS
        },
    }
    temporary = path.with_name(f".{path.name}.part")
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(record), encoding="ascii")
        temporary.replace(path)


def load_stamps(path: Path | None, ref: ManifestRef) -> dict[str, tuple[int, int, int]]:
    """Size, modification time and inode by path, as they were for the manifest ``ref``; empty for
    another manifest or an unreadable file."""
    if path is None:
        return {}
    try:
        record = json.loads(path.read_bytes())
        if record["manifest"] != ref.key:
            return {}
        return {str(n): (int(s), int(m), int(i)) for n, (s, m, i) in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
