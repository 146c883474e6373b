"""One rank's checkpoints: which step they hold, where they go, and back."""

from __future__ import annotations

import os
from pathlib import Path

import tenacity

from hybrid.agent.checkpoints import (
    CheckpointMissing,
    CheckpointStore,
    CommitRequest,
    CorruptCheckpoint,
    PartSpoilt,
)
from hybrid.agent.protocol import Resume, RunDocument, WireCheckpoint

STEP_FILE = "STEP"
"""A job may write the step that its checkpoint holds into a file of this name beside it. Without
it, the step is the last one that was reported before the checkpoint was written, which is exact
enough for one machine; the ranks of a gang need the file to agree on a step."""

_STEP_FILE_BYTES = 32

LATE_S = 10.0
"""How long a checkpoint that was committed may take to be seen in its store."""


class Saver:
    """Commits and restores for one order. Methods raise CheckpointError."""

    def __init__(
        self,
        store: CheckpointStore,
        document: RunDocument,
        stamps_file: Path,
        *,
        late_s: float = LATE_S,
    ) -> None:
        self._store = store
        self._late_s = late_s
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

        One that cannot be seen is waited for: a store may show it late. One that proves bad, or
        does not come, is replaced by the newest good one: less work is saved, none is invented.
        Raises CorruptCheckpoint when there is none at all, and where the part of one rank of a gang
        proves bad: then that step is withdrawn, and the next run of the job finds all ranks at the
        one before.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CheckpointMissing),
            stop=tenacity.stop_after_delay(self._late_s),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )
        try:
            return retrying(lambda: self._restore(directory, resume, self._seq_of(resume)))
        except PartSpoilt:
            raise
        except CorruptCheckpoint:
            return self._restore(directory, resume, None)

    def _restore(self, directory: Path, resume: Resume, seq: int | None) -> int:
        document = self._document
        try:
            report = self._store.restore(
                document.job_id,
                directory,
                seq=seq,
                rank=document.rank,
                nodes=document.nodes,
                stamps_file=self._stamps_file,
            )
        except PartSpoilt as error:
            found = self._store.latest(document.job_id, document.nodes)
            step = resume.step if seq is not None or found is None else found.step
            if step is not None:
                self._store.withdraw(
                    document.job_id, step=step, rank=document.rank, nodes=document.nodes
                )
            raise PartSpoilt(f"step {step} is withdrawn: {error}") from error
        if report is None:
            raise CorruptCheckpoint(f"job {document.job_id} has no good checkpoint")
        return resume.step if report.step is None else report.step

    def _seq_of(self, resume: Resume) -> int:
        """Ranks number theirs apart: a gang's checkpoint goes by its step and rank 0's number."""
        document = self._document
        if document.nodes == 1:
            return resume.seq
        kept = self._store.checkpoints(document.job_id, document.nodes)
        seq = max((each.seq for each in kept if each.step == resume.step), default=None)
        if seq is None:
            words = f"job {document.job_id} has no complete checkpoint of step {resume.step}"
            raise CheckpointMissing(words)
        return seq


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
