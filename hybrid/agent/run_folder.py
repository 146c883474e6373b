"""The directory of one rank of a run on its node, and what survives in it.

=================  ==============================================================================
``order.json``     the document; written first, so a run that was ever begun is known
``guard/``         the guardian's own directory (see :mod:`hybrid.agent.guardian`)
``work/``          the work folder, unpacked
``checkpoint/``    what the job saves; HYBRID_CHECKPOINT_DIR
``said/``          where the job writes its progress
``facts.json``     what must outlive the agent while the run lasts
``final.json``     the last report: written when nothing is left to do for the run
=================  ==============================================================================
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hybrid.agent.guardian.durable import fsync_directory, read_record, write_record
from hybrid.agent.guardian.journal import read_journal
from hybrid.agent.protocol import RunDocument, WireRank


class RunFolder:
    """``RUNS/RUN/RANK``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, runs: Path, run_id: str, rank: int) -> RunFolder:
        """The folder of a rank, there or not."""
        return cls(runs / run_id / str(rank))

    @property
    def guard(self) -> Path:
        """The guardian's."""
        return self.path / "guard"

    @property
    def work(self) -> Path:
        """The process's working directory."""
        return self.path / "work"

    @property
    def checkpoint(self) -> Path:
        """What the job saves."""
        return self.path / "checkpoint"

    @property
    def said(self) -> Path:
        """A directory of its own, because containers mount directories."""
        return self.path / "said"

    @property
    def progress(self) -> Path:
        """HYBRID_PROGRESS_FILE."""
        return self.said / "progress.json"

    @property
    def download(self) -> Path:
        """Where an artifact is brought to."""
        return self.path / "work.archive"

    @property
    def outputs(self) -> Path:
        """The packed outputs, before they are sent."""
        return self.path / "outputs.archive"

    def create(self, document: RunDocument) -> None:
        """Make the folder and keep the order, durably; raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(self.path / "order.json", document.model_dump(mode="json"))
        for folder in (self.path, self.path.parent, self.path.parent.parent):
            fsync_directory(folder)

    def document(self) -> RunDocument | None:
        """The order; None when the folder was never finished (nothing has started in it)."""
        record = read_record(self.path / "order.json")
        try:
            return None if record is None else RunDocument.model_validate(record)
        except ValidationError:
            return None

    @property
    def was_guarded(self) -> bool:
        """Whether a guardian was ever asked for."""
        return (self.guard / "spec.json").exists()

    def clear_for_staging(self) -> None:
        """Start staging from nothing: what a crash left half-done is thrown away."""
        self.shed()
        for folder in (self.work, self.checkpoint, self.said):
            folder.mkdir(mode=0o700)

    def shed(self) -> None:
        """Throw away what the run itself left; the records stay."""
        for folder in (self.work, self.checkpoint, self.said):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.download, self.outputs):
            with contextlib.suppress(OSError):
                file.unlink()

    def facts(self) -> dict[str, Any]:
        """What was noted."""
        return read_record(self.path / "facts.json") or {}

    def note(self, **facts: Any) -> None:
        """Note facts beside those noted before."""
        write_record(self.path / "facts.json", {**self.facts(), **facts})

    def final(self) -> WireRank | None:
        """The last report, if the run is over and done with."""
        record = read_record(self.path / "final.json")
        try:
            return None if record is None else WireRank.model_validate(record)
        except ValidationError:
            return None

    def finish(self, report: WireRank) -> None:
        """Keep the last report, durably; raises OSError."""
        write_record(self.path / "final.json", report.model_dump(mode="json"))

    def journal_lines(self) -> list[dict[str, Any]]:
        """The guardian's record of who was alive when."""
        return read_journal(self.guard)

    def remove(self) -> None:
        """Delete everything of the run."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()


def folders_in(runs: Path) -> Iterator[RunFolder]:
    """Every rank's folder there is."""
    with contextlib.suppress(FileNotFoundError):
        for run in sorted(runs.iterdir()):
            if run.is_dir():
                for rank in sorted(run.iterdir()):
                    if rank.name.isdigit():
                        yield RunFolder(rank)
