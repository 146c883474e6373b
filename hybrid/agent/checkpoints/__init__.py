"""Checkpoints: what a job saved, committed so that it is whole or not there at all.

Files are cut into blocks (see :func:`hybrid.agent.checkpoints.scan.block_bytes_for`), new blocks
are gathered into chunks under ``chunks/sha256/``, and a manifest under ``manifests/JOB/`` that
names them all is written last.

What counts as a consistent checkpoint: a job writes ``NAME.tmp`` and renames it, so whatever has
another name is whole. The agent commits when a run has ended, and in between when the directory
holds still: if anything in it changes while it is read, the commit starts over, and after some
tries gives up without publishing anything.
"""

from __future__ import annotations

from hybrid.agent.checkpoints.commit import CommitReport, CommitRequest
from hybrid.agent.checkpoints.errors import (
    CheckpointError,
    CheckpointMissing,
    CorruptCheckpoint,
    PartSpoilt,
    SnapshotChanged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeEntry,
)
from hybrid.agent.checkpoints.manifest import ManifestRef
from hybrid.agent.checkpoints.objects import Objects, open_objects
from hybrid.agent.checkpoints.restore import RestoreReport
from hybrid.agent.checkpoints.retention import GcReport
from hybrid.agent.checkpoints.store import CheckpointInfo, CheckpointStore

__all__ = [
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointMissing",
    "CheckpointStore",
    "CommitReport",
    "CommitRequest",
    "CorruptCheckpoint",
    "GcReport",
    "ManifestRef",
    "Objects",
    "PartSpoilt",
    "RestoreReport",
    "SnapshotChanged",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "UnsafeEntry",
    "open_objects",
]
