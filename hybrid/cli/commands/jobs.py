"""``hybrid jobs``: a listing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Output, Session, session_of

if TYPE_CHECKING:
    from hybrid.client.answers import JobLine

EVERY_S = 2.0
_PAGE = 200

app = new_app()


@app.command()
@takes(session=session_of)
def jobs(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE", help="Only in this; several may be given."),
    ] = None,
    team: Annotated[str | None, typer.Option(help="Only of this team.")] = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    priority: Annotated[str | None, typer.Option(help="Only of this priority class.")] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Until Ctrl-C.")] = False,
) -> None:
    """List jobs, newest first: those of your teams."""

    def found() -> list[JobLine]:
        filters = {"state": state, "team": team, "user": user, "priority": priority, "name": name}
        listed: list[JobLine] = []
        cursor = None
        while len(listed) < limit:
            page = session.client.jobs(
                limit=min(_PAGE, limit - len(listed)), cursor=cursor, **filters
            )
            listed += page.jobs
            cursor = page.next_cursor
            if cursor is None:
                break
        return listed

    from hybrid.cli import views

    if watch:
        if session.output is Output.JSON:
            raise CliError(Exit.USAGE, "--watch is for people; `hybrid jobs` in a loop is for JSON")
        _watch(lambda: views.jobs(found()))
        return
    listed = found()
    session.show({"jobs": listed}, lambda: views.jobs(listed))


def _watch(table: Callable[[], Any]) -> None:
    """Show it again and again; in place on a terminal."""
    from hybrid.cli.tables import write

    if not sys.stdout.isatty():
        while True:
            write(table())
            print(flush=True)
            time.sleep(EVERY_S)
    from rich.console import Console
    from rich.live import Live

    with Live(table(), console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            time.sleep(EVERY_S)
            live.update(table(), refresh=True)
