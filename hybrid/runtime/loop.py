"""Exactly one process runs the loop: who holds the store's lease. The others stand by."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import structlog

from hybrid.domain.snapshot import Snapshot
from hybrid.ports.clock import Clock
from hybrid.ports.store import EpochPassed, LoopLease, Store
from hybrid.runtime.pace import Pace
from hybrid.runtime.tick import Tick, TickReport

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStatus:
    """How the loop stands, for health checks. ``failing`` counts ticks failed in a row."""

    leads: bool
    epoch: int
    last_tick_at: float | None
    last_tick_s: float
    failing: int
    alive: bool


class Loop:
    """Wakes on a timer or a poke and runs a tick while it holds the lease.

    The poke carries no data: what is to be done stands in rows.
    """

    def __init__(self, store: Store, tick: Tick, clock: Clock, pace: Pace, *, holder: str) -> None:
        self._store, self._tick, self._clock, self._pace = store, tick, clock, pace
        self._holder = holder
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lease: LoopLease | None = None
        self._failing = 0
        self.reports: deque[TickReport] = deque(maxlen=256)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Something has changed: do not wait for the timer."""
        self._wake.set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the tick under way and give the lease back."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._tick.observer.close()
        self._tick.actor.close()
        if self._thread is None or not self._thread.is_alive():
            self._store.release_loop(self._holder)

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that the last plan was made from."""
        return self._tick.snapshot

    @property
    def tick(self) -> Tick:
        """The loop's body: its last plan and observation."""
        return self._tick

    def status(self) -> LoopStatus:
        """How the loop stands."""
        last = self.reports[-1] if self.reports else None
        return LoopStatus(
            leads=self._lease is not None,
            epoch=self._lease.epoch if self._lease is not None else 0,
            last_tick_at=last.at if last else None,
            last_tick_s=last.seconds if last else 0.0,
            failing=self._failing,
            alive=self._thread is not None and self._thread.is_alive(),
        )

    def once(self) -> TickReport | None:
        """One tick if this process leads; None if it stands by."""
        lease = self._store.acquire_loop(
            self._holder, now=self._clock.now(), ttl_s=self._pace.loop_lease_s
        )
        if lease is None:
            self._lease = None
            return None
        if self._lease is None or self._lease.epoch != lease.epoch:
            # whatever was kept from an earlier reign may have been changed by another's
            self._tick.forget()
            log.info("leads the loop", epoch=lease.epoch)
        self._lease = lease
        report = self._tick.run(lease.epoch)
        self.reports.append(report)
        return report

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self._wake.clear()
            try:
                self.once()
                self._failing = 0
            except EpochPassed:
                self._lease = None
                log.warning("another process leads the loop now")
            except Exception:
                self._failing += 1
                self._tick.forget()
                log.exception("tick failed", in_a_row=self._failing)
            pause = self._pace.tick_s * min(8, 2 ** min(self._failing, 3))
            self._wake.wait(max(0.05, pause - (time.monotonic() - begun)))
            if not self._stop.is_set() and self._wake.is_set():
                self._stop.wait(0.05)  # pokes come in swarms: one tick for all of them
