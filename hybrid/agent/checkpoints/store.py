"""Checkpoints of jobs in one store: commit, find the last good one, restore, forget."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.agent.checkpoints.commit import (
    CommitPlan,
    CommitReport,
    CommitRequest,
    commit_directory,
)
from hybrid.agent.checkpoints.errors import (
    CheckpointError,
    CheckpointMissing,
    CorruptCheckpoint,
    PartSpoilt,
)
from hybrid.agent.checkpoints.manifest import (
    Manifest,
    ManifestRef,
    chunk_key,
    first_seq,
    prefix_of,
    ref_of_key,
)
from hybrid.agent.checkpoints.objects import ObjectInfo, ObjectMissing, Objects, open_objects
from hybrid.agent.checkpoints.restore import RestoreReport, restore_directory
from hybrid.agent.checkpoints.retention import DEFAULT_GRACE_S, GcReport, collect, expired
from hybrid.agent.checkpoints.upload import persistently

DEFAULT_CHUNK_BYTES = 4 << 20
DEFAULT_WORKERS = 6
#: With more chunks than this, one listing of all is cheaper than asking for each.
_LIST_FROM = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """A complete checkpoint. ``seq`` is rank 0's number; ``refs`` has every rank's part, by rank
    (their numbers may differ)."""

    job_id: str
    seq: int
    step: int | None
    nodes: int
    gpu_model: str
    created_at: float
    size_bytes: int
    refs: tuple[ManifestRef, ...]


class CheckpointStore:
    """Checkpoints under one URL. Several jobs, nodes and threads may use it at once.

    Every method raises StoreFull, StoreReadOnly or StoreUnavailable when the store does.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        workers: int = DEFAULT_WORKERS,
        gc_grace_s: float = DEFAULT_GRACE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._objects = objects
        self._chunk_bytes = chunk_bytes
        self._workers = workers
        self._gc_grace_s = gc_grace_s
        self._clock = clock
        self._last: dict[tuple[str, int], Manifest] = {}

    @classmethod
    def open(cls, url: str, options: Mapping[str, Any] | None = None) -> CheckpointStore:
        """The store at ``url``, a path or any fsspec URL; see :func:`open_objects`."""
        return cls(open_objects(url, options))

    # -- commit --------------------------------------------------------------------------------

    def commit(
        self,
        request: CommitRequest,
        directory: Path,
        stamps_file: Path | None = None,
        *,
        quiet_s: float = 0.0,
    ) -> CommitReport:
        """Commit what ``directory`` holds now.

        ``stamps_file`` (on the node, beside the directory) remembers what has been read; without
        it every file is read again. ``quiet_s`` is for a job that runs and may not keep the rule
        of renaming what is complete: nothing may have changed for so long before the reading.
        Raises SnapshotChanged when the job keeps writing, UnsafeEntry when something cannot be
        carried: then nothing was published.
        """
        refs = [ref for ref, _ in self._refs(request.job_id) if ref.rank == request.rank]
        base = self._base(request.job_id, request.rank, refs)
        own = [ref.seq for ref in refs if ref.attempt == request.attempt]
        last = self._last.get((request.job_id, request.rank))
        if last is not None and last.ref.attempt == request.attempt:
            own.append(last.ref.seq)  # a listing may come too late for it
        seq = max([first_seq(request.attempt), *own]) + 1
        ref = ManifestRef(request.job_id, seq, request.rank)
        plan = CommitPlan(
            request=request,
            ref=ref,
            base=base,
            stamps_file=stamps_file,
            chunk_bytes=self._chunk_bytes,
            workers=self._workers,
            trusted_age_s=self._gc_grace_s / 2,
            quiet_s=quiet_s,
            clock=self._clock,
        )
        with self._marked(ref):
            manifest, report = commit_directory(self._objects, directory, plan)
        self._last[request.job_id, request.rank] = manifest
        return report

    @contextlib.contextmanager
    def _marked(self, ref: ManifestRef) -> Iterator[None]:
        """Tell the collector that a commit is under way."""
        key = f"pending/{ref.key}"
        mark = json.dumps({"at": self._clock()}).encode()
        persistently(lambda: self._objects.put(key, mark))
        try:
            yield
        finally:
            # A mark that stays only delays the collector.
            with contextlib.suppress(CheckpointError):
                self._objects.delete([key])

    def _base(self, job_id: str, rank: int, refs: list[ManifestRef]) -> Manifest | None:
        """The last checkpoint whose chunks can be built upon; None starts afresh."""
        for ref in reversed(refs):
            kept = self._last.get((job_id, rank))
            if kept is not None and kept.ref == ref:
                return kept
            with contextlib.suppress(CorruptCheckpoint):
                manifest = self._load(ref)
                self._verify(manifest)
                return manifest
        return None

    # -- find ----------------------------------------------------------------------------------

    def _refs(self, job_id: str) -> list[tuple[ManifestRef, ObjectInfo]]:
        prefix = prefix_of(job_id)
        infos = persistently(lambda: self._objects.list(prefix))
        found = [(ref, info) for info in infos if (ref := ref_of_key(info.key)) is not None]
        return sorted(found, key=lambda pair: pair[0])

    def _load(self, ref: ManifestRef) -> Manifest:
        try:
            data = persistently(lambda: self._objects.get(ref.key))
        except ObjectMissing:
            raise CheckpointMissing(f"{ref.key} is missing") from None
        return Manifest.decode(ref, data)

    def _verify(self, manifest: Manifest) -> None:
        """Every chunk is there in its full size; its bytes are verified when they are read."""
        chunks = manifest.chunks
        if len(chunks) > _LIST_FROM:
            listed = persistently(lambda: self._objects.list("chunks"))
            sizes = {info.key: info.size_bytes for info in listed}
            found = [sizes.get(chunk_key(chunk.id)) for chunk in chunks]
        else:
            with ThreadPoolExecutor(self._workers, thread_name_prefix="checkpoint-verify") as pool:
                found = list(pool.map(self._size_of, [chunk.id for chunk in chunks]))
        for chunk, size in zip(chunks, found, strict=True):
            if size != chunk.size_bytes:
                key = chunk_key(chunk.id)
                what = "is missing" if size is None else f"has {size} bytes"
                raise CorruptCheckpoint(f"{manifest.ref.key}: {key} {what}")

    def _size_of(self, chunk: str) -> int | None:
        info = persistently(lambda: self._objects.info(chunk_key(chunk)))
        return None if info is None else info.size_bytes

    def _complete(self, job_id: str, nodes: int) -> Iterator[dict[int, Manifest]]:
        """The manifests, by rank, of each complete checkpoint, newest first."""
        refs = [ref for ref, _ in self._refs(job_id)][::-1]
        parts: dict[tuple[int, int], dict[int, Manifest]] = {}
        for ref in refs:
            try:
                manifest = self._load(ref)
            except CorruptCheckpoint:
                continue
            if manifest.nodes != nodes:
                continue
            if nodes == 1:
                yield {0: manifest}
            elif manifest.step is not None:
                # Newest first: of two parts with the same step the later one stays.
                parts.setdefault((ref.attempt, manifest.step), {}).setdefault(ref.rank, manifest)
        for _, ranks in sorted(parts.items(), key=lambda item: item[0], reverse=True):
            if sorted(ranks) == [*range(nodes)]:
                yield ranks

    def checkpoints(self, job_id: str, nodes: int = 1) -> tuple[CheckpointInfo, ...]:
        """The job's complete checkpoints, oldest first; corrupt manifests are left out.

        A gang's checkpoint is complete when every rank has committed the same step in the same
        attempt; parts without a step are never taken for one.
        """
        return tuple(_info(ranks) for ranks in self._complete(job_id, nodes))[::-1]

    def latest(self, job_id: str, nodes: int = 1) -> CheckpointInfo | None:
        """The last complete checkpoint whose chunks are all there; None when there is none."""
        for ranks in self._complete(job_id, nodes):
            with contextlib.suppress(CorruptCheckpoint):
                for manifest in ranks.values():
                    self._verify(manifest)
                return _info(ranks)
        return None

    # -- restore -------------------------------------------------------------------------------

    def restore(
        self,
        job_id: str,
        target: Path,
        *,
        seq: int | None = None,
        rank: int = 0,
        nodes: int = 1,
        stamps_file: Path | None = None,
    ) -> RestoreReport | None:
        """Bring back checkpoint ``seq``, or the last one that proves good; None if there is none.

        Every block is verified; a checkpoint that fails is passed over for the one before it, or
        raises CorruptCheckpoint when ``seq`` asked for it (CheckpointMissing when it cannot be
        seen). ``target`` is replaced as a whole.

        All ranks of a gang come to the same checkpoint: one of which any rank's part is not whole
        is passed over by all, and one that proves bad only when it is read raises PartSpoilt.
        """
        for ranks in self._candidates(job_id, nodes, seq):
            try:
                if nodes > 1:
                    for manifest in ranks.values():
                        self._verify(manifest)
                report = self._restore_part(ranks[rank], target, stamps_file)
            except PartSpoilt:
                raise
            except CorruptCheckpoint:
                if seq is not None:
                    raise
                continue
            self._last[job_id, rank] = ranks[rank]
            return report
        if seq is not None:
            raise CheckpointMissing(f"job {job_id} has no complete checkpoint {seq}")
        return None

    def _candidates(
        self, job_id: str, nodes: int, seq: int | None
    ) -> Iterator[dict[int, Manifest]]:
        """The checkpoint asked for, or all, newest first."""
        if seq is not None and nodes == 1:
            # by its name: a listing may come too late for it
            manifest = self._load(ManifestRef(job_id, seq, 0))
            if manifest.nodes == 1:
                yield {0: manifest}
            return
        for ranks in self._complete(job_id, nodes):
            if seq is None or ranks[0].ref.seq == seq:
                yield ranks

    def _restore_part(
        self, manifest: Manifest, target: Path, stamps_file: Path | None
    ) -> RestoreReport:
        try:
            return restore_directory(
                self._objects, manifest, target, workers=self._workers, stamps_file=stamps_file
            )
        except CorruptCheckpoint as error:
            if manifest.nodes > 1:
                raise PartSpoilt(str(error)) from error
            raise

    def withdraw(self, job_id: str, *, step: int, rank: int, nodes: int) -> None:
        """Remove a rank's part of a gang's checkpoint, so that no rank takes it for whole."""
        for ranks in self._complete(job_id, nodes):
            if ranks[0].step == step:
                self._objects.delete([ranks[rank].ref.key])
                self._last.pop((job_id, rank), None)
                return

    # -- forget --------------------------------------------------------------------------------

    def expire(
        self, job_id: str, *, keep_last: int, max_age_s: float | None = None, nodes: int = 1
    ) -> tuple[ManifestRef, ...]:
        """Remove old manifests of a job; their chunks go with the next :meth:`gc`.

        The last complete checkpoint always stays, and so do the parts of a newer one that some
        rank of a gang has yet to complete.
        """
        written_at = {ref: info.modified_at for ref, info in self._refs(job_id)}
        if nodes > 1:
            complete = self.checkpoints(job_id, nodes)
            newest = complete[-keep_last:]
            if max_age_s is not None:
                young = [c for c in newest if self._clock() - c.created_at <= max_age_s]
                newest = tuple(young) or newest[-1:]
            oldest = {ref.rank: ref.seq for info in newest[:1] for ref in info.refs}
            held = {ref for info in newest for ref in info.refs}
            gone = tuple(
                ref
                for ref in sorted(written_at)
                if ref not in held and ref.seq < oldest.get(ref.rank, 0)
            )
        else:
            gone = expired(
                [*written_at.items()], keep_last=keep_last, max_age_s=max_age_s, now=self._clock()
            )
        self._objects.delete([ref.key for ref in gone])
        return gone

    def job_ids(self) -> tuple[str, ...]:
        """Every job that has a checkpoint here, whole or not."""
        infos = persistently(lambda: self._objects.list("manifests"))
        refs = (ref_of_key(info.key) for info in infos)
        return tuple(sorted({ref.job_id for ref in refs if ref is not None}))

    def forget(self, job_id: str) -> int:
        """Remove every checkpoint of a job that needs none any more; how many there were."""
        refs = [ref for ref, _ in self._refs(job_id)]
        self._objects.delete([ref.key for ref in refs])
        self._last = {key: last for key, last in self._last.items() if key[0] != job_id}
        return len(refs)

    def gc(self) -> GcReport:
        """Remove chunks that no manifest names, but none younger than the grace."""
        return collect(
            self._objects, grace_s=self._gc_grace_s, now=self._clock(), workers=self._workers
        )


def _info(ranks: dict[int, Manifest]) -> CheckpointInfo:
    first = ranks[0]
    return CheckpointInfo(
        job_id=first.ref.job_id,
        seq=first.ref.seq,
        step=first.step,
        nodes=first.nodes,
        gpu_model=first.gpu_model,
        created_at=max(manifest.created_at for manifest in ranks.values()),
        size_bytes=sum(manifest.size_bytes for manifest in ranks.values()),
        refs=tuple(ranks[rank].ref for rank in sorted(ranks)),
    )
