"""One rank's checkpoints: which step they hold, where they go, and back."""

from __future__ import annotations

import os
from pathlib import Path

from hybrid.agent.checkpoints import CheckpointStore, CommitRequest, CorruptCheckpoint
from hybrid.agent.protocol import Resume, RunDocument, WireCheckpoint

STEP_FILE = "STEP"
"""A job may write the step that its checkpoint holds into a file of this name beside it. Without
it, the step is the last one that was reported before the checkpoint was written, which is exact
enough for one machine; the ranks of a gang need the file to agree on a step."""

_STEP_FILE_BYTES = 32


class Saver:
    """Commits and restores for one order. Methods raise CheckpointError."""

    def __init__(self, store: CheckpointStore, document: RunDocument, stamps_file: Path) -> None:
        self._store = store
        self._document = document
        self._stamps_file = stamps_file

    def commit(self, directory: Path, step: int | None) -> WireCheckpoint:
        """Commit what the directory holds; older ones beyond the job's ``keep`` go."""
        document = self._document
        report = self._store.commit(
            CommitRequest(
                job_id=document.job_id,
                run_id=document.run_id,
                attempt=document.attempt,
                step=step,
                rank=document.rank,
                nodes=document.nodes,
                gpu_model=document.gpu_model,
            ),
            directory,
            self._stamps_file,
        )
        if report.published and document.rank == 0:
            self._store.expire(
                document.job_id,
                keep_last=document.spec.checkpoint.keep,
                max_age_s=document.spec.checkpoint.keep_for,
                nodes=document.nodes,
            )
        return WireCheckpoint(
            seq=report.seq,
            step=report.step or 0,
            committed_at=report.committed_at,
            size_bytes=report.size_bytes,
            commit_s=report.seconds,
        )

    def restore(self, directory: Path, resume: Resume) -> int:
        """Bring back the checkpoint that was asked for; the step it holds.

        One that proves bad, or is not there any more, is replaced by the newest good one: less
        work is saved, none is invented. Raises CorruptCheckpoint when there is none at all.
        """
        document = self._document
        for seq in (self._seq_of(resume), None):
            try:
                report = self._store.restore(
                    document.job_id,
                    directory,
                    seq=seq,
                    rank=document.rank,
                    nodes=document.nodes,
                    stamps_file=self._stamps_file,
                )
            except CorruptCheckpoint:
                if seq is None:
                    raise
                continue
            if report is not None:
                return resume.step if report.step is None else report.step
        raise CorruptCheckpoint(f"job {document.job_id} has no good checkpoint")

    def _seq_of(self, resume: Resume) -> int | None:
        """Ranks number theirs apart: a gang's checkpoint goes by its step and rank 0's number."""
        if self._document.nodes == 1:
            return resume.seq
        kept = self._store.checkpoints(self._document.job_id, self._document.nodes)
        return max((each.seq for each in kept if each.step == resume.step), default=None)


def step_in(directory: Path) -> int | None:
    """What the job's own ``STEP`` file says; None without a readable one."""
    try:
        # a pipe that the job put there must not keep its own end from being told
        fd = os.open(directory / STEP_FILE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        text = os.read(fd, _STEP_FILE_BYTES + 1).strip()
    except OSError:
        return None
    finally:
        os.close(fd)
    return int(text) if text.isdigit() and len(text) <= 18 else None
