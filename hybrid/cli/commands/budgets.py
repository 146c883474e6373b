"""``hybrid budgets``: what is left of them."""

from __future__ import annotations

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def budgets(session: Session) -> None:
    """Show the budgets that cover you: what is charged, held and free in their current period, how
    fast they go, when they run out, who spends most and what the holds are for."""
    from hybrid.cli import money_views

    found = session.client.budgets()
    session.show(found, lambda: money_views.budgets(found))
