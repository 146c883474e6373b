"""``hybrid quote``: what a job would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.describing import Described, described, work_from
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command(context_settings={"allow_interspersed_args": False})
@takes(job=described, session=session_of)
def quote(
    job: Described,
    session: Session,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", metavar="FILE", help="The job in YAML or JSON; - for stdin."),
    ] = None,
    command: Annotated[list[str] | None, typer.Argument(metavar="CMD")] = None,
) -> None:
    """Show where, when and at what cost a job would run if it were submitted now.

    Nothing is kept or started, and no folder is sent: what is in it makes no difference.
    """
    work = work_from(file, job, command or ["true"] if file is None else command)
    from hybrid.cli import views

    found = session.client.quote(work.spec)
    session.show(found, lambda: views.quote(found))
