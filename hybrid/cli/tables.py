"""Tables and other text for people, and JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from pydantic import BaseModel
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hybrid.cli.words import plain

_WIDE = 10_000
_STYLES = {
    "succeeded": "green",
    "ready": "green",
    "ok": "green",
    "note": "yellow",
    "running": "cyan",
    "placed": "cyan",
    "pending": "yellow",
    "stopping": "yellow",
    "cordoned": "yellow",
    "failed": "red",
    "lost": "red",
    "overdrawn": "red",
    "cancelled": "dim",
    "gone": "dim",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str = "") -> Any:
    """A table; a column whose name begins with ``>`` is right aligned. ``empty`` is what is said
    when there are no rows."""
    listed = [list(row) for row in rows]
    if not listed and empty:
        return Text(empty)
    made = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for name in columns:
        right = name.startswith(">")
        made.add_column(name.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in listed:
        made.add_row(*(cell(text) for text in row))
    return made


def pairs(rows: Iterable[tuple[str, str]]) -> Any:
    """Names and values, one pair a line; pairs without a value are left out."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value:
            made.add_row(Text(name), cell(value))
    return made


def stack(*parts: Any) -> Any:
    """Several things below each other, with a line between; None is left out."""
    shown: list[Any] = []
    for part in parts:
        if part is not None:
            shown += [Text(""), part] if shown else [part]
    return Group(*shown)


def line(text: str) -> Any:
    """One line of text, whatever is in it."""
    return Text(plain(text))


def cell(text: str) -> Text:
    """A cell; states have their colours."""
    return Text(plain(text), style=_STYLES.get(text, ""))


def write(shown: Any, file: TextIO | None = None) -> None:
    """Write to standard output: fitted to a terminal, else as wide as it is and without colour."""
    out = sys.stdout if file is None else file
    if out.isatty():
        Console(file=out, highlight=False, emoji=False, markup=False).print(shown)
        return
    console = Console(
        width=_WIDE, color_system=None, highlight=False, emoji=False, markup=False, file=out
    )
    with console.capture() as captured:
        console.print(shown)
    out.write("\n".join(text.rstrip() for text in captured.get().splitlines()) + "\n")


def write_json(answer: Any) -> None:
    """Write an answer as JSON."""
    print(json.dumps(plain_data(answer), indent=2, ensure_ascii=False))


def plain_data(answer: Any) -> Any:
    """Answers, in whatever they are nested, as JSON data."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, dict):
        return {key: plain_data(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain_data(each) for each in answer]
    return answer
