"""What EC2 says of machines through EventBridge and a queue, beside what each hears by itself.

A rule of EventBridge (terraform/modules/aws-burst-pool makes one) puts two kinds of event into an
SQS queue: "EC2 Spot Instance Interruption Warning" and "EC2 Instance Rebalance Recommendation"
(Amazon EC2 user guide, "Spot Instance interruption notices" and "EC2 instance rebalance
recommendations"). A message is deleted once what it says is in the store; until then SQS gives it
again. The events are those of the whole account in the region: most concern machines that are not
ours, and are dropped.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from hybrid.domain.ids import MachineId
from hybrid.ports.capacity import Notice, NoticeKind
from hybrid.ports.errors import PortError
from providers.aws.errors import Scopes, translated

log = structlog.get_logger(__name__)

INTERRUPTION: Final = "EC2 Spot Instance Interruption Warning"
REBALANCE: Final = "EC2 Instance Rebalance Recommendation"
NOTICE_S: Final = 120.0
"""Between EC2's warning and the end of the machine; the event does not tell the end itself."""
STALE_S: Final = 900.0
"""A warning so old has either come true, which listings tell, or come to nothing."""

WAIT_S: Final = 10
"""One long poll."""
HIDDEN_S: Final = 30
"""For so long SQS gives a message that was received to nobody else: less than a warning's two
minutes, so that another server still hears in time of what one that died had received."""
BATCH: Final = 10
MOST_OPEN: Final = 1_000
"""Messages received and not yet recorded; more are left in the queue."""
UNASKED_S: Final = 60.0
"""Nobody listens to a server that no longer leads: it leaves the queue to the one that does."""
LONGEST_PAUSE_S: Final = 60.0


def read_event(body: str, now: float) -> Notice | None:
    """The notice in a message; None for an event of another kind, or one too old to matter.

    Raises ValueError for what is no such event.
    """
    try:
        event = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(event, dict):
        raise ValueError("not an event")
    kind = event.get("detail-type")
    if event.get("source") != "aws.ec2" or kind not in (INTERRUPTION, REBALANCE):
        return None
    detail = event.get("detail")
    machine = detail.get("instance-id") if isinstance(detail, dict) else None
    if not isinstance(machine, str) or not machine:
        raise ValueError("an event about no instance")
    said_at = min(_instant(event.get("time")), now)  # a clock ahead of ours makes no time
    if now - said_at > STALE_S:
        return None
    if kind == REBALANCE:
        return Notice(machine_id=MachineId(machine), kind=NoticeKind.REBALANCE, at=said_at)
    at = said_at + NOTICE_S
    return Notice(machine_id=MachineId(machine), kind=NoticeKind.INTERRUPTION, at=at)


def _instant(text: object) -> float:
    if not isinstance(text, str):
        raise ValueError("an event without a time")
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class _Letter:
    notice: Notice
    handle: str


class NoticeQueue:
    """Reads one queue in a thread of its own while somebody asks. Safe to use from many threads."""

    def __init__(self, sqs: Any, url: str, *, scopes: Scopes, now: Callable[[], float]) -> None:
        self._sqs, self._url, self._scopes, self._now = sqs, url, scopes, now
        self._lock = threading.Lock()
        self._open: dict[str, _Letter] = {}
        self._done: list[str] = []
        self._asked_s = float("-inf")
        self._reader: threading.Thread | None = None
        self._ending = threading.Event()

    def notices(self) -> tuple[Notice, ...]:
        """What was received and is not yet recorded; asking keeps the reading going."""
        with self._lock:
            self._asked_s = time.monotonic()
            dead = self._reader is None or not self._reader.is_alive()
            if dead and not self._ending.is_set():
                self._reader = threading.Thread(target=self._read, name="notices", daemon=True)
                self._reader.start()
            return tuple(letter.notice for letter in self._open.values())

    def recorded(self, notices: Sequence[Notice]) -> None:
        """The messages that say this are deleted before the next poll."""
        over = set(notices)
        with self._lock:
            for id_, letter in list(self._open.items()):
                if letter.notice in over:
                    del self._open[id_]
                    self._done.append(letter.handle)

    def close(self) -> None:
        """Read no more; what was not recorded comes again to whoever reads next."""
        self._ending.set()

    # --- the thread -------------------------------------------------------------------------------

    def _read(self) -> None:
        failures = 0
        while self._wanted():
            try:
                with translated(self._scopes):
                    self._delete()
                    full = self._receive()
            except PortError as error:
                failures += 1
                if failures == 1 and not self._ending.is_set():
                    log.warning("the queue of notices cannot be read", error=str(error))
                # ever more rarely, and the servers of a region not in step
                pause_s = min(LONGEST_PAUSE_S, 2.0**failures) * random.uniform(0.5, 1.0)  # noqa: S311
            else:
                if failures:
                    log.info("the queue of notices can be read again")
                failures, pause_s = 0, 1.0 if full else 0.0
            self._ending.wait(pause_s)

    def _wanted(self) -> bool:
        with self._lock:
            unasked_s = time.monotonic() - self._asked_s
            if self._ending.is_set() or unasked_s > UNASKED_S:
                self._reader = None
                self._open.clear()
                return False
            return True

    def _receive(self) -> bool:
        """One long poll; True when too much waits to be recorded for another."""
        with self._lock:
            if len(self._open) > MOST_OPEN - BATCH:
                return True
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=WAIT_S,
            VisibilityTimeout=HIDDEN_S,
        )
        for message in answer.get("Messages", ()):
            self._take(message)
        return False

    def _take(self, message: dict[str, Any]) -> None:
        id_, handle = str(message["MessageId"]), str(message["ReceiptHandle"])
        try:
            notice = read_event(str(message.get("Body", "")), self._now())
        except ValueError as error:
            log.warning("a notice that cannot be read is dropped", message=id_, error=str(error))
            notice = None
        with self._lock:
            if notice is None:
                self._done.append(handle)
            else:
                # a message that comes again brings the handle by which it can be deleted now
                self._open[id_] = _Letter(notice, handle)

    def _delete(self) -> None:
        with self._lock:
            handles, self._done = self._done[:BATCH], self._done[BATCH:]
        if not handles:
            return
        # one that is not deleted comes again, and is recorded already
        self._sqs.delete_message_batch(
            QueueUrl=self._url,
            Entries=[{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)],
        )
