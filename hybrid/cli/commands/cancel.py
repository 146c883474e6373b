"""``hybrid cancel``."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def cancel(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its id.")],
) -> None:
    """Cancel a job. One that runs is stopped first, with its grace. Twice is as once."""
    found = session.client.cancel(job)
    session.say(found, f"{found.id} is {'cancelled' if found.state.ended else 'being cancelled'}")
