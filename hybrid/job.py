"""Three functions for Python jobs: say how far you are, ask whether to stop, know where to save.

::

    from hybrid import job

    for step in range(start, steps):
        train_one_step()
        job.progress(step + 1, steps)
        if job.should_stop():
            save(job.checkpoint_dir() / "state.npz")   # write a .tmp file, then rename it
            sys.exit(job.EXIT_CHECKPOINTED)

Only the standard library is used, and everything works the same outside of ``hybrid``: progress
goes nowhere, ``should_stop`` obeys SIGTERM, and checkpoints go to ``./checkpoints``.

How to write a checkpoint so that it is never taken half: write each file under a name that ends
in ``.tmp`` and rename it when it is complete. Names ending in ``.tmp`` are never uploaded, and a
file that changes while it is read makes the upload start over.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

__all__ = ["EXIT_CHECKPOINTED", "checkpoint_dir", "progress", "should_stop"]

EXIT_CHECKPOINTED = 85
"""Exit with this code to say: my work is saved, run me again."""

_PROGRESS_EVERY_S = 0.5
_installed = False
_asked_to_stop = False  # not an Event: two signals in a row would meet its lock


class _Reporter:
    """The last progress, written now or, when it came too soon after another, later."""

    def __init__(self) -> None:
        self._written_s = float("-inf")
        self._waiting: tuple[int, int] | None = None

    def report(self, step: int, total: int) -> None:
        if self._waiting is None and self._written_s == float("-inf"):
            atexit.register(self.flush)
        self._waiting = (step, total)
        if time.monotonic() - self._written_s >= _PROGRESS_EVERY_S or step == total:
            self.flush()

    def flush(self) -> None:
        path = os.environ.get("HYBRID_PROGRESS_FILE")
        if self._waiting is None or not path:
            return
        step, total = self._waiting
        self._waiting = None
        self._written_s = time.monotonic()
        temporary = Path(f"{path}.{os.getpid()}.tmp")
        record = {"step": int(step), "total": int(total), "at": time.time()}
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(record), encoding="ascii")
            temporary.replace(path)


_reporter = _Reporter()


def progress(step: int, total: int = 0) -> None:
    """Report that ``step`` steps of ``total`` (0: unknown) are done. Cheap: call it every step.

    The report is written at most twice a second, and at once for the last step, when the job has
    been asked to stop, and at exit. A full disk costs the report, never the job.
    """
    _reporter.report(step, total)


def should_stop() -> bool:
    """Whether the job has been asked to stop: save now, then exit with ``EXIT_CHECKPOINTED``.

    The first call installs a handler for the stop signal ($HYBRID_STOP_SIGNAL, default SIGTERM);
    call it once, early and in the main thread. A handler that the program has set itself is
    called as well.
    """
    global _installed
    if not _installed and threading.current_thread() is threading.main_thread():
        _installed = True
        _install(os.environ.get("HYBRID_STOP_SIGNAL", "SIGTERM"))
    if not _asked_to_stop:
        return False
    _reporter.flush()  # the step that is about to be saved
    return True


def _install(name: str) -> None:
    signum = signal.Signals.__members__.get(name, signal.SIGTERM)
    before = signal.getsignal(signum)

    def handler(number: int, frame: FrameType | None) -> None:
        global _asked_to_stop
        _asked_to_stop = True
        # SIGINT's own default handler raises KeyboardInterrupt: it asked to die, not to save.
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)

    signal.signal(signum, handler)


def checkpoint_dir() -> Path:
    """The directory whose files are kept and given back to the next run of the job; it exists.

    What an earlier run saved is there already when $HYBRID_RESUME is 1.
    """
    directory = Path(os.environ.get("HYBRID_CHECKPOINT_DIR") or "checkpoints")
    directory.mkdir(parents=True, exist_ok=True)
    return directory
