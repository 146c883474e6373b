"""``hybrid outputs``: what a job left behind, brought here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.serving import remark
from hybrid.cli.session import Session, session_of
from hybrid.cli.words import plural, size

if TYPE_CHECKING:
    from hybrid.client import HybridClient
    from hybrid.client.answers import Job

MAX_BYTES = 64 << 30

app = new_app()


@app.command()
@takes(session=session_of)
def outputs(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", "-d", metavar="DIR", help="Where to; ./JOB-outputs if omitted."),
    ] = None,
) -> None:
    """Download a job's outputs and unpack them into a folder that is new or empty.

    The whole archive is checked before anything is written. Those of a gang come into one folder
    per rank.
    """
    found = session.client.job(job)
    digests = _latest(found)
    target = directory or Path(f"{job}-outputs")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CliError(Exit.USAGE, f"{target} is not empty", hint="name another with -d DIR")
    brought = []
    for rank, digest in digests.items():
        folder = target / f"rank-{rank}" if found.nodes > 1 else target
        brought.append({"rank": rank, "digest": digest, **_bring(session.client, digest, folder)})
    total = sum(each["bytes"] for each in brought)
    files = sum(each["entries"] for each in brought)
    said = f"{target}: {plural(files, 'file or folder')}, {size(total)}"
    session.say({"job_id": job, "directory": str(target), "archives": brought}, said)


def _latest(job: Job) -> dict[int, str]:
    """By rank, the outputs of the last run that has any; CliError when none has."""
    for run in reversed(job.runs):
        if any(run.outputs):
            return {rank: digest for rank, digest in enumerate(run.outputs) if digest}
    if not job.spec.get("outputs"):
        said, hint = f"job {job.id} names no outputs", "submit it with --output-path PATH"
    elif job.state.ended:
        said, hint = f"job {job.id} left no outputs", "its runs did not end by themselves"
    else:
        said, hint = f"job {job.id} is {job.state}", "its outputs come back when a run has ended"
    raise CliError(Exit.NOT_FOUND, said, hint=hint)


def _bring(client: HybridClient, digest: str, folder: Path) -> dict[str, Any]:
    from hybrid.agent.archive import Limits, unpack
    from hybrid.cli.progress import transfer

    folder.parent.mkdir(parents=True, exist_ok=True)
    # beside the target: the same disk, where there must be room anyway
    with tempfile.TemporaryDirectory(prefix=".hybrid-outputs-", dir=folder.parent) as scratch:
        archive = Path(scratch) / "outputs.tar.gz"
        with transfer("downloading", 0) as got:
            seen = 0

            def told(so_far: int, total: int) -> None:
                nonlocal seen
                got(so_far - seen, total)
                seen = so_far

            size_bytes = client.download(digest, archive, got=told)
        report = unpack(archive, folder, digest, Limits(total_bytes=MAX_BYTES))
    remark(f"{digest[:19]}…: {size(size_bytes)}, checked")
    return {"entries": report.entries, "bytes": report.content_bytes}
