"""Brings a checkpoint back: every block is verified before anything appears under its name."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hybrid.agent.checkpoints.errors import CorruptCheckpoint
from hybrid.agent.checkpoints.manifest import ChunkEntry, Manifest, chunk_key
from hybrid.agent.checkpoints.objects import ObjectMissing, Objects
from hybrid.agent.checkpoints.packing import blocks_of
from hybrid.agent.checkpoints.scan import scan, stays_inside
from hybrid.agent.checkpoints.stamps import save_stamps
from hybrid.agent.checkpoints.upload import persistently

#: A chunk is read whole when at least this part of it is needed.
_WHOLE_FROM = 0.5
_JOIN_GAP_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A restored checkpoint and what it took."""

    job_id: str
    seq: int
    rank: int
    step: int | None
    gpu_model: str
    files: int
    size_bytes: int
    fetched_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Block:
    file: int
    file_offset: int
    chunk_offset: int
    size_bytes: int
    digest: bytes


def restore_directory(
    objects: Objects,
    manifest: Manifest,
    target: Path,
    *,
    workers: int,
    stamps_file: Path | None = None,
) -> RestoreReport:
    """Make ``target`` what the checkpoint holds; what was there before is replaced, in one step.

    Raises CorruptCheckpoint, or an error of the store; ``target`` is then as it was.
    """
    began_s = time.monotonic()
    _refuse_bad_paths(manifest)
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.restore-", dir=target.parent))
    try:
        _lay_out(manifest, building)
        fetched_bytes = _fill(objects, manifest, building, workers)
        _finish(manifest, building)
        before_ns = time.time_ns()
        stamps = dict(scan(building).files)
        _replace(target, building)
        save_stamps(stamps_file, manifest.ref, stamps, before_ns)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return RestoreReport(
        job_id=manifest.ref.job_id,
        seq=manifest.ref.seq,
        rank=manifest.ref.rank,
        step=manifest.step,
        gpu_model=manifest.gpu_model,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        fetched_bytes=fetched_bytes,
        seconds=time.monotonic() - began_s,
    )


def _refuse_bad_paths(manifest: Manifest) -> None:
    """Whoever can write to the store must not be able to write elsewhere on the node."""
    links = {path for path, _ in manifest.links}
    names = [file.path for file in manifest.files] + [path for path, _ in manifest.directories]
    for path in [*names, *links]:
        parts = path.split("/")
        if not path or path.startswith("/") or {"", ".", ".."} & set(parts) or "\0" in path:
            raise CorruptCheckpoint(f"{manifest.ref.key}: {path!r} is not a path inside")
        above = posixpath.dirname(path)
        while above:
            if above in links:
                raise CorruptCheckpoint(f"{manifest.ref.key}: {path!r} lies behind a link")
            above = posixpath.dirname(above)
    for path, to in manifest.links:
        if not stays_inside(path, to):
            raise CorruptCheckpoint(f"{manifest.ref.key}: {path!r} links outside")


def _lay_out(manifest: Manifest, building: Path) -> None:
    for name, _ in manifest.directories:
        (building / name).mkdir(parents=True, exist_ok=True)
    for file in manifest.files:
        path = building / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, file.size_bytes)
        finally:
            os.close(fd)


def _fill(objects: Objects, manifest: Manifest, building: Path, workers: int) -> int:
    needed: list[list[_Block]] = [[] for _ in manifest.chunks]
    for number, file in enumerate(manifest.files):
        offset = 0
        for digest, size, chunk, chunk_offset in blocks_of(file):
            if chunk >= len(needed) or chunk_offset + size > manifest.chunks[chunk].size_bytes:
                raise CorruptCheckpoint(f"{manifest.ref.key}: {file.path} lies outside its chunks")
            needed[chunk].append(_Block(number, offset, chunk_offset, size, digest))
            offset += size
    paths = [building / file.path for file in manifest.files]
    with ThreadPoolExecutor(workers, thread_name_prefix="checkpoint-restore") as pool:
        futures = [
            pool.submit(_fill_from, objects, chunk, blocks, paths)
            for chunk, blocks in zip(manifest.chunks, needed, strict=True)
            if blocks
        ]
        try:
            return sum(future.result() for future in futures)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fill_from(objects: Objects, chunk: ChunkEntry, blocks: list[_Block], paths: list[Path]) -> int:
    """Fetch what is needed of one chunk, verify it, and write it where it belongs."""
    blocks.sort(key=lambda block: (block.chunk_offset, block.file, block.file_offset))
    fetched = 0
    fd, open_file = -1, -1
    try:
        for start, end, members in _ranges(chunk, blocks):
            data = memoryview(_fetch(objects, chunk, start, end))
            fetched += len(data)
            for block in members:
                piece = data[block.chunk_offset - start :][: block.size_bytes]
                if hashlib.sha256(piece).digest() != block.digest:
                    raise CorruptCheckpoint(f"{chunk_key(chunk.id)}: a block is not what it was")
                if block.file != open_file:
                    if fd >= 0:
                        os.close(fd)
                    fd, open_file = os.open(paths[block.file], os.O_WRONLY), block.file
                os.pwrite(fd, piece, block.file_offset)
    finally:
        if fd >= 0:
            os.close(fd)
    return fetched


def _ranges(chunk: ChunkEntry, blocks: list[_Block]) -> Iterator[tuple[int, int, list[_Block]]]:
    """The reads that cover all blocks: the whole chunk, or ranges joined over small gaps."""
    if sum(block.size_bytes for block in blocks) >= _WHOLE_FROM * chunk.size_bytes:
        yield 0, chunk.size_bytes, blocks
        return
    start, end, members = -1, -1, list[_Block]()
    for block in blocks:
        if members and block.chunk_offset > end + _JOIN_GAP_BYTES:
            yield start, end, members
            members = []
        if not members:
            start, end = block.chunk_offset, 0
        end = max(end, block.chunk_offset + block.size_bytes)
        members.append(block)
    yield start, end, members


def _fetch(objects: Objects, chunk: ChunkEntry, start: int, end: int) -> bytes:
    key = chunk_key(chunk.id)
    whole = (start, end) == (0, chunk.size_bytes)
    try:
        data = persistently(lambda: objects.get(key) if whole else objects.get(key, start, end))
    except ObjectMissing:
        raise CorruptCheckpoint(f"{key} is missing") from None
    if len(data) != end - start:
        raise CorruptCheckpoint(f"{key}: {len(data)} bytes instead of {end - start}")
    return data


def _finish(manifest: Manifest, building: Path) -> None:
    for name, to in manifest.links:
        (building / name).parent.mkdir(parents=True, exist_ok=True)
        (building / name).symlink_to(to)
    for file in manifest.files:
        path = building / file.path
        path.chmod(file.mode & 0o777)
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
    for name, mode in reversed(manifest.directories):
        (building / name).chmod(mode & 0o777 | 0o700)


def _replace(target: Path, building: Path) -> None:
    """Put the new directory where the old one is. After a crash in between there is none, and the
    restore is done again before anything starts."""
    building.chmod(0o755)
    if not target.exists():
        building.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
    target.rename(old)
    building.rename(target)
    shutil.rmtree(old, ignore_errors=True)
