"""The node: its runs, and the two conversations with the server about them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from hybrid.agent.config import AgentConfig
from hybrid.agent.guardian import boottime_s
from hybrid.agent.guardian.durable import append_line
from hybrid.agent.inventory import HostInventory
from hybrid.agent.leases import ClaimLease, RunLease
from hybrid.agent.protocol import (
    HeartbeatAnswer,
    HeartbeatRequest,
    WireOrder,
    WireRank,
    WireReading,
    WorkAnswer,
)
from hybrid.agent.remembered import Remembered
from hybrid.agent.run_folder import RunFolder, folders_in
from hybrid.agent.staging import Stage
from hybrid.agent.transport import ServerClient
from hybrid.agent.worker import RunWorker, WorkerTools
from hybrid.domain.job import StopCause
from hybrid.ports.gpus import GpuInventory

_log = structlog.get_logger(__name__)

Key = tuple[str, int]


@dataclass(slots=True)
class Signals:
    """What wakes whom. ``news`` asks for a heartbeat now."""

    news: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)


class Node:
    """Everything the node knows. All methods may be called from any thread."""

    def __init__(
        self,
        config: AgentConfig,
        client: ServerClient,
        inventory: HostInventory,
        gpus: GpuInventory,
        stage: Stage,
        signals: Signals,
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._gpus = gpus
        self._stage = stage
        self._runs = config.state_dir / "runs"
        self._spans = config.state_dir / "journal.jsonl"
        self._remembered = Remembered(config.state_dir / "remembered.jsonl")
        self._lock = threading.RLock()
        self._workers: dict[Key, RunWorker] = {}
        self._repeated: dict[Key, WireRank] = {}
        self._epoch = 0
        self._heard_s = float("-inf")
        self._closed: set[StopCause] = set()
        self.signals = signals
        self.run_lease = RunLease()
        self.claim_lease = ClaimLease(config.lease_file)
        self.notice_at: float | None = None
        self.rebalance_at: float | None = None

    # --- runs ---------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over the runs that an agent before this one left behind."""
        for folder in folders_in(self._runs):
            document = folder.document()
            if document is None:
                # It was being made when the agent died; nothing can have started in it.
                _log.info("half-made run removed", folder=str(folder.path))
                folder.remove()
                continue
            _log.info("run adopted", run=document.run_id, rank=document.rank)
            self._employ(RunWorker(folder, document, self._tools()))

    def _tools(self) -> WorkerTools:
        return WorkerTools(
            client=self._client,
            stage=self._stage,
            lease=self.run_lease,
            changed=self.signals.news.set,
            stopping=self.signals.stopping,
        )

    def _employ(self, worker: RunWorker) -> None:
        with self._lock:
            self._workers[worker.document.run_id, worker.document.rank] = worker
        worker.start()

    def workers(self) -> tuple[RunWorker, ...]:
        """Every run that is not forgotten yet."""
        with self._lock:
            return tuple(self._workers.values())

    def close(self, cause: StopCause) -> None:
        """Start nothing from now on: orders that come are answered as stopped for the cause."""
        with self._lock:
            self._closed.add(cause)
        self.signals.news.set()

    def reopen(self, cause: StopCause) -> None:
        """The cause does not hold any more."""
        with self._lock:
            self._closed.discard(cause)

    @property
    def heard_s(self) -> float:
        """CLOCK_BOOTTIME of the last acknowledged heartbeat."""
        return self._heard_s

    @property
    def all_begun(self) -> bool:
        """Whether no run waits for the server to confirm its order."""
        return all(worker.begun for worker in self.workers())

    # --- what it says -------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Say everything, and act on the answer. Raises ServerUnreachable, ServerRefused."""
        with self._lock:
            repeated = tuple(self._repeated.values())
        ranks = (*(worker.report() for worker in self.workers()), *repeated)
        beat = HeartbeatRequest(
            sent_boottime_s=boottime_s(),
            run_lease_s=self.run_lease.length_s,
            inventory=self._inventory.read(),
            ranks=ranks,
            telemetry=tuple(WireReading.of(reading) for reading in self._gpus.telemetry()),
            notice_at=self.notice_at,
            rebalance_at=self.rebalance_at,
            closing=StopCause.DRAIN in self._closed,
        )
        self._answered(self._client.heartbeat(beat), beat.sent_boottime_s)

    def _answered(self, answer: HeartbeatAnswer, sent_boottime_s: float) -> None:
        self._heard_s = boottime_s()
        until_s = self.run_lease.granted(sent_boottime_s, answer.run_lease_s)
        for worker in self.workers():
            worker.renew(until_s)
        self._paid(sent_boottime_s, answer.lease_remaining_s)
        self._forget(answer.acknowledged)

    def _paid(self, sent_boottime_s: float, remaining_s: float | None) -> None:
        if remaining_s is None:
            return
        try:
            self.claim_lease.granted(sent_boottime_s, remaining_s)
        except OSError as error:
            _log.error("the lease watchdog cannot be told", error=error.strerror)

    # --- what it is told ----------------------------------------------------------------------

    def apply(self, work: WorkAnswer, sent_boottime_s: float) -> bool:
        """Make the node's runs what the server says; False for the word of a former leader."""
        with self._lock:
            if work.epoch < self._epoch:
                _log.warning("stale orders ignored", epoch=work.epoch, known=self._epoch)
                return False
            self._epoch = work.epoch
        self._paid(sent_boottime_s, work.lease_remaining_s)
        for order in work.orders:
            self._obey(order, sent_boottime_s)
        ordered = {(order.run_id, order.rank) for order in work.orders}
        self._forget(work.acknowledged)
        with self._lock:
            for key in self._repeated.keys() - ordered:
                del self._repeated[key]
        for worker in self.workers():
            if (worker.document.run_id, worker.document.rank) not in ordered:
                self._drop(worker)
        return True

    def _obey(self, order: WireOrder, sent_boottime_s: float) -> None:
        key = (order.run_id, order.rank)
        with self._lock:
            worker = self._workers.get(key)
            if worker is None and not self._remembers(key):
                # one that lay too long may have been given up: the job may run elsewhere
                worker = self._begin(order) if order.begin else None
        if worker is None:
            return
        if order.stop is not None:
            worker.stop(order.stop.cause, order.stop.grace_s)
        worker.confirm(sent_boottime_s)

    def _remembers(self, key: Key) -> bool:
        """A run that has been here is never started again; its report is repeated instead."""
        report = self._remembered.report_of(*key)
        if report is None:
            return False
        if key not in self._repeated:
            self._repeated[key] = report
            self.signals.news.set()
        return True

    def _begin(self, order: WireOrder) -> RunWorker | None:
        folder = RunFolder.of(self._runs, order.run_id, order.rank)
        try:
            folder.create(order.document)
        except OSError as error:
            # Not known durably, so not begun: it is ordered again by the next answer.
            _log.error("run not taken", run=order.run_id, error=error.strerror)
            folder.remove()
            return None
        _log.info("run taken", run=order.run_id, rank=order.rank)
        worker = RunWorker(folder, order.document, self._tools())
        for cause in sorted(self._closed):
            worker.stop(cause, 0.0)
        self._employ(worker)
        self.signals.news.set()
        return worker

    def _drop(self, worker: RunWorker) -> None:
        """The server does not name a run any more: what lives of it must not go on."""
        if not worker.dropped and not worker.settled:
            _log.warning("run given up by the server", run=worker.document.run_id)
        worker.drop()
        if worker.settled:
            self._discard(worker)

    def _forget(self, acknowledged: tuple[str, ...]) -> None:
        over = set(acknowledged)
        for worker in self.workers():
            if worker.document.run_id not in over:
                continue
            if worker.settled:
                self._discard(worker)
            else:
                self._drop(worker)

    def _discard(self, worker: RunWorker) -> None:
        """Remember the run's end and delete its folder."""
        final = worker.final
        if final is None:
            return
        key = (final.run_id, final.rank)
        with self._lock:
            if key not in self._workers:
                return  # the other conversation was quicker
            folder = RunFolder.of(self._runs, *key)
            folder.shed()  # on a full disk this makes room for the line below
            try:
                self._remembered.add(final)
            except OSError as error:
                _log.error("run kept: its end cannot be noted", error=error.strerror)
                return
            del self._workers[key]
        self._keep_journal(folder)
        folder.remove()
        _log.info("run forgotten", run=final.run_id, rank=final.rank)

    def _keep_journal(self, folder: RunFolder) -> None:
        """Keep who was alive when, beyond the run's folder: evidence that nothing ran twice."""
        try:
            for line in folder.journal_lines():
                append_line(self._spans, line)
            _bound(self._spans)
        except OSError as error:
            _log.error("journal not kept", error=error.strerror)


_JOURNAL_BYTES = 16 << 20


def _bound(journal: Path) -> None:
    """Keep at most two files of the journal."""
    if journal.stat().st_size > _JOURNAL_BYTES:
        journal.replace(journal.with_suffix(".1.jsonl"))
