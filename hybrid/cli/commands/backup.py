"""``hybrid backup``: save the state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid.cli.lazy import new_app
from hybrid.cli.serving import remark
from hybrid.cli.session import Output, OutputOption, StateDirOption
from hybrid.cli.words import plural, size

app = new_app()


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To make: a .tar.gz.")],
    state_dir: StateDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Save the state directory to a file, also while its server runs.

    In it: the database as of one moment, keys and tokens, settings, work folders, outputs and
    checkpoints; not logs, and not the agent's own folder. Keep it as you would keep a password.
    """
    from hybrid.cli.finding import default_state_dir
    from hybrid.cli.progress import transfer
    from hybrid.cli.saving import save
    from hybrid.cli.tables import write_json

    with transfer("saving", 0) as told:
        facts = save(state_dir or default_state_dir(), file, told=told)
    for each in facts.elsewhere:
        remark(f"not in it: {each}")
    if output is Output.JSON:
        write_json(
            {"file": str(file), "entries": facts.entries, "bytes": facts.size_bytes,
             "installation": facts.installation, "not_included": list(facts.elsewhere)}
        )  # fmt: skip
        return
    print(f"{file}: {plural(facts.entries, 'file')}, {size(facts.size_bytes)}")
