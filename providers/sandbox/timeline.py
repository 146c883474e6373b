"""Things that happen later: one thread that runs them when they are due."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Timeline:
    """Runs callables after a delay, in order of their due time, one at a time."""

    def __init__(self, name: str) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` once, ``delay_s`` from now; a closed timeline runs nothing more."""
        with self._changed:
            due_at = time.monotonic() + max(delay_s, 0.0)
            heapq.heappush(self._due, (due_at, next(self._order), action))
            self._changed.notify()

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish the action in progress and drop the others."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    wait_s = self._due[0][0] - time.monotonic() if self._due else None
                    if wait_s is not None and wait_s <= 0:
                        break
                    self._changed.wait(wait_s)
                if self._closed:
                    return
                _, _, action = heapq.heappop(self._due)
            try:
                action()
            except Exception:
                # one failed event must not end the cloud's time
                log.exception("an event of the sandbox cloud failed")
