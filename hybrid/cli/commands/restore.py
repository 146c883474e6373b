"""``hybrid restore``: bring a saved state directory back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.session import Output, OutputOption, StateDirOption
from hybrid.cli.words import plural

app = new_app()


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made by `hybrid backup`.")],
    state_dir: StateDirOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what is in the state directory.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring a saved state directory back, with no server running there.

    Everything is checked before anything is replaced: every file's checksum, and the database. A
    directory with something in it is refused without --force; logs and the agent's own folder
    stay as they are.
    """
    from hybrid.cli.finding import default_state_dir
    from hybrid.cli.saving import bring_back
    from hybrid.cli.tables import write_json

    target = state_dir or default_state_dir()
    facts = bring_back(file, target, force=force)
    if output is Output.JSON:
        write_json(
            {"state_dir": str(target), "entries": facts.entries,
             "installation": facts.installation, "made_at": facts.made_at}
        )  # fmt: skip
        return
    print(f"{target} is as it was on {facts.made_at}: {plural(facts.entries, 'file')}")
