"""``hybrid logs``: what a job prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.cli.exits import Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Connection, connection_of

if TYPE_CHECKING:
    from hybrid.client.answers import Job

app = new_app()


@app.command()
@takes(connection=connection_of)
def logs(
    connection: Connection,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which machine of a gang.")] = 0,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="One run; the latest if omitted.")
    ] = None,
) -> None:
    """Print what a job has printed, stdout and stderr together.

    With --follow: on through its runs to its end, or to the end of the run that is named; then the
    exit code is 0 if that succeeded, else 1.
    """
    from hybrid.client import LogFollower
    from hybrid.client import logs as so_far

    if not follow:
        for piece in so_far(connection.client, job, rank=rank, run=run):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    follower = LogFollower(connection.client, job, rank=rank, run_id=run, only=run is not None)
    for piece in follower.pieces():
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    if not _went_well(follower.last, run):
        raise typer.Exit(Exit.FAILED)


def _went_well(job: Job | None, run: str | None) -> bool:
    """Whether what was followed, the job or one run of it, succeeded."""
    if job is None:
        return False
    if run is None:
        return job.state == "succeeded"
    return any(each.id == run and each.exit_code == 0 for each in job.runs)
