"""``hybrid serve``: a server alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.log_output import Level, LevelOption, log_to_stderr
from hybrid.cli.options import takes
from hybrid.cli.serving import server_settings

if TYPE_CHECKING:
    from hybrid.config import Settings

app = new_app()


@app.command()
@takes(settings=server_settings)
def serve(
    settings: Settings,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no token.")] = False,
    log_level: LevelOption = Level.INFO,
) -> None:
    """Start a server, without an agent, until Ctrl-C or SIGTERM.

    Every setting can also be written in config.yaml in the state directory, or in a variable
    HYBRID_...; see the reference of settings.
    """
    log_to_stderr(log_level)
    from api.server import Server
    from hybrid.cli.serving import announce

    server = Server(settings)
    server.run(lambda ready: announce(ready, settings.state_dir, with_token=not quiet))
