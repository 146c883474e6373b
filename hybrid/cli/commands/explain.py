"""``hybrid explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def explain(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
    where: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Why not there: a pool, a machine type or an offer."),
    ] = None,
) -> None:
    """Why a job is where it is: every option with its cost, or what refused it."""
    from hybrid.cli import views

    found = session.client.explain(job, where)
    session.show(found, lambda: views.explanation(found))
