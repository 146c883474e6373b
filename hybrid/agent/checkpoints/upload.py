"""Brings chunks to the store, several at once, each once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import tenacity

from hybrid.agent.checkpoints.errors import StoreUnavailable
from hybrid.agent.checkpoints.manifest import chunk_key
from hybrid.agent.checkpoints.objects import Objects

_TRIES = 4
_DEADLINE_S = 120.0
R = TypeVar("R")


def persistently(call: Callable[[], R]) -> R:
    """Repeat a call to the store that is safe to repeat while the store is unavailable."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(StoreUnavailable),
        stop=tenacity.stop_after_attempt(_TRIES) | tenacity.stop_after_delay(_DEADLINE_S),
        wait=tenacity.wait_random_exponential(multiplier=0.4, max=5.0),
        reraise=True,
    )
    return retrying(call)


class Uploader:
    """Puts chunks by content. At most ``workers`` + 2 chunks wait in memory.

    A chunk that is there already is not sent again, which is what makes an interrupted commit
    resumable, unless it is older than ``trusted_age_s``: then nobody may need it any more, and the
    collector could take it away before our manifest names it.
    """

    def __init__(
        self, objects: Objects, workers: int, trusted_age_s: float, clock: Callable[[], float]
    ) -> None:
        self._objects = objects
        self._trusted_age_s = trusted_age_s
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="checkpoint-upload")
        self._room = threading.Semaphore(workers + 2)
        self._futures: list[Future[int]] = []
        self._failed = threading.Event()

    def put(self, chunk: str, data: bytes) -> None:
        """Send a chunk in the background; raises what an earlier one met."""
        self._room.acquire()
        if self._failed.is_set():
            self._room.release()
            self.finish()
        self._futures.append(self._pool.submit(self._put, chunk, data))

    def _put(self, chunk: str, data: bytes) -> int:
        try:
            if self._failed.is_set():
                return 0
            return persistently(lambda: self._put_once(chunk_key(chunk), data))
        except BaseException:
            self._failed.set()
            raise
        finally:
            self._room.release()

    def _put_once(self, key: str, data: bytes) -> int:
        there = self._objects.info(key)
        if (
            there is not None
            and there.size_bytes == len(data)
            and self._is_fresh(there.modified_at)
        ):
            return 0
        self._objects.put(key, data)
        return len(data)

    def _is_fresh(self, modified_at: float | None) -> bool:
        # The collector keeps chunks whose age it cannot see.
        return modified_at is None or self._clock() - modified_at < self._trusted_age_s

    def finish(self) -> tuple[int, int]:
        """Wait for all; chunks and bytes that were really sent. Raises the first error."""
        sent = [future.result() for future in self._futures]
        return sum(1 for size in sent if size), sum(sent)

    def close(self) -> None:
        """Let go of the threads; what has not begun is dropped."""
        self._failed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
