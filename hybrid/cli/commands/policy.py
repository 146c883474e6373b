"""``hybrid policy``: show, check, apply, preset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.serving import remark
from hybrid.cli.session import Output, Session, session_of
from hybrid.cli.words import ago, plural

app = new_app(no_args_is_help=True)

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A policy in YAML; - for stdin.")
]


@app.callback()
def policy() -> None:
    """Show, check and apply the policy: budgets, priorities, and when to burst."""


@app.command()
@takes(session=session_of)
def show(session: Session) -> None:
    """Print the policy in force, as it was written."""
    found = session.client.policy()
    if session.output is Output.TABLE:
        who = f"version {found.version}, by {found.actor}, {ago(found.at)}"
        remark(f"# {who}" if found.version else "# none has been set: these are the defaults")
        print(found.document.rstrip("\n"))
        return
    session.show(found, lambda: None)


@app.command()
@takes(session=session_of)
def check(session: Session, file: FileArgument) -> None:
    """See whether a file is a policy, and what putting it in force would change."""
    from hybrid.cli import place_views
    from hybrid.cli.documents import read_text

    found = session.client.check_policy(read_text(file))
    session.show(found, lambda: place_views.policy_check(found))


@app.command()
@takes(session=session_of)
def apply(
    session: Session,
    file: FileArgument,
    why: Annotated[str, typer.Option(help="For those who read the history.")] = "",
) -> None:
    """Put a policy in force, its budgets with it, unless another was put in force meanwhile."""
    from hybrid.cli.documents import read_text

    text = read_text(file)
    seen = session.client.check_policy(text)
    if not seen.changes and seen.version:
        same = session.client.policy()
        session.say(same, f"version {same.version} says the same already")
        return
    made = session.client.apply_policy(text, why=why, over=seen.version)
    session.say(made, f"version {made.version} is in force: {plural(len(seen.changes), 'change')}")


@app.command()
def preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A strategy, such as break_even.")],
) -> None:
    """Print a strategy as a whole policy document, to begin from. Needs no server."""
    from policies.presets import PRESETS
    from policies.sections import Strategy
    from policies.writing import preset as written

    try:
        strategy = Strategy(name)
    except ValueError:
        known = ", ".join(PRESETS)
        raise CliError(Exit.USAGE, f"there is no preset {name!r}; there are {known}") from None
    print(written(strategy).rstrip("\n"))
