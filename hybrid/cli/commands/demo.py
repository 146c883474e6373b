"""``hybrid demo``: a story on this machine and a sandbox cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.session import Output, OutputOption

app = new_app()


@app.command()
def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Leave the server up at the end, with its URL.")
    ] = False,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill the server three times and an agent once.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The same seed is the same chaos.")] = 0,
    output: OutputOption = Output.TABLE,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="Kept there; else in a temporary folder."),
    ] = None,
) -> None:
    """Watch real jobs wait, burst, be interrupted, resume and come home, in about two minutes.

    The cloud is a sandbox on this machine: nothing costs anything and no account is needed.
    """
    from hybrid.demo.story import run_demo

    code = run_demo(
        serve=serve,
        chaos=chaos,
        seed=seed,
        output="json" if output is Output.JSON else "table",
        state_dir=state_dir,
    )
    raise typer.Exit(code)
