"""``hybrid logs``: what a job prints."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hybrid.cli.exits import Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Connection, connection_of

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

    With --follow: on through its runs to its end; then the exit code is 0 if it succeeded, else 1.
    """
    from hybrid.client import LogFollower
    from hybrid.client import logs as so_far

    if not follow:
        for piece in so_far(connection.client, job, rank=rank, run=run):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    follower = LogFollower(connection.client, job, rank=rank, run_id=run)
    for piece in follower.pieces():
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    if follower.last is not None and follower.last.state != "succeeded":
        raise typer.Exit(Exit.FAILED)
