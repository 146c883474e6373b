"""What is kept: the last few checkpoints of every job, and the chunks they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hybrid.agent.checkpoints.errors import CorruptCheckpoint
from hybrid.agent.checkpoints.manifest import Manifest, ManifestRef, ref_of_key
from hybrid.agent.checkpoints.objects import ObjectMissing, Objects
from hybrid.agent.checkpoints.upload import persistently

DEFAULT_GRACE_S = 3600.0
#: The mark of a commit that never came to its end protects nothing after this time.
ABANDONED_AFTER_S = 24 * 3600.0

_CHUNK_KEY = re.compile(r"chunks/sha256/[0-9a-f]{2}/([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a collection found and removed. ``unreadable`` manifests keep every chunk alive."""

    manifests: int
    chunks_kept: int
    chunks_removed: int
    bytes_removed: int
    unreadable: tuple[str, ...]


def expired(
    refs: Sequence[tuple[ManifestRef, float | None]],
    *,
    keep_last: int,
    max_age_s: float | None,
    now: float,
) -> tuple[ManifestRef, ...]:
    """Which of a job's manifests (with their times) may go: beyond the last ``keep_last`` numbers,
    or older than ``max_age_s``; never the last one of any rank. Pure."""
    if keep_last < 1:
        raise ValueError(f"keep_last: {keep_last} would keep nothing")
    gone = []
    for rank in sorted({ref.rank for ref, _ in refs}):
        newest_first = sorted(
            ((ref, at) for ref, at in refs if ref.rank == rank), key=lambda pair: pair[0].seq
        )[::-1]
        for place, (ref, at) in enumerate(newest_first):
            too_old = max_age_s is not None and at is not None and now - at > max_age_s
            if place and (place >= keep_last or too_old):
                gone.append(ref)
    return tuple(sorted(gone))


def collect(objects: Objects, *, grace_s: float, now: float, workers: int) -> GcReport:
    """Remove chunks that no manifest names and that are older than the grace.

    Safe beside running commits: a commit leaves a mark before it looks at or sends any chunk, and
    nothing younger than the oldest mark (less the grace) is touched. The order of the three
    listings matters: marks, then chunks, then manifests, so that a commit that finishes meanwhile
    is seen by its manifest if not by its mark. Chunks whose age the store does not tell stay.
    """
    horizon = now - grace_s
    for mark in objects.list("pending"):
        began_at = mark.modified_at
        if began_at is None:
            horizon = float("-inf")
        elif now - began_at > ABANDONED_AFTER_S:
            objects.delete([mark.key])
        else:
            horizon = min(horizon, began_at - grace_s)
    chunks = [
        (match[1], info)
        for info in objects.list("chunks")
        if (match := _CHUNK_KEY.match(info.key)) is not None
    ]
    live, manifests, unreadable = _named_chunks(objects, workers)
    doomed = []
    if not unreadable:
        doomed = [
            info
            for chunk, info in chunks
            if chunk not in live and info.modified_at is not None and info.modified_at < horizon
        ]
        objects.delete([info.key for info in doomed])
    return GcReport(
        manifests=manifests,
        chunks_kept=len(chunks) - len(doomed),
        chunks_removed=len(doomed),
        bytes_removed=sum(info.size_bytes for info in doomed),
        unreadable=unreadable,
    )


def _named_chunks(objects: Objects, workers: int) -> tuple[set[str], int, tuple[str, ...]]:
    refs = [ref for info in objects.list("manifests") if (ref := ref_of_key(info.key)) is not None]

    def chunks_of(ref: ManifestRef) -> set[str] | None:
        try:
            data = persistently(lambda: objects.get(ref.key))
            return {chunk.id for chunk in Manifest.decode(ref, data).chunks}
        except ObjectMissing:
            return set()  # expired meanwhile
        except CorruptCheckpoint:
            return None

    live: set[str] = set()
    unreadable = []
    with ThreadPoolExecutor(workers, thread_name_prefix="checkpoint-gc") as pool:
        for ref, named in zip(refs, pool.map(chunks_of, refs), strict=True):
            if named is None:
                unreadable.append(ref.key)
            else:
                live |= named
    return live, len(refs), tuple(unreadable)
