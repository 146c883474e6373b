"""``hybrid drain``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app()

LOOK_S = 1.0


@app.command()
@takes(session=session_of)
def drain(
    session: Session,
    target: Annotated[str, typer.Argument(metavar="NODE|POOL", help="A node, or an owned pool.")],
    within: Annotated[str, typer.Option(help="By when it is to be empty.")] = "30m",
    why: Annotated[str, typer.Option(help="For whoever reads the list.")] = "",
    wait: Annotated[bool, typer.Option(help="Show how far it is until it is empty.")] = True,
) -> None:
    """Empty a node or an owned pool for maintenance, and wait until nothing runs there.

    Nothing else starts there. Runs that end in time are let be; those that save their work go on
    elsewhere at once; others go on for as long as the time allows. It goes on if this command is
    interrupted; `hybrid undrain` ends it.
    """
    from hybrid.cli.serving import remark
    from hybrid.cli.words import plural, span
    from hybrid.domain.quantities import parse_duration_s

    try:
        within_s = parse_duration_s(within)
    except ValueError as error:
        raise CliError(Exit.USAGE, f"--within: {error}") from error
    found = session.client.drain(target, within_s, why)
    said = -1
    try:
        while wait and not found.empty:
            if found.runs_left != said:
                said = found.runs_left
                remark(
                    f"{target}: {plural(said, 'run')} left on {plural(len(found.nodes), 'node')}"
                )
            time.sleep(LOOK_S)
            found = session.client.drained(target)
            if found.by is None:
                raise CliError(Exit.FAILED, f"{target} is not being emptied any more")
    except KeyboardInterrupt:
        remark(f"emptying {target} goes on; `hybrid undrain {target}` ends it")
        raise typer.Exit(Exit.INTERRUPTED) from None
    state = "empty" if found.empty else f"being emptied within {span(within_s)}"
    session.say(found, f"{target} is {state}")
