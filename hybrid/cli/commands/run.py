"""``hybrid run``: a command from this folder, followed to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.describing import Described, described, work_from
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.serving import remark
from hybrid.cli.session import Connection, connection_of

app = new_app()


@app.command(context_settings={"allow_interspersed_args": False})
@takes(job=described, connection=connection_of)
def run(
    job: Described,
    connection: Connection,
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="What to run.")],
    workdir: Annotated[
        Path, typer.Option("--workdir", metavar="DIR", help="The folder that travels.")
    ] = Path(),
    no_workdir: Annotated[
        bool, typer.Option("--no-workdir", help="Send no folder; the job begins in an empty one.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the job's id and do not follow it.")
    ] = False,
) -> None:
    """Run a command from this folder wherever there is room, and follow it to its end.

    The folder is packed (without what .gitignore and .hybridignore name) and uploaded if the
    server does not have it. What the job prints comes to standard output, the rest to standard
    error, and the exit code is the job's own. Ctrl-C asks whether to cancel the job or to leave it
    running; a second one leaves it.
    """
    work = work_from(None, job, command, None if no_workdir else workdir)
    from hybrid.cli.travelling import send

    sent = send(connection.client, work)
    if detach:
        print(sent.job.id)
        return
    remark(f"{sent.job.id} is submitted")
    from hybrid.cli.watching import ask, follow

    def out(piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    raise typer.Exit(follow(connection.client, sent.job.id, out=out, wish=ask))
