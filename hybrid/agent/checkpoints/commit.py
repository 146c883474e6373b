"""Commits a checkpoint: read what changed, send what is new, and name it all at last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tenacity

from hybrid.agent.checkpoints.errors import SnapshotChanged
from hybrid.agent.checkpoints.manifest import Manifest, ManifestRef
from hybrid.agent.checkpoints.objects import Objects
from hybrid.agent.checkpoints.packing import ManifestTable, Packer, known_places
from hybrid.agent.checkpoints.snapshot import Snapshot, SnapshotReader
from hybrid.agent.checkpoints.stamps import load_stamps, save_stamps
from hybrid.agent.checkpoints.upload import Uploader, persistently

_SNAPSHOT_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Whose checkpoint it is. ``step`` is the last one the job reported, None if it reports none;
    a gang of ``nodes`` machines commits once per ``rank``."""

    job_id: str
    run_id: str
    attempt: int
    step: int | None = None
    rank: int = 0
    nodes: int = 1
    gpu_model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """A committed checkpoint and what it took.

    ``published`` is False when nothing had changed since the checkpoint that ``seq`` names.
    ``sent_bytes`` leaves out what the store had already.
    """

    job_id: str
    seq: int
    rank: int
    step: int | None
    published: bool
    committed_at: float
    files: int
    size_bytes: int
    read_bytes: int
    sent_bytes: int
    chunks_sent: int
    seconds: float
    snapshots_tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """What a commit rests on: the checkpoint before (if any) and the name of the new one."""

    request: CommitRequest
    ref: ManifestRef
    base: Manifest | None
    stamps_file: Path | None
    chunk_bytes: int
    workers: int
    trusted_age_s: float
    quiet_s: float
    clock: Callable[[], float]


def commit_directory(
    objects: Objects, root: Path, plan: CommitPlan
) -> tuple[Manifest, CommitReport]:
    """Commit ``root``; the manifest that now stands and a report. Raises CheckpointError; then
    nothing was published, and what was sent is found again by the next try."""
    began_s, began_ns = time.monotonic(), time.time_ns()
    stamps = load_stamps(plan.stamps_file, plan.base.ref) if plan.base else {}
    uploader = Uploader(objects, plan.workers, plan.trusted_age_s, plan.clock)
    try:
        packer = Packer(uploader, plan.chunk_bytes, known_places(plan.base, plan.chunk_bytes))
        reader = SnapshotReader(root, packer, plan.base, stamps, plan.quiet_s)
        snapshot, tries = _held_still(reader)
        packer.seal()
        chunks_sent, sent_bytes = uploader.finish()
    finally:
        uploader.close()
    manifest = _manifest(plan, snapshot, packer)
    published = plan.base is None or not _same_content(manifest, plan.base)
    if published:
        data = manifest.encode()
        persistently(lambda: objects.put(plan.ref.key, data))
    else:
        assert plan.base is not None
        manifest = plan.base
    save_stamps(plan.stamps_file, manifest.ref, dict(snapshot.listing.files), began_ns)
    return manifest, CommitReport(
        job_id=manifest.ref.job_id,
        seq=manifest.ref.seq,
        rank=manifest.ref.rank,
        step=manifest.step,
        published=published,
        committed_at=manifest.created_at,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        read_bytes=reader.read_bytes,
        sent_bytes=sent_bytes,
        chunks_sent=chunks_sent,
        seconds=time.monotonic() - began_s,
        snapshots_tried=tries,
    )


def _held_still(reader: SnapshotReader) -> tuple[Snapshot, int]:
    """A snapshot during which nothing changed, within a few tries."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(SnapshotChanged),
        stop=tenacity.stop_after_attempt(_SNAPSHOT_TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
        reraise=True,
    )
    snapshot = retrying(reader.read)
    return snapshot, int(retrying.statistics["attempt_number"])


def _manifest(plan: CommitPlan, snapshot: Snapshot, packer: Packer) -> Manifest:
    table = ManifestTable(packer, plan.base)
    files = tuple(
        table.entry(path, stamp, snapshot.digests[path]) for path, stamp in snapshot.listing.files
    )
    return Manifest(
        ref=plan.ref,
        run_id=plan.request.run_id,
        nodes=plan.request.nodes,
        step=plan.request.step,
        gpu_model=plan.request.gpu_model,
        created_at=plan.clock(),
        chunks=table.chunks(),
        files=files,
        directories=snapshot.listing.directories,
        links=snapshot.listing.links,
    )


def _same_content(one: Manifest, other: Manifest) -> bool:
    return (
        [(f.path, f.mode, f.sha256, f.size_bytes) for f in one.files]
        == [(f.path, f.mode, f.sha256, f.size_bytes) for f in other.files]
        and one.directories == other.directories
        and one.links == other.links
    )
