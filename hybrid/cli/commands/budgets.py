"""``hybrid budgets``: what is left of them."""

from __future__ import annotations

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def budgets(session: Session) -> None:
    """Show the budgets that cover you, with what is charged and held in their current period."""
    from hybrid.cli import place_views

    found = session.client.budgets()
    session.show(found, lambda: place_views.budgets(found))
