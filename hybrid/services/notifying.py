"""Events brought to webhooks: signed, in order, at least once, each with an id of its own.

One process of an installation does it: the one that leads the loop. How far it has come is kept, so
that its successor goes on there; what was delivered and not yet noted down is delivered again under
the same id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

import httpx
import structlog
import tenacity

from hybrid.domain.event import Event
from hybrid.ports.clock import Clock
from hybrid.ports.cursors import Cursors
from hybrid.ports.store import Store
from hybrid.services.happenings import Happenings
from policies.sections import Webhook

log = structlog.get_logger(__name__)

PAGE = 200
PAUSE_S = 2.0
TRIES = 4
DEADLINE_S = 60.0
BACK_OFF_S = (15.0, 60.0, 300.0)
"""After the first, second and every further delivery in a row that failed."""
GIVE_UP_S = 86_400.0
"""An event older than this is not brought any more to who has not been there all the time."""

SIGNATURE, TIMESTAMP, DELIVERY = (
    "X-Hybrid-Signature",
    "X-Hybrid-Timestamp",
    "X-Hybrid-Delivery",
)


class LogStore(Store, Cursors, Protocol):
    """The event log, and how far its readers have come."""


class NotDelivered(Exception):
    """Who was to be told has not taken it; it is tried again later."""


@dataclass(slots=True)
class _Standing:
    """How it stands with one webhook."""

    failures: int = 0
    not_before: float = 0.0
    last_error: str = ""


@dataclass(slots=True)
class Notifier:
    """Brings events to the webhooks of the policy in force. ``leads`` says whether this process is
    the one that does; ``environ`` has the secrets."""

    store: LogStore
    clock: Clock
    installation: str
    webhooks: Callable[[], tuple[Webhook, ...]]
    leads: Callable[[], bool]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    wait: tenacity.wait.wait_base = field(
        default_factory=lambda: tenacity.wait_random_exponential(multiplier=0.5, max=10.0)
    )
    _standing: dict[str, _Standing] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the delivery under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def once(self) -> int:
        """Bring what is new to every webhook; how many deliveries were made."""
        if not self.leads():
            return 0
        return sum(self._serve(webhook) for webhook in self.webhooks())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.once()
            except Exception:
                log.exception("webhooks could not be looked after")
            self._stop.wait(PAUSE_S)

    def _serve(self, webhook: Webhook) -> int:
        standing = self._standing.setdefault(webhook.name, _Standing())
        now = self.clock.now()
        if now < standing.not_before:
            return 0
        reader = f"webhook:{webhook.name}"
        cursor = self.store.cursor(reader)
        if cursor is None:
            # a new webhook is told of what happens from now on
            self.store.move_cursor(reader, Happenings(self.store).last())
            return 0
        made = 0
        for seq, event in self.store.events(after=cursor, limit=PAGE):
            if self._stop.is_set():
                break
            if event.kind in webhook.events and now - event.at < GIVE_UP_S:
                try:
                    self._deliver(webhook, seq, event)
                except NotDelivered as problem:
                    self._failed(webhook, standing, str(problem))
                    return made
                made += 1
                standing.failures, standing.last_error = 0, ""
            self.store.move_cursor(reader, seq)
        return made

    def _failed(self, webhook: Webhook, standing: _Standing, words: str) -> None:
        pause = BACK_OFF_S[min(standing.failures, len(BACK_OFF_S) - 1)]
        standing.failures += 1
        standing.not_before = self.clock.now() + pause
        standing.last_error = words
        log.warning("webhook not delivered", webhook=webhook.name, cause=words, again_in_s=pause)

    def _deliver(self, webhook: Webhook, seq: int, event: Event) -> None:
        secret = self.environ.get(webhook.secret_env, "")
        if not secret:
            raise NotDelivered(f"the server's environment has no {webhook.secret_env}")
        delivery = f"{self.installation}-{seq}"
        body = json.dumps(body_of(delivery, seq, event), ensure_ascii=False).encode()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(NotDelivered),
            stop=tenacity.stop_after_attempt(TRIES) | tenacity.stop_after_delay(DEADLINE_S),
            wait=self.wait,
            sleep=self._sleep,
            reraise=True,
        )
        retrying(self._post, webhook, secret, delivery, body)

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise NotDelivered("this server is stopping")

    def _post(self, webhook: Webhook, secret: str, delivery: str, body: bytes) -> None:
        timestamp = str(int(self.clock.now()))
        headers = {
            "Content-Type": "application/json",
            DELIVERY: delivery,
            TIMESTAMP: timestamp,
            SIGNATURE: signature(secret, timestamp, body),
        }
        try:
            answer = httpx.post(webhook.url, content=body, headers=headers, timeout=webhook.timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise NotDelivered(f"{type(problem).__name__}: {problem}") from problem
        if not answer.is_success:
            raise NotDelivered(f"answered {answer.status_code}")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """``sha256=`` and the HMAC-SHA256 of ``TIMESTAMP.BODY`` in hexadecimal: what a receiver works
    out for itself, and compares in constant time."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def body_of(delivery: str, seq: int, event: Event) -> dict[str, object]:
    """What is sent: the event as ``GET /v1/events`` has it, and the delivery's id."""
    return {
        "delivery": delivery,
        "seq": seq,
        "at": datetime.fromtimestamp(event.at, UTC).isoformat(),
        "kind": event.kind,
        "subject": event.subject,
        "what": event.what,
        "words": event.words,
        "job_id": event.job_id,
        "actor": event.actor,
    }
