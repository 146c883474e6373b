"""``hybrid usage``: what teams have used, spent and saved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def usage(
    session: Session,
    since: Annotated[
        datetime | None,
        typer.Option(help="Local time; 30 days ago if omitted.", show_default=False),
    ] = None,
) -> None:
    """Show what each of your teams has used at home and in clouds, in one number, and what bursting
    has saved or cost against waiting."""
    from hybrid.cli import money_views

    found = session.client.usage(None if since is None else since.astimezone())
    session.show(found, lambda: money_views.usage(found))
