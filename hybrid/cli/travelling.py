"""Work folders: packed, shown, uploaded when the server does not have them, submitted."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.cli.describing import Work
from hybrid.cli.exits import CliError, Exit
from hybrid.cli.progress import transfer
from hybrid.cli.serving import remark
from hybrid.cli.words import plural, size

if TYPE_CHECKING:
    from hybrid.client import HybridClient
    from hybrid.client.answers import Job


@dataclass(frozen=True)
class Sent:
    """A submitted job; ``replayed`` when its key stood for it before."""

    job: Job
    replayed: bool


def send(client: HybridClient, work: Work, *, key: str | None = None) -> Sent:
    """Submit a job with its folder. Raises CliError, ArchiveError, Problem, Unreachable."""
    if work.folder is None:
        return Sent(*client.submit(work.spec, key=key))
    with tempfile.TemporaryDirectory(prefix="hybrid-pack-") as scratch:
        archive = Path(scratch) / "workdir.tar.gz"
        digest = pack(work.folder, archive)
        spec: dict[str, Any] = {**work.spec, "workdir": digest}
        from hybrid.client import Problem

        try:
            # most folders are sent again and again: the server says when it lacks one
            return Sent(*client.submit(spec, key=key))
        except Problem as problem:
            if problem.code != "no_such_workdir":
                raise
        with transfer("uploading", archive.stat().st_size) as sent:
            client.upload(digest, archive, team=work.spec.get("team"), sent=sent)
        return Sent(*client.submit(spec, key=key))


def pack(folder: Path, archive: Path) -> str:
    """Pack a folder and say its size; its digest."""
    from hybrid.agent.archive import pack_folder

    if not folder.is_dir():
        raise CliError(Exit.USAGE, f"{folder} is no folder")
    packed = pack_folder(folder, archive)
    remark(
        f"packed {folder}: {plural(packed.entries, 'entry').replace('entrys', 'entries')},"
        f" {size(packed.content_bytes)} ({size(packed.archive_bytes)} to send)"
    )
    return packed.digest
