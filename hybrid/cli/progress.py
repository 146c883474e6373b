"""Progress bars on standard error, where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def transfer(what: str, total_bytes: int) -> Iterator[Callable[..., None]]:
    """Shows bytes as they travel; yields what to tell each piece's bytes to, and the total where
    that is learned on the way. Silent when standard error is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _count, _total=0: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total_bytes or None)

        def told(count: int, total: int = 0) -> None:
            if total:
                bar.update(task, total=total)
            bar.advance(task, count)

        yield told
