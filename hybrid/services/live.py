"""The live rows, held in memory and brought up to date by what changed since.

Questions such as *which nodes are there* are asked often and change seldom; the store answers
*what changed* at little cost whatever the length of the queue.
"""

from __future__ import annotations

import threading

from hybrid.ports.clock import Clock
from hybrid.ports.store import Store, World
from hybrid.reconcile.views import merged


class Live:
    """Everything live that is stored, as of the moment of asking."""

    def __init__(self, store: Store, clock: Clock):
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._world: World | None = None

    def world(self) -> World:
        """The live rows. Its mappings are never changed; a later call may return another World."""
        with self._lock:
            now = self._clock.now()
            held = self._world
            self._world = (
                self._store.load(now=now)
                if held is None
                else merged(held, self._store.load(now=now, since=held.revision))
            )
            return self._world
