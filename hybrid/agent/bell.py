"""Wakes long polls and log readers of this process when something was written for them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict


class Bell:
    """Rung from any thread, awaited in event loops. A ring carries no data and is not kept: who
    waits has looked before and looks again after. Rings of other processes are not heard, so a
    wait must also have a limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = (
            defaultdict(set)
        )
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the server is going down: nobody should wait any more."""
        return self._closed

    def ring(self, *keys: str) -> None:
        """Wake whoever waits for one of ``keys``; without keys, everybody."""
        with self._lock:
            for key in keys or tuple(self._waiting):
                for loop, event in self._waiting.get(key, ()):
                    if not loop.is_closed():
                        loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let everybody go, now and from now on."""
        self._closed = True
        self.ring()

    def listen(self, key: str) -> Listening:
        """Start hearing ``key``; use as a context manager *before* looking at what may change."""
        return Listening(self, key)

    def _add(self, key: str, entry: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            self._waiting[key].add(entry)

    def _remove(self, key: str, entry: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            self._waiting[key].discard(entry)
            if not self._waiting[key]:
                del self._waiting[key]


class Listening:
    """One listener. Enter it in the event loop that will wait."""

    def __init__(self, bell: Bell, key: str) -> None:
        self._bell = bell
        self._key = key
        self._event = asyncio.Event()
        self._entry: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __enter__(self) -> Listening:
        self._entry = (asyncio.get_running_loop(), self._event)
        self._bell._add(self._key, self._entry)  # noqa: SLF001 - two halves of one thing
        return self

    def __exit__(self, *_: object) -> None:
        assert self._entry is not None
        self._bell._remove(self._key, self._entry)  # noqa: SLF001

    async def wait(self, limit_s: float) -> bool:
        """Whether it rang within ``limit_s``; at once when it rang since the last wait."""
        if self._bell.closed:
            return True
        try:
            await asyncio.wait_for(self._event.wait(), max(0.0, limit_s))
        except TimeoutError:
            return False
        self._event.clear()
        return True
