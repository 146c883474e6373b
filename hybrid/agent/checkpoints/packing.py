"""Gathers small blocks into large chunks, and knows which of them the store has already."""

from __future__ import annotations

from hybrid.agent.checkpoints.manifest import (
    ChunkEntry,
    Extent,
    FileEntry,
    Manifest,
    digest_of_digests,
)
from hybrid.agent.checkpoints.scan import FileStamp, block_bytes_for
from hybrid.agent.checkpoints.upload import Uploader

Place = tuple[str, int]
"""A chunk's id, and an offset in it."""

#: A chunk of which a checkpoint uses less than this part is not built upon: its blocks are sent
#: again, so that what is kept stays within a small multiple of what is used.
_WORTH_KEEPING = 0.25
#: With more small chunks than this, they are merged by sending their blocks again.
_SMALL_CHUNKS = 16


def known_places(base: Manifest | None, chunk_bytes: int) -> dict[bytes, Place]:
    """Where the blocks of the checkpoint before lie; chunks better rewritten are left out."""
    if base is None:
        return {}
    used = [0] * len(base.chunks)
    places: dict[bytes, Place] = {}
    for file in base.files:
        for digest, size, chunk, offset in blocks_of(file):
            used[chunk] += size
            places[digest] = (base.chunks[chunk].id, offset)
    small = {c.id for c in base.chunks if c.size_bytes < chunk_bytes // 4}
    dropped = small if len(small) > _SMALL_CHUNKS else set()
    dropped |= {
        chunk.id
        for chunk, count in zip(base.chunks, used, strict=True)
        if count < _WORTH_KEEPING * chunk.size_bytes
    }
    return {digest: place for digest, place in places.items() if place[0] not in dropped}


def blocks_of(file: FileEntry) -> list[tuple[bytes, int, int, int]]:
    """Digest, length, chunk index and offset in the chunk of each block, in file order."""
    sizes = list(file.block_sizes())
    found: list[tuple[bytes, int, int, int]] = []
    for extent in file.extents:
        offset = extent.offset
        for _ in range(extent.blocks):
            index = len(found)
            found.append((file.digests[index], sizes[index], extent.chunk, offset))
            offset += sizes[index]
    return found


class Packer:
    """Gathers new blocks into chunks of about ``chunk_bytes`` and knows where every block lies.

    Blocks are small, so that little is sent again when little changes; chunks are large, so that
    thousands of small files do not cost a request each.
    """

    def __init__(self, uploader: Uploader, chunk_bytes: int, known: dict[bytes, Place]) -> None:
        self._uploader = uploader
        self._chunk_bytes = chunk_bytes
        self._known = known
        self._open: list[tuple[bytes, bytes]] = []
        self._open_digests: set[bytes] = set()
        self._open_bytes = 0
        self.sizes: dict[str, int] = {}

    def has(self, digest: bytes) -> bool:
        """Whether the block needs no sending. For any thread: what is known stays known."""
        return digest in self._known or digest in self._open_digests

    def add(self, digest: bytes, block: bytes) -> None:
        """Take a block unless it is there already."""
        if self.has(digest):
            return
        self._open.append((digest, block))
        self._open_digests.add(digest)
        self._open_bytes += len(block)
        if self._open_bytes >= self._chunk_bytes:
            self.seal()

    def seal(self) -> None:
        """Send the chunk that is being filled, if any."""
        if not self._open:
            return
        chunk = digest_of_digests([digest for digest, _ in self._open])
        offset = 0
        for digest, block in self._open:
            self._known[digest] = (chunk, offset)
            offset += len(block)
        self.sizes[chunk] = offset
        self._uploader.put(chunk, b"".join(block for _, block in self._open))
        self._open, self._open_bytes = [], 0
        self._open_digests.clear()

    def place(self, digest: bytes) -> Place:
        """Where a block lies; only after the last :meth:`seal`."""
        return self._known[digest]


class ManifestTable:
    """Numbers the chunks a manifest uses, and lays out files over them."""

    def __init__(self, packer: Packer, base: Manifest | None) -> None:
        self._packer = packer
        self._sizes = {chunk.id: chunk.size_bytes for chunk in base.chunks} if base else {}
        self._index: dict[str, int] = {}

    def chunks(self) -> tuple[ChunkEntry, ...]:
        """The chunks used so far, in order of number."""
        sizes = {**self._sizes, **self._packer.sizes}
        return tuple(ChunkEntry(chunk, sizes[chunk]) for chunk in self._index)

    def entry(self, path: str, stamp: FileStamp, digests: tuple[bytes, ...]) -> FileEntry:
        """A file's line in the manifest."""
        block_bytes = block_bytes_for(stamp.size_bytes)
        return FileEntry(
            path=path,
            mode=stamp.mode,
            mtime_ns=stamp.mtime_ns,
            size_bytes=stamp.size_bytes,
            sha256=digest_of_digests(list(digests)),
            block_bytes=block_bytes,
            digests=digests,
            extents=self._extents(digests, block_bytes),
        )

    def _extents(self, digests: tuple[bytes, ...], block_bytes: int) -> tuple[Extent, ...]:
        # Only the last block of a file is shorter, so the next one of a run is a block further.
        runs: list[list[int]] = []
        for digest in digests:
            chunk, offset = self._packer.place(digest)
            number = self._index.setdefault(chunk, len(self._index))
            if runs and runs[-1][0] == number and runs[-1][1] + runs[-1][2] * block_bytes == offset:
                runs[-1][2] += 1
            else:
                runs.append([number, offset, 1])
        return tuple(Extent(*run) for run in runs)
