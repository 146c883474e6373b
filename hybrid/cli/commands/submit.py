"""``hybrid submit``: a job, and no waiting for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.describing import Described, described, work_from
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.serving import remark
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command(context_settings={"allow_interspersed_args": False})
@takes(job=described, session=session_of)
def submit(
    job: Described,
    session: Session,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", metavar="FILE", help="The job in YAML or JSON; - for stdin."),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option("--workdir", metavar="DIR", help="A folder that travels with the job."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The same key is the same job, however often it is sent."),
    ] = None,
    command: Annotated[list[str] | None, typer.Argument(metavar="CMD")] = None,
) -> None:
    """Submit a job from a file, from options, or from both; options win.

    Prints the job's id. A workdir given as a path is packed (without what .gitignore and
    .hybridignore name) and uploaded.
    """
    work = work_from(file, job, command, workdir)
    from hybrid.cli.travelling import send

    sent = send(session.client, work, key=idempotency_key)
    if sent.replayed:
        remark("this key stood for the job already")
    session.say(sent.job, sent.job.id)
