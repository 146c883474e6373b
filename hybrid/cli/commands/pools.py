"""``hybrid pools``: list, show, apply, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app(no_args_is_help=True)

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Its name.")]


@app.callback()
def pools() -> None:
    """List, show, apply and remove pools: owned machines, and templates of cloud machines."""


@app.command("list")
@takes(session=session_of)
def list_(session: Session) -> None:
    """List all pools, with what is in them."""
    from hybrid.cli import place_views

    found = session.client.pools()
    session.show(found, lambda: place_views.pools(found))


@app.command()
@takes(session=session_of)
def show(session: Session, pool: PoolArgument) -> None:
    """Show a pool's document and what is in it."""
    from hybrid.cli import place_views

    found = session.client.pool(pool)
    session.show(found, lambda: place_views.pool(found))


@app.command()
@takes(session=session_of)
def apply(
    session: Session,
    file: Annotated[
        Path,
        typer.Option(
            "-f", "--file", metavar="FILE", help="Pool documents in YAML or JSON; - for stdin."
        ),
    ],
) -> None:
    """Make pools be as their documents say: one, or several with --- between."""
    from hybrid.cli.documents import read_documents
    from hybrid.cli.serving import remark

    documents = read_documents(file)
    for each in documents:
        if not isinstance(each.get("name"), str) or not each["name"]:
            raise CliError(Exit.USAGE, f"{file}: a pool document has a name and a kind")
    applied = []
    for each in documents:
        pool, new = session.client.apply_pool(each)
        applied.append(pool)
        for warning in pool.warnings:
            remark(f"{pool.name}: {warning}")
        if session.output == "table":
            print(f"{pool.name} is {'new' if new else 'as the document says'}")
    if session.output == "json":
        session.show(applied[0] if len(applied) == 1 else applied, lambda: None)


@app.command()
@takes(session=session_of)
def remove(session: Session, pool: PoolArgument) -> None:
    """Remove a pool that has no nodes, machines or runs."""
    session.client.remove_pool(pool)
    session.say({"name": pool, "removed": True}, f"{pool} is removed")
