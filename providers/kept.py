"""A document that is fetched rarely: kept in memory and on disk with its age, renewed in the
background.

Price lists are megabytes behind slow interfaces, and change once in a while. Who asks gets what is
there at once, with the instant it was fetched; when it is old, one thread fetches it anew, and a
spread keeps the servers of an installation from asking in step.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from hybrid.ports.errors import PortError

log = structlog.get_logger(__name__)

SPREAD: Final = 0.1
"""A document is renewed up to this share of its life early."""
AFTER_FAILURE_S: Final = 300.0


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/hybrid``, or ``~/.cache/hybrid``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hybrid"


@dataclass(frozen=True, slots=True)
class Kept:
    """A document and when it was fetched."""

    document: Mapping[str, Any]
    at: float


class Keeper:
    """Keeps one document. Safe to use from several threads."""

    def __init__(
        self,
        path: Path,
        fetch: Callable[[], Mapping[str, Any]],
        *,
        lasts_s: float,
        now: Callable[[], float] = time.time,
        spread: Callable[[], float] = random.random,
    ) -> None:
        """``fetch`` may raise PortError: the older document stands then."""
        self._path, self._fetch, self._now = path, fetch, now
        self._lasts_s = lasts_s * (1.0 - SPREAD * spread())
        self._lock = threading.Lock()
        self._kept = _read(path)
        self._not_before = 0.0
        self._fetching: threading.Thread | None = None

    def get(
        self, wait_s: float, will_do: Callable[[Mapping[str, Any]], bool] = lambda _document: True
    ) -> Kept | None:
        """What is there. Where there is nothing yet, or what ``will_do`` says will not do, waits up
        to ``wait_s`` for a fetch."""
        now = self._now()
        with self._lock:
            kept, running = self._kept, self._fetching
            lacking = kept is None or not will_do(kept.document)
            fresh = kept is not None and not lacking and 0 <= now - kept.at < self._lasts_s
            if not fresh and running is None and now >= self._not_before:
                running = self._fetching = threading.Thread(
                    target=self._renew, name=f"fetch-{self._path.stem}", daemon=True
                )
                running.start()
        if lacking and running is not None:
            running.join(wait_s)
            with self._lock:
                kept = self._kept
        return kept

    def is_stale(self, kept: Kept) -> bool:
        """Whether it has outlived its life: it could not be fetched anew."""
        return self._now() - kept.at > self._lasts_s

    def settle(self, wait_s: float) -> None:
        """Wait for a fetch that is under way."""
        with self._lock:
            running = self._fetching
        if running is not None:
            running.join(wait_s)

    def _renew(self) -> None:
        now = self._now()
        try:
            document = self._fetch()
        except (PortError, LookupError, TypeError, ValueError) as error:
            # a list that cannot be read is as good as none: the older one stands
            log.warning("prices could not be fetched", kept=self._path.name, error=str(error))
            with self._lock:
                self._not_before, self._fetching = now + AFTER_FAILURE_S, None
            return
        with self._lock:
            self._kept, self._fetching = Kept(document, now), None
        _write(self._path, Kept(document, now))


def _read(path: Path) -> Kept | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Kept(dict(stored["document"]), float(stored["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        # a cache that cannot be read is no cache
        return None


def _write(path: Path, kept: Kept) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"at": kept.at, "document": dict(kept.document)})
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        log.warning("prices could not be kept on disk", path=str(path), error=str(error))
