"""What processes of ours write to standard error while they work."""

from __future__ import annotations

import logging
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
    """Lines for people on a terminal, one JSON object a line elsewhere. Tracebacks never show the
    values of variables: there may be secrets among them."""
    import structlog
    import structlog.tracebacks

    number = logging.getLevelNamesMapping()[level.upper()]
    terminal = sys.stderr.isatty()
    without_locals = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    shown: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if terminal
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if terminal else [without_locals]),
            shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
