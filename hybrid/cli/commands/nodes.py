"""``hybrid nodes``: list, cordon, uncordon."""

from __future__ import annotations

from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

app = new_app(no_args_is_help=True)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Its id.")]


@app.callback()
def nodes() -> None:
    """List nodes, and say which of them take no new runs."""


@app.command("list")
@takes(session=session_of)
def list_(session: Session) -> None:
    """List all nodes that are not gone, with their devices."""
    from hybrid.cli import place_views

    found = session.client.nodes()
    session.show(found, lambda: place_views.nodes(found))


@app.command()
@takes(session=session_of)
def cordon(
    session: Session,
    node: NodeArgument,
    why: Annotated[str, typer.Option(help="For whoever reads the list.")] = "",
) -> None:
    """Let nothing else start on a node; what runs there goes on."""
    found = session.client.cordon(node, why)
    session.say(found, f"{found.id} is {found.state}")


@app.command()
@takes(session=session_of)
def uncordon(session: Session, node: NodeArgument) -> None:
    """Let a node take new runs again."""
    found = session.client.uncordon(node)
    session.say(found, f"{found.id} is {found.state}")
