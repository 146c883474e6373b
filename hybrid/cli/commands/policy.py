"""``hybrid policy``: show, check, diff, apply, history, rollback, preset, schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
    """Show, check, compare and apply the policy: budgets, priorities, and when to burst."""


@app.command()
@takes(session=session_of)
def show(
    session: Session,
    version: Annotated[
        int | None, typer.Option(min=0, help="An earlier one, such as a decision names.")
    ] = None,
) -> None:
    """Print the policy in force, or an earlier version, as it was written."""
    client = session.client
    found = client.policy() if version is None else client.policy_version(version)
    if session.output is Output.TABLE:
        who = f"version {found.version}, by {found.actor}, {ago(found.at)}"
        remark(f"# {who}" if found.version else "# none has been set: these are the defaults")
        print(found.document.rstrip("\n"))
        return
    session.show(found, lambda: None)


@app.command()
@takes(session=session_of)
def check(
    session: Session,
    file: FileArgument,
    offline: Annotated[
        bool, typer.Option("--offline", help="Look at the file alone; ask no server.")
    ] = False,
) -> None:
    """See whether a file is a policy, what in it can hardly be meant, and what it would change."""
    from hybrid.cli import policy_views

    text = _text(file)
    if offline or not _there_is_a_server(session):
        alone = _looked_at_alone(file, text)
        session.show(alone, lambda: policy_views.warnings(alone["warnings"]))
        return
    found = session.client.check_policy(text)
    session.show(found, lambda: policy_views.check(found))


@app.command()
@takes(session=session_of)
def diff(
    session: Session,
    file: FileArgument,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Jobs that are listed.")] = 50,
) -> None:
    """See what a policy would decide for the jobs that are there now: each decision before and
    after, in dollars and minutes. Nothing is kept or acted upon."""
    from hybrid.cli import policy_views

    found = session.client.diff_policy(_text(file))
    session.show(found, lambda: policy_views.trial(found, limit))


@app.command()
@takes(session=session_of)
def apply(
    session: Session,
    file: FileArgument,
    why: Annotated[str, typer.Option(help="For those who read the history.")] = "",
    over: Annotated[
        int | None,
        typer.Option(min=0, help="Only over this version; else over the one in force now."),
    ] = None,
) -> None:
    """Put a policy in force, its budgets with it, unless another was put in force meanwhile."""
    text = _text(file)
    seen = session.client.check_policy(text)
    if not seen.changes and seen.version and over in (None, seen.version):
        same = session.client.policy()
        session.say(same, f"version {same.version} says the same already")
        return
    for each in seen.warnings:
        remark(f"warning: line {each.line}: {each.path}: {each.message}")
    made = session.client.apply_policy(text, why=why, over=seen.version if over is None else over)
    session.say(made, f"version {made.version} is in force: {plural(len(seen.changes), 'change')}")


@app.command()
@takes(session=session_of)
def history(
    session: Session,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Versions that are listed.")] = 20,
) -> None:
    """List who put which version in force, when and why; newest first."""
    from hybrid.cli import policy_views

    found = session.client.policy_history(limit=limit)
    session.show(found, lambda: policy_views.history(found))


@app.command()
@takes(session=session_of)
def rollback(
    session: Session,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="The one before, if none is named.", min=0),
    ] = None,
    why: Annotated[str, typer.Option(help="For those who read the history.")] = "",
) -> None:
    """Put an earlier version in force again, as a version of its own."""
    now = session.client.policy()
    if version is None and now.version == 0:
        raise CliError(Exit.REFUSED, "no policy has been set: there is nothing to go back to")
    to = now.version - 1 if version is None else version
    made = session.client.roll_policy_back(to, why=why, over=now.version)
    session.say(made, f"version {made.version} is in force: what version {to} said")


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


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy documents, for editors. Needs no server."""
    from policies.schema import schema_text

    print(schema_text(), end="")


def _there_is_a_server(session: Session) -> bool:
    """Whether one is named or runs here; if not, says so, and that the file is looked at alone."""
    try:
        return bool(session.place)
    except CliError as problem:
        if session.server is not None or problem.exit is not Exit.UNREACHABLE:
            raise
        remark(f"# {problem}: the file is looked at alone")
        return False


def _text(file: Path) -> str:
    from hybrid.cli.documents import read_bytes
    from policies.loading import PolicyError, decoded

    try:
        return decoded(read_bytes(file))
    except PolicyError as problem:
        raise CliError(Exit.REFUSED, f"{file}: {problem}") from problem


def _looked_at_alone(file: Path, text: str) -> dict[str, Any]:
    """What can be said without a server: faults, or what can hardly be meant."""
    from hybrid.services.policy import NOT_KNOWN, placed_doubts
    from policies.loading import PolicyError, read_policy

    try:
        found = read_policy(text)
    except PolicyError as problem:
        raise CliError(Exit.REFUSED, f"{file}: {problem}") from problem
    return {"warnings": [asdict(each) for each in placed_doubts(found, NOT_KNOWN)]}
