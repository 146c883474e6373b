"""Reads a directory that must hold still while it is read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hybrid.agent.checkpoints.errors import SnapshotChanged
from hybrid.agent.checkpoints.manifest import Manifest
from hybrid.agent.checkpoints.packing import Packer
from hybrid.agent.checkpoints.scan import (
    FileStamp,
    Listing,
    ReadBlock,
    block_bytes_for,
    read_blocks,
    scan,
)

_READ_BYTES = 4 << 20
_READERS = 2
_READ_AHEAD = 4
_TICK_NS = 20_000_000

Blocks = list[ReadBlock]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A directory that held still: its listing, and the blocks of each file by SHA-256."""

    listing: Listing
    digests: dict[str, tuple[bytes, ...]]


class SnapshotReader:
    """Reads a directory into a packer, leaving out what the base checkpoint tells already.

    ``stamps`` says which local files were the base's files: they are not opened at all.
    """

    def __init__(
        self,
        root: Path,
        packer: Packer,
        base: Manifest | None,
        stamps: dict[str, tuple[int, int, int]],
        quiet_s: float = 0.0,
    ) -> None:
        self._root = root
        self._packer = packer
        self._base = {file.path: file for file in base.files} if base else {}
        self._stamps = stamps
        self._quiet_ns = max(_TICK_NS, int(quiet_s * 1e9))
        self._read: dict[tuple[str, FileStamp], tuple[bytes, ...]] = {}
        self.read_bytes = 0

    def read(self) -> Snapshot:
        """One try; raises SnapshotChanged. A later try does not read again what stayed."""
        listing = self._settled()
        digests: dict[str, list[bytes]] = {}
        with ThreadPoolExecutor(_READERS, thread_name_prefix="checkpoint-read") as pool:
            try:
                for path, blocks in self._ahead(pool, listing, digests):
                    for block in blocks:
                        self.read_bytes += block.size_bytes
                        if block.data is not None:
                            self._packer.add(block.digest, block.data)
                        digests[path].append(block.digest)
            finally:
                pool.shutdown(cancel_futures=True)
                self._keep(listing, digests)
        found = {path: tuple(parts) for path, parts in digests.items()}
        again = scan(self._root)
        if again != listing:
            raise SnapshotChanged(_first_difference(listing, again))
        return Snapshot(listing, found)

    def _settled(self) -> Listing:
        """A listing in which every later change will show, of a directory that has been quiet.

        File systems stamp times in ticks: a second change within one tick leaves the stamps as
        they are, so nothing younger than a tick is read.
        """
        listing = scan(self._root)
        now_ns = time.time_ns()
        newest_ns = max((stamp.ctime_ns for _, stamp in listing.files), default=0)
        # A stamp from the future is another machine's clock: nothing can be read from it.
        if not now_ns - self._quiet_ns < newest_ns <= now_ns:
            return listing
        time.sleep((newest_ns + self._quiet_ns - now_ns) / 1e9)
        again = scan(self._root)
        if again != listing:
            raise SnapshotChanged(_first_difference(listing, again))
        return again

    def _keep(self, listing: Listing, digests: dict[str, list[bytes]]) -> None:
        """Remember the files that have been read to their end, for the next try."""
        for path, stamp in listing.files:
            parts = digests.get(path, [])
            if len(parts) * block_bytes_for(stamp.size_bytes) >= stamp.size_bytes:
                self._read[path, stamp] = tuple(parts)

    def _ahead(
        self, pool: ThreadPoolExecutor, listing: Listing, digests: dict[str, list[bytes]]
    ) -> Iterator[tuple[str, Blocks]]:
        """Blocks in the order of the listing, while the next ones are being read and hashed."""
        waiting: deque[tuple[str, Future[Blocks]]] = deque()
        for path, stamp in listing.files:
            known = self._known(path, stamp)
            digests[path] = list(known or ())
            if known is not None:
                continue
            block_bytes = block_bytes_for(stamp.size_bytes)
            blocks = -(-stamp.size_bytes // block_bytes)
            step = max(1, _READ_BYTES // block_bytes)
            for start in range(0, blocks, step):
                part = range(start, min(start + step, blocks))
                reading = pool.submit(
                    read_blocks, self._root, path, stamp, block_bytes, part, self._packer.has
                )
                waiting.append((path, reading))
                if len(waiting) > _READ_AHEAD:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
        for ready, future in waiting:
            yield ready, future.result()

    def _known(self, path: str, stamp: FileStamp) -> tuple[bytes, ...] | None:
        """The file's blocks, if they are known and need no sending."""
        earlier = self._read.get((path, stamp))
        if earlier is None:
            base = self._base.get(path)
            if base is None or base.size_bytes != stamp.size_bytes:
                return None
            if self._stamps.get(path) != (stamp.size_bytes, stamp.mtime_ns, stamp.inode):
                return None
            earlier = base.digests
        return earlier if all(map(self._packer.has, earlier)) else None


def _first_difference(before: Listing, after: Listing) -> str:
    changed: set[str] = {path for path, _ in set(before.files) ^ set(after.files)}
    changed |= {path for path, _ in set(before.directories) ^ set(after.directories)}
    changed |= {path for path, _ in set(before.links) ^ set(after.links)}
    return min(changed)
