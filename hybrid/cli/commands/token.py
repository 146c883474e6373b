"""``hybrid token``: create, list, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.serving import remark
from hybrid.cli.session import Output, Session, session_of

app = new_app(no_args_is_help=True)


@app.callback()
def token() -> None:
    """Create, list and revoke tokens of people, programs and machines to come."""


@app.command()
@takes(session=session_of)
def create(
    session: Session,
    role: Annotated[
        str | None,
        typer.Option(help="viewer, submitter, operator or admin.", show_default=False),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    team: Annotated[
        list[str] | None,
        typer.Option(metavar="TEAM", help="For a submitter, or to limit a viewer; repeatable."),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="POOL", help="Instead: lets one machine join this pool."),
    ] = None,
    valid_for: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Such as 30d. Default: for ever; 1d with --join"),
    ] = None,
    note: Annotated[str, typer.Option(help="For whoever reads the list.")] = "",
) -> None:
    """Create a token and print its secret, which is nowhere to be had again."""
    body: dict[str, Any] = {"note": note}
    if valid_for is not None:
        body["valid_for"] = valid_for
    if join is not None:
        if role or user or team:
            raise CliError(Exit.USAGE, "--join makes a machine's token: no role, user or team")
        body |= {"role": "node", "pool": join}
    else:
        if role is None or user is None:
            raise CliError(Exit.USAGE, "a token needs --role and --user, or --join POOL")
        body |= {"role": role, "user": user, "teams": team or []}
    made = session.client.create_token(body)
    if session.output is Output.TABLE:
        whose = made.token.user or f"a machine of pool {made.token.pool}"
        remark(f"token {made.token.id}, {made.token.role}, for {whose}; shown once:")
    session.say(made, made.secret)


@app.command("list")
@takes(session=session_of)
def list_(session: Session) -> None:
    """List all tokens, revoked and expired ones too, without their secrets."""
    from hybrid.cli import views

    found = session.client.tokens()
    session.show(found, lambda: views.tokens(found))


@app.command()
@takes(session=session_of)
def revoke(
    session: Session,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="As in the list: t-...")],
) -> None:
    """End a token now. Twice is as once."""
    session.client.revoke_token(token_id)
    session.say({"id": token_id, "revoked": True}, f"{token_id} is revoked")
