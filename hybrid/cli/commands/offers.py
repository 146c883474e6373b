"""``hybrid offers``: what the clouds offer now."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def offers(
    session: Session,
    pool: Annotated[str | None, typer.Option(help="Only of this burst pool.")] = None,
) -> None:
    """Show what could be had from the clouds, as last read, and what is ignored and why."""
    from hybrid.cli import place_views

    found = session.client.offers(pool)
    session.show(found, lambda: place_views.offers(found))
