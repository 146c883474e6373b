"""``hybrid doctor``: what works here and what does not."""

from __future__ import annotations

import typer

from hybrid.cli.exits import Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()


@app.command()
@takes(session=session_of)
def doctor(session: Session) -> None:
    """Check the server, your token, the clocks, and what this machine has to run jobs with.

    Exits with 1 when something fails that a server or a job here would need.
    """
    from hybrid.cli.checks import Mark, all_checks
    from hybrid.cli.tables import table

    found = list(all_checks(session))
    session.show(
        {"checks": [each.as_dict() for each in found]},
        lambda: table(
            ("check", "", "what was found"), ((each.name, each.mark, each.words) for each in found)
        ),
    )
    if any(each.mark is Mark.BAD for each in found):
        raise typer.Exit(Exit.FAILED)
