"""What a checkpoint consists of. The manifest is written last: without it nothing exists."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hybrid.agent.checkpoints.errors import CorruptCheckpoint

FORMAT = 1
DIGEST_HEX = 64
_SEQ_OF_AN_ATTEMPT = 100_000
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_MANIFEST_KEY = re.compile(r"manifests/([^/]+)/(\d{10})-(\d{4})\.json\Z")


@dataclass(frozen=True, slots=True, order=True)
class ManifestRef:
    """A manifest by name. Later ones sort last: ``seq`` grows within and across attempts."""

    job_id: str
    seq: int
    rank: int = 0

    @property
    def key(self) -> str:
        """Its key in the store."""
        return f"{prefix_of(self.job_id)}/{self.seq:010d}-{self.rank:04d}.json"

    @property
    def attempt(self) -> int:
        """The attempt that wrote it."""
        return self.seq // _SEQ_OF_AN_ATTEMPT


def prefix_of(job_id: str) -> str:
    """Where a job's manifests are; raises ValueError for what is no identifier."""
    if not _IDENTIFIER.match(job_id):
        raise ValueError(f"{job_id!r} is not a job's id")
    return f"manifests/{job_id}"


def ref_of_key(key: str) -> ManifestRef | None:
    """The manifest that a key names; None for any other object."""
    match = _MANIFEST_KEY.match(key)
    return None if match is None else ManifestRef(match[1], int(match[2]), int(match[3]))


def first_seq(attempt: int) -> int:
    """The number before the first checkpoint of an attempt.

    Numbers of a later attempt are all larger, and no two attempts share one: what a node that was
    thought dead still writes can neither replace nor outrank the checkpoints of its successor.
    """
    return attempt * _SEQ_OF_AN_ATTEMPT


def chunk_key(chunk: str) -> str:
    """Where a chunk is kept, by its content."""
    return f"chunks/sha256/{chunk[:2]}/{chunk}"


def digest_of_digests(digests: list[bytes]) -> str:
    """One SHA-256 over the digests of blocks in order: names content as surely as a SHA-256 over
    the bytes, without reading them a second time."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


@dataclass(frozen=True, slots=True)
class Extent:
    """``blocks`` consecutive blocks of a file that lie one after the other in a chunk."""

    chunk: int
    offset: int
    blocks: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file: its blocks of ``block_bytes`` (the last may be shorter) by SHA-256, in order, and
    where they lie. ``sha256`` is the digest of their digests."""

    path: str
    mode: int
    mtime_ns: int
    size_bytes: int
    sha256: str
    block_bytes: int
    digests: tuple[bytes, ...]
    extents: tuple[Extent, ...]

    def block_sizes(self) -> Iterator[int]:
        """The length of each block."""
        left = self.size_bytes
        while left > 0:
            yield min(left, self.block_bytes)
            left -= self.block_bytes

    def to_record(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "path": self.path,
            "mode": self.mode,
            "mtime_ns": self.mtime_ns,
            "size": self.size_bytes,
            "sha256": self.sha256,
            "block": self.block_bytes,
            "blocks": b"".join(self.digests).hex(),
            "extents": [[e.chunk, e.offset, e.blocks] for e in self.extents],
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FileEntry:
        """Read back; raises KeyError, TypeError or ValueError."""
        digests = bytes.fromhex(record["blocks"])
        entry = cls(
            path=str(record["path"]),
            mode=int(record["mode"]),
            mtime_ns=int(record["mtime_ns"]),
            size_bytes=int(record["size"]),
            sha256=str(record["sha256"]),
            block_bytes=int(record["block"]),
            digests=tuple(digests[i : i + 32] for i in range(0, len(digests), 32)),
            extents=tuple(Extent(*map(int, extent)) for extent in record["extents"]),
        )
        count = -(-entry.size_bytes // entry.block_bytes)
        if not len(entry.digests) == count == sum(extent.blocks for extent in entry.extents):
            raise ValueError(f"{entry.path}: its blocks do not make up its size")
        return entry


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk by content, and its size."""

    id: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One rank's part of a checkpoint. ``step`` is None when the job does not report any."""

    ref: ManifestRef
    run_id: str
    nodes: int
    step: int | None
    gpu_model: str
    created_at: float
    chunks: tuple[ChunkEntry, ...]
    files: tuple[FileEntry, ...]
    directories: tuple[tuple[str, int], ...]
    links: tuple[tuple[str, str], ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        """The stored form: JSON with its own SHA-256."""
        body = {
            "format": FORMAT,
            "job_id": self.ref.job_id,
            "seq": self.ref.seq,
            "rank": self.ref.rank,
            "run_id": self.run_id,
            "nodes": self.nodes,
            "step": self.step,
            "gpu_model": self.gpu_model,
            "created_at": self.created_at,
            "size": self.size_bytes,
            "chunks": [[chunk.id, chunk.size_bytes] for chunk in self.chunks],
            "files": [file.to_record() for file in self.files],
            "directories": [list(directory) for directory in self.directories],
            "links": [list(link) for link in self.links],
        }
        text = _canonical(body)
        checksum = hashlib.sha256(text).hexdigest()
        return b'{"manifest":' + text + b',"sha256":"' + checksum.encode() + b'"}\n'

    @classmethod
    def decode(cls, ref: ManifestRef, data: bytes) -> Manifest:
        """Read back and check; raises CorruptCheckpoint."""
        try:
            outer = json.loads(data)
            body = outer["manifest"]
            _refuse_altered(body, str(outer["sha256"]), ref)
            return cls(
                ref=ref,
                run_id=str(body["run_id"]),
                nodes=int(body["nodes"]),
                step=None if body["step"] is None else int(body["step"]),
                gpu_model=str(body["gpu_model"]),
                created_at=float(body["created_at"]),
                chunks=tuple(ChunkEntry(str(i), int(size)) for i, size in body["chunks"]),
                files=tuple(FileEntry.from_record(file) for file in body["files"]),
                directories=tuple((str(path), int(mode)) for path, mode in body["directories"]),
                links=tuple((str(path), str(target)) for path, target in body["links"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptCheckpoint(f"{ref.key}: {error}") from error


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _refuse_altered(body: dict[str, Any], checksum: str, ref: ManifestRef) -> None:
    if hashlib.sha256(_canonical(body)).hexdigest() != checksum:
        raise ValueError("its checksum does not match")
    if body["format"] != FORMAT:
        raise ValueError(f"its format {body['format']} is not known here")
    if (body["job_id"], body["seq"], body["rank"]) != (ref.job_id, ref.seq, ref.rank):
        raise ValueError("it belongs elsewhere")
