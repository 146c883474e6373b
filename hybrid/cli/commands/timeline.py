"""``hybrid timeline``."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def timeline(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
) -> None:
    """What happened to a job, in order."""
    from hybrid.cli import views

    found = session.client.timeline(job)
    session.show(found, lambda: views.timeline(found))
