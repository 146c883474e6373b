"""Brings what runs print to the server, in order, at least once."""

from __future__ import annotations

import threading
from pathlib import Path

import structlog

from hybrid.agent.guardian import log_size, read_log
from hybrid.agent.transport import ServerClient, ServerRefused

_log = structlog.get_logger(__name__)

CHUNK_BYTES = 256 << 10


class LogShipper:
    """The output of one rank. ``guard`` is the guardian's directory."""

    def __init__(self, client: ServerClient, guard: Path, run_id: str, rank: int) -> None:
        self._client = client
        self._guard = guard
        self._run_id = run_id
        self._rank = rank
        self._lock = threading.Lock()
        self._offset: int | None = None
        self._refused = False

    def ship(self, *, pieces: int = 16) -> bool:
        """Send up to ``pieces`` chunks; whether the server has everything now (or wants nothing).

        Raises ServerUnreachable.
        """
        with self._lock:
            if self._refused:
                return True
            return any(not self._ship_one() for _ in range(pieces))

    def _ship_one(self) -> bool:
        """Send one chunk; False when there was none to send."""
        if log_size(self._guard) == 0:
            return False
        try:
            if self._offset is None:
                # Whatever an agent before this one sent need not be sent again.
                self._offset = self._client.send_log(self._run_id, self._rank, 0, b"", gap=False)
            chunk = read_log(self._guard, self._offset, CHUNK_BYTES)
            if not chunk.data:
                return False
            self._offset = self._client.send_log(
                self._run_id,
                self._rank,
                chunk.offset,
                chunk.data,
                gap=chunk.offset > self._offset,
            )
        except ServerRefused as refusal:
            # The run is none of this node's any more: nobody waits for its output.
            _log.info("output not wanted", run=self._run_id, code=refusal.code)
            self._refused = True
            return False
        return True
