"""``hybrid show``."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def show(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
) -> None:
    """Show a job: its state, its runs, its last decision."""
    from hybrid.cli import views

    found = session.client.job(job)
    session.show(found, lambda: views.job(found))
