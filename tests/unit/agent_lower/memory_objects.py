"""A store in memory that can be told to misbehave, with a clock of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from hybrid.agent.checkpoints.errors import StoreUnavailable
from hybrid.agent.checkpoints.objects import ObjectInfo, ObjectMissing


class MemoryObjects:
    """Objects by key. ``faults`` maps (operation, number of the call from 1) to an error that is
    raised instead; with ``execute_then_fail`` the call takes effect and its answer is lost. What
    ``shows`` is false of is left out of listings."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.data: dict[str, tuple[bytes, float]] = {}
        self.calls: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], Exception | None] = lambda operation, key: None
        self.shows: Callable[[str], bool] = lambda key: True
        self.execute_then_fail = False
        self.tells_age = True
        self._lock = threading.RLock()

    def _called(self, operation: str, key: str) -> Exception | None:
        with self._lock:
            self.calls.append((operation, key))
            return self.fail(operation, key)

    def count(self, operation: str, prefix: str = "") -> int:
        return sum(1 for op, key in self.calls if op == operation and key.startswith(prefix))

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(key for key in self.data if key.startswith(prefix))

    def put(self, key: str, data: bytes) -> None:
        error = self._called("put", key)
        if error is None or self.execute_then_fail:
            self.data[key] = (data, self.now)
        if error is not None:
            raise error

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if (error := self._called("get", key)) is not None:
            raise error
        if key not in self.data:
            raise ObjectMissing(key)
        return self.data[key][0][slice(start, end)]

    def info(self, key: str) -> ObjectInfo | None:
        if (error := self._called("info", key)) is not None:
            raise error
        found = self.data.get(key)
        if found is None:
            return None
        return ObjectInfo(key, len(found[0]), found[1] if self.tells_age else None)

    def list(self, prefix: str) -> list[ObjectInfo]:
        if (error := self._called("list", prefix)) is not None:
            raise error
        return [
            ObjectInfo(key, len(data), at if self.tells_age else None)
            for key, (data, at) in sorted(self.data.items())
            if key.startswith(f"{prefix}/") and self.shows(key)
        ]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            if (error := self._called("delete", key)) is not None:
                raise error
            self.data.pop(key, None)


def times(count: int, operation: str, prefix: str = "") -> Callable[[str, str], Exception | None]:
    """Fail the first ``count`` calls of an operation on keys with a prefix."""
    left = [count]

    def fault(called: str, key: str) -> Exception | None:
        if called == operation and key.startswith(prefix) and left[0] > 0:
            left[0] -= 1
            return StoreUnavailable("told to fail")
        return None

    return fault
