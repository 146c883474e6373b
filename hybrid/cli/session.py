"""What a command that speaks to a server has: a client, and a way to show what it got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.cli.exits import CliError, Exit
from hybrid.cli.finding import Place, find

if TYPE_CHECKING:
    from hybrid.client import HybridClient


class Output(StrEnum):
    """How a command writes what it has to say."""

    TABLE = "table"
    JSON = "json"


StateDirOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="HYBRID_STATE_DIR",
        metavar="DIR",
        help="Where a server keeps its things. Default: ~/.local/share/hybrid",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="How to write the answer.", show_default=True)
]


@dataclass
class Connection:
    """Where to ask. Nothing is looked for before it is needed."""

    server: str | None
    token: str | None
    state_dir: Path | None
    ca_file: Path | None

    @cached_property
    def place(self) -> Place:
        """The server and the token; CliError."""
        return find(self.server, self.token, self.state_dir)

    @cached_property
    def client(self) -> HybridClient:
        """A client of the server."""
        from hybrid.client import HybridClient

        place = self.place
        try:
            return HybridClient(place.url, place.token, ca_file=self.ca_file)
        except OSError as problem:
            said = f"--ca {self.ca_file} cannot be used: {problem.strerror or problem}"
            raise CliError(Exit.USAGE, said) from problem

    def close(self) -> None:
        """Drop the connections that were made."""
        if "client" in vars(self):
            self.client.close()


@dataclass
class Session(Connection):
    """A connection, and how to write."""

    output: Output

    def show(self, answer: Any, table: Callable[[], Any]) -> None:
        """Write an answer of the server: as it came, or as ``table`` makes it readable."""
        from hybrid.cli.tables import write, write_json

        if self.output is Output.JSON:
            write_json(answer)
        else:
            write(table())

    def say(self, answer: Any, text: str) -> None:
        """The same for one line."""
        from hybrid.cli.tables import write_json

        if self.output is Output.JSON:
            write_json(answer)
        else:
            print(text)


ServerOption = Annotated[
    str | None,
    typer.Option("--server", envvar="HYBRID_SERVER", metavar="URL", help="The server's URL."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="HYBRID_TOKEN",
        metavar="TOKEN",
        help="Your token; better in the environment, where no list of processes shows it.",
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", envvar="HYBRID_CA", metavar="FILE", help="Whom to trust for TLS."),
]


def connection_of(
    server: ServerOption = None,
    token: TokenOption = None,
    state_dir: StateDirOption = None,
    ca_file: CaOption = None,
) -> Connection:
    """Options of commands that speak to a server."""
    return Connection(server, token, state_dir, ca_file)


def session_of(
    server: ServerOption = None,
    token: TokenOption = None,
    state_dir: StateDirOption = None,
    ca_file: CaOption = None,
    output: OutputOption = Output.TABLE,
) -> Session:
    """Options of commands that speak to a server and show what it says."""
    return Session(server, token, state_dir, ca_file, output)
