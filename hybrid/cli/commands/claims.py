"""``hybrid claims``: cloud machines that were asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def claims(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE", help="Only in this; several may be given."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")
    ] = 200,
) -> None:
    """List the cloud machines of your teams, newest first, gone ones too."""
    from hybrid.cli import place_views

    found = session.client.claims(state=state or (), limit=limit)
    session.show(found, lambda: place_views.claims(found))
