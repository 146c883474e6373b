"""What processes of ours write to standard error while they work."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Level(StrEnum):
    """From what on something is written down."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LevelOption = Annotated[
    Level, typer.Option("--log-level", envvar="HYBRID_LOG_LEVEL", help="What to write to stderr.")
]


def log_to_stderr(level: Level) -> None:
    """Lines for people on a terminal, one JSON object a line elsewhere."""
    from hybrid.services import log_lines

    log_lines.log_to_stderr(level=str(level), as_json=not sys.stderr.isatty())
