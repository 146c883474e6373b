"""How processes of the product write their logs: lines on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def log_to_stderr(*, level: str = "info", as_json: bool = False) -> None:
    """Write logs of this process to standard error, as lines for people or as JSON.

    Tracebacks come without the values of variables: these may be secrets.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        shared += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        shared.append(
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        # looked up for every logger: standard error may be another by then
        logger_factory=lambda *_names: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(
        stream=sys.stderr,
        level=max(LEVELS[level], logging.WARNING),
        format="%(asctime)s [%(levelname)s] %(name)s %(message)s",
    )
