"""Keeps the checkpoint store from growing for ever: forgets what ended jobs have left there, and
collects chunks that no checkpoint names any more.

One process of an installation does it: the one that leads the loop. Several installations may share
a store: what belongs to jobs that this one does not know is left alone, and so are its chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from hybrid.agent.checkpoints import CheckpointError, CheckpointStore, GcReport
from hybrid.domain.ids import JobId
from hybrid.ports.clock import Clock
from hybrid.ports.store import Store

log = structlog.get_logger(__name__)

FIRST_S = 600.0
EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass did: whose checkpoints it forgot, and what the collector removed."""

    forgotten: tuple[str, ...]
    collected: GcReport


@dataclass(slots=True)
class CheckpointKeeping:
    """Sweeps every hour. Checkpoints of a job that ended longer than ``kept_s`` ago go.

    ``open_store`` may raise ValueError, ImportError or CheckpointError: then nothing is done until
    next time."""

    store: Store
    clock: Clock
    open_store: Callable[[], CheckpointStore]
    kept_s: float
    leads: Callable[[], bool]
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _said: str = ""

    def start(self) -> None:
        """Begin, in the background."""
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more. A call that is under way is left behind: it is safe to be cut off."""
        self._stopping.set()

    def _run(self) -> None:
        wait_s = FIRST_S
        while not self._stopping.wait(wait_s):
            wait_s = EVERY_S
            if self.leads():
                self.try_to_sweep()

    def try_to_sweep(self) -> Sweep | None:
        """One pass; None, and a line in the log, when the store cannot be used from here."""
        try:
            done = self.sweep()
        except (ValueError, ImportError, CheckpointError, OSError) as error:
            words = f"{type(error).__name__}: {error}"
            if words != self._said:
                log.warning("checkpoints cannot be tidied up from here", why=words)
            self._said = words
            return None
        self._said = ""
        if done.forgotten or done.collected.chunks_removed:
            log.info(
                "checkpoints tidied up",
                jobs=len(done.forgotten),
                chunks=done.collected.chunks_removed,
                bytes=done.collected.bytes_removed,
            )
        return done

    def sweep(self) -> Sweep:
        """One pass."""
        checkpoints = self.open_store()
        forgotten = []
        for job_id in checkpoints.job_ids():
            job = self.store.job(JobId(job_id))
            if job is None or job.ended_at is None:
                continue
            if self.clock.now() - job.ended_at >= self.kept_s:
                checkpoints.forget(job_id)
                forgotten.append(job_id)
        return Sweep(tuple(forgotten), checkpoints.gc())
