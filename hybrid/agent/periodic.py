"""Commits a run's checkpoints: what the job saves while it runs, and the last of it at the end."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

import structlog
from pydantic import ValidationError

from hybrid.agent.checkpoints import (
    CheckpointError,
    CheckpointStore,
    SnapshotChanged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hybrid.agent.checkpoints.scan import Listing, scan
from hybrid.agent.config import AgentConfig
from hybrid.agent.guardian import RunStatus, boottime_s
from hybrid.agent.launch import read_progress
from hybrid.agent.protocol import RunDocument, WireCheckpoint
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.saving import Saver, step_in

_log = structlog.get_logger(__name__)

_QUIET_S = 0.5
_LOOK_S = 0.4
_RATE_GIB_PER_S = 0.1
_MOVING_TRIES = 3
_OPEN_AGAIN_S = 30.0
_FINAL_TRIES = 3
FINAL_DEADLINE_S = 900.0

SLOW_S = 60.0
"""A commit that takes longer is told of while it lasts: nobody should rely on its end."""

OTHERWISE_S = 600.0
"""How often a run saves that was placed before its interval was told."""


class CheckpointKeeper:
    """One rank's. Used by the run's thread; ``last``, ``problem`` and ``expected_s`` by all."""

    def __init__(
        self,
        folder: RunFolder,
        document: RunDocument,
        config: AgentConfig,
        changed: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._document = document
        self._changed = changed
        self._interval_s = document.checkpoint_interval_s or document.spec.checkpoint.interval_or(
            OTHERWISE_S
        )
        self._steps: deque[tuple[float, int]] = deque(maxlen=64)
        self._seen: Listing | None = None
        self._seen_since_s = 0.0
        self._committed: Listing | None = None
        self._tried_s = float("-inf")
        self._look_at_s = 0.0
        self._moving = 0
        self._problem = ""
        self._sending_since_s: float | None = None
        self.last = self._recalled()
        self._url = config.checkpoint_url or document.checkpoint_url
        self._saver: Saver | None = None
        self._open_again_s = float("-inf")

    def saver(self) -> Saver | None:
        """The way to the store, opened on first use (which may take a while); None without one,
        or while it cannot be opened: then ``problem`` says why, and it is tried again later."""
        if self._saver is not None or not self._url or boottime_s() < self._open_again_s:
            return self._saver
        try:
            store = CheckpointStore.open(self._url)
        except (ValueError, ImportError, CheckpointError, OSError) as error:
            self._open_again_s = boottime_s() + _OPEN_AGAIN_S
            self._problem = f"the checkpoint store cannot be opened: {error}"[:4096]
            _log.error("no checkpoint store", run=self._document.run_id, error=str(error))
            self._changed()
            return None
        self._saver = Saver(store, self._document, self._folder.path / "stamps.json")
        return self._saver

    def _recalled(self) -> WireCheckpoint | None:
        """What an agent before this one had committed of the run."""
        with contextlib.suppress(ValidationError):
            return WireCheckpoint.model_validate(self._folder.facts().get("checkpoint"))
        return None

    @property
    def problem(self) -> str:
        """Why what the job saves is not committed now, what is wrong up to a colon; empty while it
        is."""
        since_s = self._sending_since_s
        if not self._problem and since_s is not None and boottime_s() - since_s > SLOW_S:
            return f"the checkpoint store is slow: a save has taken more than {SLOW_S:g} s so far"
        return self._problem

    @property
    def expected_s(self) -> float:
        """How long the next commit may take: measured, else from the size that the job states."""
        if not self._document.spec.checkpoint.enabled:
            return 0.0
        if self.last is not None:
            return 1.0 + 1.5 * self.last.commit_s
        return min(300.0, 1.0 + self._document.spec.checkpoint.size / _RATE_GIB_PER_S)

    # --- while it runs ------------------------------------------------------------------------

    def save_if_due(self, status: RunStatus) -> None:
        """Commit what the job has saved since the last commit.

        A new save is taken as soon as the directory has held still for a moment, but not more
        often than twice in the job's own interval; one that never holds still is tried once in an
        interval.
        """
        now_s = boottime_s()
        if (
            not self._document.spec.checkpoint.enabled
            or status.started is None
            or now_s < self._look_at_s
            or self.saver() is None
        ):
            return
        progress = read_progress(self._folder.progress)
        if progress is not None:
            self._steps.append((progress.at, progress.step))
        listing = self._listing()
        # Looking costs a stat per file: directories of thousands are looked at less often.
        self._look_at_s = boottime_s() + max(_LOOK_S, 20 * (boottime_s() - now_s))
        if listing is None or not listing.files or listing == self._committed:
            return
        if listing != self._seen:
            self._seen, self._seen_since_s = listing, now_s
        quiet = now_s - self._seen_since_s >= _QUIET_S
        since_s = now_s - max(self._tried_s, status.started.started_boottime_s)
        if (quiet and since_s >= self._interval_s / 2) or since_s >= self._interval_s:
            self._tried_s = now_s
            self._commit(listing)

    def _listing(self) -> Listing | None:
        try:
            return scan(self._folder.checkpoint)
        except SnapshotChanged:
            return None
        except (CheckpointError, OSError) as error:
            self._met(error)
            return None

    # --- at the end ---------------------------------------------------------------------------

    def save_last(self, pause: Callable[[float], None], unwanted: Callable[[], bool]) -> None:
        """Commit what the ended run has left, unless that is committed already.

        A store that does not answer is asked again for up to :data:`FINAL_DEADLINE_S`; one that is
        full or read-only a few times. ``pause`` sleeps, and may raise when the agent ends.
        """
        if self.saver() is None:
            return
        listing = self._listing()
        if listing is None or not listing.files or listing == self._committed:
            return
        began_s = boottime_s()
        wait_s, refused = 0.5, 0
        while not unwanted():
            error = self._commit(listing)
            if error is None:
                return
            refused += not isinstance(error, StoreUnavailable)
            if refused >= _FINAL_TRIES or boottime_s() - began_s > FINAL_DEADLINE_S:
                return
            pause(wait_s)
            wait_s = min(15.0, wait_s * 2)

    # --- how ----------------------------------------------------------------------------------

    def _commit(self, listing: Listing) -> Exception | None:
        """Commit the directory; what stood in the way, if anything."""
        saver = self.saver()
        assert saver is not None
        self._sending_since_s = boottime_s()
        try:
            done = saver.commit(self._folder.checkpoint, self._step(listing))
        except SnapshotChanged as error:
            self._moving += 1
            self._seen = None
            if self._moving >= _MOVING_TRIES:
                self._met(error)
            return error
        except (CheckpointError, OSError) as error:
            self._met(error)
            return error
        finally:
            self._sending_since_s = None
        self._moving = 0
        self._committed = listing
        self._problem = ""
        if self.last is None or done.seq != self.last.seq:
            self.last = done
            _log.info(
                "checkpoint committed",
                run=self._document.run_id,
                seq=done.seq,
                step=done.step,
                seconds=round(done.commit_s, 3),
            )
            with contextlib.suppress(OSError):
                self._folder.note(checkpoint=done.model_dump(mode="json"))
        self._changed()
        return None

    def _step(self, listing: Listing) -> int | None:
        """The step in the directory: what the job wrote beside it, else the last one reported
        before its newest file was written."""
        written = step_in(self._folder.checkpoint)
        if written is not None:
            return written
        newest_at = max(stamp.mtime_ns for _, stamp in listing.files) / 1e9
        progress = read_progress(self._folder.progress)
        if progress is not None:
            self._steps.append((progress.at, progress.step))
        before = [step for at, step in self._steps if at <= newest_at]
        if before:
            return before[-1]
        return None if progress is None else progress.step

    def _met(self, error: Exception) -> None:
        words = f"{_PROBLEMS.get(type(error), 'the checkpoint was not committed')}: {error}"
        if words != self._problem:
            _log.warning("checkpoint not committed", run=self._document.run_id, why=words)
        self._problem = words[:4096]
        self._changed()


_PROBLEMS: dict[type[Exception], str] = {
    StoreFull: "the checkpoint store is full",
    StoreReadOnly: "the checkpoint store cannot be written to",
    StoreUnavailable: "the checkpoint store does not answer",
    SnapshotChanged: "the job never stops writing to its checkpoint",
}
