"""``hybrid undrain``."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def undrain(
    session: Session,
    target: Annotated[str, typer.Argument(metavar="NODE|POOL", help="A node, or an owned pool.")],
) -> None:
    """Let a node or a pool that was drained take new runs again."""
    from hybrid.cli.words import plural

    found = session.client.undrain(target)
    session.say(found, f"{target} takes runs again on {plural(len(found.nodes), 'node')}")
