"""Gives each port call a thread and a deadline.

A call that does not answer in time is *unknown*, not failed. Its thread cannot be stopped, so its
name stays taken until it ends: the same call is never under way twice.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a call returned."""

    value: T


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised."""

    error: Exception


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The call did not end within its deadline, or one of its name is still under way."""

    waited_s: float


class Calls:
    """Runs named calls side by side, each under a deadline."""

    def __init__(self, workers: int, name: str) -> None:
        self._pool = _Daemons(workers, name)
        self._lock = threading.Lock()
        self._under_way: dict[str, float] = {}

    def run(
        self, calls: Mapping[str, Callable[[], T]], *, deadline_s: float
    ) -> dict[str, Answer[T] | Failure | NoAnswer]:
        """The outcome of every call by name, once all have ended or the deadline has passed."""
        begun = time.monotonic()
        futures: dict[str, Future[T]] = {}
        outcomes: dict[str, Answer[T] | Failure | NoAnswer] = {}
        for name, call in calls.items():
            with self._lock:
                since = self._under_way.get(name)
                if since is not None:
                    outcomes[name] = NoAnswer(begun - since)
                    continue
                self._under_way[name] = begun
            futures[name] = self._pool.submit(self._call, name, call)
        wait(futures.values(), timeout=deadline_s)
        waited_s = time.monotonic() - begun
        for name, future in futures.items():
            outcomes[name] = _outcome(future) if future.done() else NoAnswer(waited_s)
        return outcomes

    def close(self) -> None:
        """Start nothing more; what is under way ends by itself."""
        self._pool.close()

    def _call(self, name: str, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            with self._lock:
                self._under_way.pop(name, None)


class _Daemons:
    """A pool whose threads nobody waits for: the interpreter joins those of a ThreadPoolExecutor
    when it ends, so that a call that hangs would keep a server from ending."""

    def __init__(self, workers: int, name: str) -> None:
        self._workers, self._name = workers, name
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._busy = 0
        self._closed = False

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """The future of a call; raises RuntimeError when the pool is closed."""
        future: Future[T] = Future()

        def work() -> None:
            if self._closed or not future.set_running_or_notify_cancel():
                future.cancel()
                return
            try:
                future.set_result(call(*args))
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)

        with self._lock:
            if self._closed:
                raise RuntimeError("closed: no call begins any more")
            self._busy += 1
            if self._busy > self._threads and self._threads < self._workers:
                self._threads += 1
                name = f"{self._name}_{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._waiting.put(work)
        return future

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._closed = True
            threads = self._threads
        for _ in range(threads):
            self._waiting.put(None)

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
            with self._lock:
                self._busy -= 1


def _outcome(future: Future[T]) -> Answer[T] | Failure:
    error = future.exception()
    if error is None:
        return Answer(future.result())
    if isinstance(error, Exception):
        return Failure(error)
    raise error
