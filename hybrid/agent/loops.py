"""The agent's threads: heartbeat, work, logs, and the watch over leases and notices."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import structlog

from hybrid.agent.config import AgentConfig, MachineKind
from hybrid.agent.guardian import boottime_s
from hybrid.agent.node import Node
from hybrid.agent.poweroff import power_off
from hybrid.agent.transport import ServerClient, ServerRefused, ServerUnreachable
from hybrid.agent.worker import RunWorker
from hybrid.domain.job import StopCause

_log = structlog.get_logger(__name__)

WORK_WAIT_S = 20.0
_LOG_EVERY_S = 0.5
_GUARD_EVERY_S = 0.25
_TOGETHER_S = 0.02
_UNHEARD_S = 10.0
_LAST_WORD_S = 3.0
_POWEROFF_AGAIN_S = 10.0
_REFUSED_S = 15.0
_NO_LEASE_S = 0.05
_CONFIRM_S = 1.0


class Backoff:
    """Pauses between failures: doubling, with jitter, back to the start after a success."""

    def __init__(self, first_s: float = 0.25, longest_s: float = 5.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._next_s = self._first_s

    def failed(self) -> float:
        """How long to wait now."""
        pause_s = self._next_s * random.uniform(0.7, 1.3)  # noqa: S311 - spreads load only
        self._next_s = min(self._longest_s, self._next_s * 2)
        return pause_s


class _Loop(threading.Thread):
    """Calls ``step`` until the agent ends; ``step`` returns how long to wait. Trouble with the
    server is waited out, and told once when it begins and once when it is over."""

    def __init__(self, name: str, node: Node, step: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)
        self._node = node
        self._step = step
        self._backoff = Backoff()
        self._trouble = ""

    def run(self) -> None:
        """Until the agent ends."""
        stopping = self._node.signals.stopping
        while not stopping.is_set():
            try:
                pause_s = self._step()
                self._backoff.succeeded()
                self._is_well()
            except ServerUnreachable as error:
                pause_s = self._backoff.failed()
                self._is_in_trouble("unreachable", str(error))
            except ServerRefused as error:
                pause_s = _REFUSED_S if error.status in (401, 403) else self._backoff.failed()
                self._is_in_trouble(error.code or str(error.status), error.words)
            except Exception:  # noqa: BLE001 - a loop that dies would leave the node mute
                pause_s = self._backoff.failed()
                _log.exception("loop failed", loop=self.name)
            if pause_s > 0:
                stopping.wait(pause_s)

    def _is_in_trouble(self, kind: str, words: str) -> None:
        if kind != self._trouble:
            self._trouble = kind
            _log.warning("no word from the server", loop=self.name, kind=kind, said=words)

    def _is_well(self) -> None:
        if self._trouble:
            self._trouble = ""
            _log.info("the server answers again", loop=self.name)


def heartbeat_loop(node: Node, config: AgentConfig) -> threading.Thread:
    """Speaks every few seconds, and at once when something has changed."""

    def step() -> float:
        node.signals.news.clear()
        node.heartbeat()
        pause_s = config.heartbeat if node.workers() else config.idle_heartbeat
        if node.signals.news.wait(pause_s):
            return _TOGETHER_S  # what changes at the same time goes together
        return 0.0

    return _Loop("heartbeat", node, step)


def work_loop(node: Node, client: ServerClient, *, wait_s: float = WORK_WAIT_S) -> threading.Thread:
    """Asks what to do and waits for the answer to change."""
    revision = -1

    def step() -> float:
        nonlocal revision
        if not node.run_lease.lasts:
            return _NO_LEASE_S  # an order could not begin: ask once the server has been heard
        sent_s = boottime_s()
        # Runs that have not begun need the order confirmed after any lapse of the lease.
        answer = client.work(revision, wait_s if node.all_begun else min(wait_s, _CONFIRM_S))
        stands = node.apply(answer, sent_s)
        revision = answer.revision if stands else -1
        return 0.0 if stands else 1.0

    return _Loop("work", node, step)


def log_loop(node: Node) -> threading.Thread:
    """Brings output to the server while it is being written."""

    def step() -> float:
        behind = False
        for worker in node.workers():
            if not worker.settled and not worker.dropped:
                behind = not worker.shipper.ship() or behind
        return 0.0 if behind else _LOG_EVERY_S

    return _Loop("logs", node, step)


def _stops_for(worker: RunWorker, cause: StopCause) -> bool:
    """Whether it stops already for this cause, or for a harder one."""
    return worker.stop_cause is not None and worker.stop_cause.hardness >= cause.hardness


class LeaseGuard(threading.Thread):
    """Sees to it that work is saved before the machine is taken, and that a burst machine ends
    when nobody pays for it any more, whatever the server does."""

    def __init__(
        self,
        node: Node,
        config: AgentConfig,
        *,
        end_machine: Callable[[AgentConfig], bool] = power_off,
    ) -> None:
        super().__init__(name="lease-guard", daemon=True)
        self._node = node
        self._config = config
        self._end_machine = end_machine
        self._settled_since_s: float | None = None
        self._asked_s = float("-inf")

    def run(self) -> None:
        """Until the agent ends."""
        while not self._node.signals.stopping.wait(_GUARD_EVERY_S):
            try:
                self._heed_notice()
                if self._config.machine is MachineKind.BURST:
                    self._heed_lease()
            except Exception:  # noqa: BLE001 - nobody else would end the machine in order
                _log.exception("lease guard failed")

    def _live(self) -> list[RunWorker]:
        return [worker for worker in self._node.workers() if not worker.settled]

    # --- the cloud takes the machine ----------------------------------------------------------

    def _heed_notice(self) -> None:
        """Stop runs that the server has not stopped by the time that saving them needs."""
        at = self._node.notice_at
        if at is None:
            return
        remaining_s = at - time.time()
        for worker in self._live():
            if _stops_for(worker, StopCause.INTERRUPTION):
                continue
            grace_s = worker.document.spec.stop.grace
            save_s = worker.keeper.expected_s + 1.0
            if remaining_s <= grace_s + save_s + 2.0:
                worker.stop(StopCause.INTERRUPTION, max(0.5, remaining_s - save_s))

    # --- nobody pays any more -----------------------------------------------------------------

    def _heed_lease(self) -> None:
        remaining_s = self._node.claim_lease.remaining_s
        if remaining_s is None:
            return
        tail_s = self._config.end_tail
        unheard = boottime_s() - self._node.heard_s > _UNHEARD_S
        live = self._live()
        needed_s = tail_s
        if unheard and live:
            # While the server is heard it stops runs itself, in better time than we could.
            needed_s += max(
                worker.document.spec.stop.grace + worker.keeper.expected_s for worker in live
            )
        if remaining_s > needed_s:
            self._settled_since_s = None
            self._node.reopen(StopCause.LEASE)
            return
        self._node.close(StopCause.LEASE)
        for worker in live:
            if not _stops_for(worker, StopCause.LEASE):
                save_s = worker.keeper.expected_s
                worker.stop(StopCause.LEASE, max(0.5, remaining_s - tail_s - save_s))
        self._end_when_settled(remaining_s, settled=not live)

    def _end_when_settled(self, remaining_s: float, *, settled: bool) -> None:
        now_s = boottime_s()
        if settled and self._settled_since_s is None:
            self._settled_since_s = now_s
            self._node.signals.news.set()
        said = settled and (
            not self._node.workers() or now_s - (self._settled_since_s or now_s) > _LAST_WORD_S
        )
        if not said and remaining_s > 1.0:
            return
        if now_s - self._asked_s > _POWEROFF_AGAIN_S:
            self._asked_s = now_s
            _log.warning("the lease is over: this machine ends", remaining_s=round(remaining_s, 1))
            self._end_machine(self._config)
