"""The two leases of a node: of its runs, and of the machine itself.

Both are counted on CLOCK_BOOTTIME from the *sending* of the request whose answer granted them, so
the node's count can only end before the server's. No clock step and no suspend moves them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

from hybrid.agent.guardian import boottime_s


class RunLease:
    """Until when runs may go on without the server being heard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._length_s = 0.0
        self._since_s = float("inf")

    def granted(self, sent_boottime_s: float, length_s: float) -> float:
        """A heartbeat was acknowledged; the end of the lease now."""
        with self._lock:
            self._length_s = length_s
            if boottime_s() >= self._until_s:
                self._since_s = sent_boottime_s
            self._until_s = max(self._until_s, sent_boottime_s + length_s)
            return self._until_s

    @property
    def until_boottime_s(self) -> float:
        """When it ends; 0 before the first acknowledged heartbeat."""
        with self._lock:
            return self._until_s

    @property
    def length_s(self) -> float:
        """For how long the last heartbeat was good."""
        with self._lock:
            return self._length_s

    @property
    def lasts(self) -> bool:
        """Whether it has not ended."""
        return boottime_s() < self.until_boottime_s

    def covers(self, confirmed_boottime_s: float) -> bool:
        """Whether a run whose order was confirmed by a request sent at that time may begin now.

        Not if the lease lapsed in between: the server may have given the run up meanwhile, and
        has to say again that it stands.
        """
        with self._lock:
            return boottime_s() < self._until_s and confirmed_boottime_s >= self._since_s


class ClaimLease:
    """Until when a burst machine is paid for, and the file in which the watchdog finds that.

    The file holds one integer: CLOCK_BOOTTIME seconds at which the machine must have ended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._until_s: float | None = None
        self._written: int | None = None

    def recall(self) -> None:
        """Take over what an earlier agent of this boot wrote; whoever calls knows that the boot
        is the same."""
        with contextlib.suppress(OSError, ValueError):
            until_s = int(self._path.read_text(encoding="ascii").strip())
            with self._lock:
                self._until_s, self._written = float(until_s), until_s

    def granted(self, sent_boottime_s: float, remaining_s: float) -> None:
        """The server said for how long the machine is paid; raises OSError when the watchdog
        cannot be told (it then goes by what it was told before, which is earlier)."""
        with self._lock:
            self._until_s = sent_boottime_s + remaining_s
            whole = int(self._until_s)
            # The remaining time is a float that trembles: a second is enough.
            if self._written is not None and abs(whole - self._written) <= 1:
                return
            self._write(whole)
            self._written = whole

    def _write(self, until_s: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=".lease.", dir=self._path.parent)
        try:
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(f"{until_s}\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    @property
    def remaining_s(self) -> float | None:
        """For how much longer; None when nobody has said."""
        with self._lock:
            return None if self._until_s is None else self._until_s - boottime_s()
