"""A group of commands that imports a command only when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

HELP_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command is, and its line in the list of commands."""

    module: str
    help: str


def new_app(**settings: Any) -> typer.Typer:
    """A Typer application as all of ours are: plain help, which needs no import, and errors in
    our own words."""
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
        **settings,
    )


class LazyGroup(TyperGroup):
    """Lists commands from a table, in its order and under its headings."""

    sections: Mapping[str, Mapping[str, Lazy]] = {}

    def _lazy(self) -> dict[str, Lazy]:
        return {name: lazy for section in self.sections.values() for name, lazy in section.items()}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the base class's signature
        """All names."""
        return list(self._lazy())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; a name that is nearly one is told which."""
        lazy = self._lazy().get(cmd_name)
        if lazy is None:
            near = get_close_matches(cmd_name, self._lazy(), n=1)
            if near:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
            return None
        command = typer.main.get_command(import_module(lazy.module).app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The list of commands in the help, without importing any."""
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.help) for name, lazy in section.items()])
