"""The picture of the demo's closing table, from what a run of the demo has said.

``hybrid demo --output json > demo.json && python docs/images/make_demo_svg.py demo.json`` writes
``demo.svg`` beside this file. Nothing in the picture is made up: it is as good as the run.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.terminal_theme import TerminalTheme

Document = Mapping[str, Any]

_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""A picture fetches nothing from anywhere: it is drawn with the viewer's own font."""

WIDTH = 150
TITLE = "hybrid demo"
THEME = TerminalTheme(
    (24, 26, 31),
    (214, 218, 224),
    [
        (24, 26, 31), (224, 108, 117), (126, 190, 120), (220, 180, 90),
        (97, 160, 220), (190, 130, 210), (90, 180, 190), (214, 218, 224),
    ],
)  # fmt: skip


def svg_of(document: Document) -> str:
    """The picture of one run's JSON object."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(_jobs(document))
    console.print()
    console.print(_totals(document["totals"]))
    console.print()
    for check in document["checks"]:
        mark = "[green]✓[/]" if check["ok"] else "[red]✗[/]"
        console.print(f"{mark} {check['name']}", highlight=False)
    # a name of our own: otherwise it is drawn from the content, and every line of a diff changes
    drawn = console.export_svg(title=TITLE, theme=THEME, unique_id="demo")
    return _FONT_FACE.sub("", drawn).replace("Fira Code, monospace", "monospace")


def _jobs(document: Document) -> Table:
    table = Table(title="Jobs", title_justify="left", expand=True)
    table.add_column("job", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("why", ratio=1)
    for column in ("wait s", "run s", "cost $"):
        table.add_column(column, justify="right", no_wrap=True)
    for job in document["jobs"]:
        wait = "" if job["wait_s"] is None else f"{job['wait_s']:.1f}"
        table.add_row(
            job["name"],
            " → ".join(each["pool"] for each in job["placements"]),
            job["decision"],
            wait,
            f"{job['run_s']:.1f}",
            f"{job['cost_usd']:.2f}",
        )
    for refused in document["refused"]:
        table.add_row(refused["name"], "refused", refused["reason"], "", "", "")
    return table


def _totals(totals: Document) -> Table:
    table = Table(title="Beside two other ways", title_justify="left")
    table.add_column("")
    for column in ("cost $", "mean wait s", "all done after s", "cannot run"):
        table.add_column(column, justify="right")
    for name, each in totals.items():
        table.add_row(
            name.replace("_", " "),
            f"{each['cost_usd']:.2f}",
            f"{each['mean_wait_s']:.1f}",
            f"{each['makespan_s']:.1f}",
            str(each.get("jobs_that_cannot_run", 0)),
        )
    return table


def main(arguments: list[str]) -> int:
    """Write the picture beside this file, unless the run it is of did not go well."""
    text = Path(arguments[0]).read_text() if arguments else sys.stdin.read()
    document = json.loads(text)
    failed = [check["name"] for check in document["checks"] if not check["ok"]]
    if failed:
        sys.stderr.write(f"not drawn, since these checks failed: {'; '.join(failed)}\n")
        return 1
    lines = svg_of(document).splitlines()
    Path(__file__).with_name("demo.svg").write_text(
        "\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
