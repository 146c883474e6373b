"""Folders that travel: a job's work folder out, its outputs back, as one content-addressed file."""

from __future__ import annotations

from hybrid.agent.archive.entries import DEFAULT_LIMIT_BYTES, Entry, Limits
from hybrid.agent.archive.errors import (
    ArchiveError,
    ArchiveTooLarge,
    BrokenArchive,
    UnsafeArchiveEntry,
)
from hybrid.agent.archive.pack import PackReport, list_folder, pack_folder, pack_paths
from hybrid.agent.archive.unpack import UnpackReport, file_digest, unpack

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "ArchiveError",
    "ArchiveTooLarge",
    "BrokenArchive",
    "Entry",
    "Limits",
    "PackReport",
    "UnpackReport",
    "UnsafeArchiveEntry",
    "file_digest",
    "list_folder",
    "pack_folder",
    "pack_paths",
    "unpack",
]
