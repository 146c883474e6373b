"""``hybrid doctor``: what works here and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.cli.exits import Exit
from hybrid.cli.lazy import new_app
from hybrid.cli.options import takes
from hybrid.cli.session import Session, session_of

if TYPE_CHECKING:
    from hybrid.cli.checks import Check

app = new_app()


@app.command()
@takes(session=session_of)
def doctor(
    session: Session,
    cloud: Annotated[
        str | None,
        typer.Argument(
            help="A provider of the settings by name, or a kind: aws, gcp.", show_default=False
        ),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option(help="Pool documents to try; the server's if omitted.", show_default=False),
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="For a provider that the settings do not have.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Likewise; Google Cloud only.")] = None,
    endpoint_url: Annotated[
        str | None, typer.Option(help="Likewise; instead of the cloud's own.")
    ] = None,
    installation: Annotated[
        str | None, typer.Option(help="Whose tag dry runs bear, where a policy asks for it.")
    ] = None,
) -> None:
    """Check the server, your token, the clocks, and what this machine has to run jobs with.

    With a cloud: check that it answers, and what the credentials here are allowed to do, by dry
    run.
    Exits with 1 when something fails that a server or a job here would need.
    """
    from hybrid.cli.checks import Mark, all_checks
    from hybrid.cli.tables import table

    if cloud is None:
        found = list(all_checks(session))
    else:
        given = {"region": region, "project": project, "endpoint_url": endpoint_url}
        found = _of_cloud(session, cloud, pool, given, installation)
    session.show(
        {"checks": [each.as_dict() for each in found]},
        lambda: table(
            ("check", "", "what was found"), ((each.name, each.mark, each.words) for each in found)
        ),
    )
    if any(each.mark is Mark.BAD for each in found):
        raise typer.Exit(Exit.FAILED)


def _of_cloud(
    session: Session,
    cloud: str,
    pool: Path | None,
    given: dict[str, str | None],
    installation: str | None,
) -> list[Check]:
    from hybrid.cli.cloud_checks import EXAMINED_AS, cloud_checks, pools_to_try, providers_called

    found = providers_called(cloud, session.state_dir, given)
    pools = pools_to_try(session, pool)
    return [
        check
        for settings in found
        for check in cloud_checks(settings, pools, installation or EXAMINED_AS)
    ]
