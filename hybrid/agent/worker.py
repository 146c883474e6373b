"""One rank of a run on its node, from the order to the report that is acknowledged."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from hybrid.agent.exits import cause_of, exit_code_of
from hybrid.agent.finishing import REBOOTED, Finisher
from hybrid.agent.guardian import (
    Ended,
    GuardianAlive,
    GuardianHandle,
    InvalidOrder,
    LeftoversRemain,
    RunPhase,
    RunStatus,
    boot_id,
    boottime_s,
    recover,
)
from hybrid.agent.launch import read_progress
from hybrid.agent.leases import RunLease
from hybrid.agent.log_shipper import LogShipper
from hybrid.agent.periodic import CheckpointKeeper
from hybrid.agent.protocol import RunDocument, StopOrder, WireProgress, WireRank
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.staging import Stage, StagingFailed, StagingStopped
from hybrid.agent.transport import ServerClient
from hybrid.domain.job import StopCause
from hybrid.ports.engine import RankPhase

_log = structlog.get_logger(__name__)

_WATCH_S = 0.2
_UNCLAIMED_S = 10.0
_RECOVER_AGAIN_S = 2.0
_GUARDIAN_ENDS_S = 2.0


class AgentStopping(Exception):
    """The agent ends; the run goes on under its guardian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """What all workers of a node share. ``changed`` is called when there is something to report;
    ``stopping`` tells that the agent ends."""

    client: ServerClient
    stage: Stage
    lease: RunLease
    changed: Callable[[], None]
    stopping: threading.Event


class RunWorker:
    """Owns a run's folder. Other threads ask for its report, stop it, and renew its lease."""

    def __init__(self, folder: RunFolder, document: RunDocument, tools: WorkerTools) -> None:
        self._thread = threading.Thread(
            target=self._run, name=f"run-{document.run_id}-{document.rank}", daemon=True
        )
        self._folder = folder
        self._document = document
        self._tools = tools
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._handle: GuardianHandle | None = None
        self._stop: StopOrder | None = None
        self._delivered: StopOrder | None = None
        self._signalled = False
        self._final: WireRank | None = None
        self._confirmed_s = float("-inf")
        self._dropped = False
        self.shipper = LogShipper(tools.client, folder.guard, document.run_id, document.rank)
        self.keeper = CheckpointKeeper(folder, document, tools.stage.config, tools.changed)
        facts = folder.facts()
        first_step = facts.get("first_step")
        self._first_step: int | None = first_step if isinstance(first_step, int) else None

    def start(self) -> None:
        """Begin the run's life on this node, or take it up where it stands."""
        self._thread.start()

    def join(self, limit_s: float) -> None:
        """Wait for the thread's end, up to a limit."""
        self._thread.join(limit_s)

    # --- for other threads --------------------------------------------------------------------

    @property
    def document(self) -> RunDocument:
        """The order."""
        return self._document

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do but to be acknowledged."""
        with self._lock:
            return self._final is not None

    @property
    def begun(self) -> bool:
        """Whether the order needs no confirmation any more: a guardian has it, or it is over."""
        with self._lock:
            return self._handle is not None or self._final is not None

    @property
    def final(self) -> WireRank | None:
        """The last report, once there is one."""
        with self._lock:
            return self._final

    @property
    def stop_cause(self) -> StopCause | None:
        """The cause of the stop that was asked for, if any."""
        with self._lock:
            return None if self._stop is None else self._stop.cause

    @property
    def dropped(self) -> bool:
        """Whether the server wants nothing more of it."""
        with self._lock:
            return self._dropped

    def confirm(self, sent_boottime_s: float) -> None:
        """The server listed the order in answer to a request sent at that time."""
        with self._lock:
            self._confirmed_s = max(self._confirmed_s, sent_boottime_s)
        self._wake.set()

    def stop(self, cause: StopCause, grace_s: float) -> None:
        """Stop it; of several causes the harder wins, and the grace only shrinks. Returns at
        once."""
        grace_s = min(grace_s, self._document.spec.stop.grace)
        with self._lock:
            before = self._stop
            if before is not None:
                cause = max(before.cause, cause, key=lambda each: each.hardness)
                grace_s = min(before.grace_s, grace_s)
            wanted = StopOrder(cause=cause, grace_s=grace_s)
            if wanted == before or self._final is not None:
                return
            self._stop = wanted
        _log.info("stopping", run=self._document.run_id, cause=cause.value, grace_s=grace_s)
        self._deliver_stop()
        self._wake.set()
        self._tools.changed()

    def _deliver_stop(self) -> None:
        """Tell the guardian of a stop that it has not been told of."""
        with self._lock:
            handle, wanted = self._handle, self._stop
            if handle is None or wanted is None or wanted == self._delivered:
                return
        try:
            handle.request_stop(wanted.cause.value, wanted.grace_s)
        except OSError as error:
            # A full disk must not keep a run alive: the guardian takes a signal as well, with the
            # job's own grace. The watch tries again to tell it the cause.
            _log.error("stop not written", run=self._document.run_id, error=error.strerror)
            guardian = handle.status().guardian
            if guardian is not None and not self._signalled:
                self._signalled = guardian.send(signal.SIGTERM)
            return
        with self._lock:
            self._delivered = wanted

    def drop(self) -> None:
        """The server gave the run up: end it now, keep nothing."""
        with self._lock:
            self._dropped = True
            over = self._final is not None
        if not over:
            self.stop(StopCause.NODE_LOST, 0.0)

    def renew(self, until_boottime_s: float) -> None:
        """The run lease goes on."""
        with self._lock:
            handle, over = self._handle, self._final is not None
        if handle is not None and not over:
            try:
                handle.renew_lease(until_boottime_s)
            except OSError as error:
                _log.error("lease not renewed", run=self._document.run_id, error=error.strerror)
        self._wake.set()

    def report(self) -> WireRank:
        """What the node has to say of it now."""
        with self._lock:
            if self._final is not None:
                return self._final
            handle, stop, first_step = self._handle, self._stop, self._first_step
        status = None if handle is None else handle.status()
        cause = None if stop is None else stop.cause
        phase = RankPhase.STARTING
        started_at = None
        if status is not None and status.started is not None:
            phase, started_at = RankPhase.RUNNING, status.started.started_at
        if status is not None and status.stopping is not None:
            cause = cause_of(status.stopping.cause) or cause
        if cause is not None:
            phase = RankPhase.STOPPING
        progress = read_progress(self._folder.progress)
        return WireRank(
            run_id=self._document.run_id,
            rank=self._document.rank,
            phase=phase,
            started_at=started_at,
            cause=cause,
            progress=None if progress is None else WireProgress.of(progress),
            checkpoint=self.keeper.last,
            checkpoint_problem=self.keeper.problem,
            first_step=first_step,
        )

    # --- its own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._settle(self._folder.final() or self._lived())
        except AgentStopping:
            return

    def _lived(self) -> WireRank:
        try:
            return self._live()
        except AgentStopping:
            raise
        except Exception as error:  # noqa: BLE001 - the server must be told, whatever it is
            _log.exception("run given up", run=self._document.run_id)
            return self._given_up(f"the agent failed: {type(error).__name__}: {error}")

    def _settle(self, final: WireRank) -> None:
        try:
            self._folder.finish(final)
        except OSError as error:
            # It is reported all the same. An agent after this one finds the guardian's own record
            # and comes to the same report.
            _log.error("report not kept", run=final.run_id, error=error.strerror)
        self._let_guardian_go()
        with self._lock:
            self._final = final
        _log.info(
            "run over", run=final.run_id, exit_code=final.exit_code, cause=final.cause or "none"
        )
        self._tools.changed()

    def _let_guardian_go(self) -> None:
        """Wait for the guardian's exit after its last record, so that no zombie stays."""
        end_s = boottime_s() + _GUARDIAN_ENDS_S
        while self._handle is not None and self._handle.is_alive() and boottime_s() < end_s:
            time.sleep(0.01)

    def _live(self) -> WireRank:
        try:
            handle = self._begin()
        except StagingStopped:
            return self._unstarted("stopped before it started")
        except StagingFailed as failure:
            _log.warning("run not started", run=self._document.run_id, why=str(failure))
            return self._unstarted(str(failure))
        with self._lock:
            self._handle = handle
        self.renew(self._tools.lease.until_boottime_s)
        self._deliver_stop()
        self._tools.changed()
        ended, problem = self._watch(handle)
        return self._finisher().finish(ended, problem, dropped=lambda: self.dropped)

    def _finisher(self) -> Finisher:
        return Finisher(
            folder=self._folder,
            document=self._document,
            client=self._tools.client,
            keeper=self.keeper,
            shipper=self.shipper,
            first_step=self._first_step,
            pause=self._pause,
        )

    def _begin(self) -> GuardianHandle:
        stage, folder = self._tools.stage, self._folder
        if folder.was_guarded:
            return self._adopt()
        stopped = self._must_not_start
        launchable, step = stage.prepare(folder, self._document, self.keeper, stopped)
        folder.note(first_step=step or 0)
        with self._lock:
            self._first_step = step or 0
        self._wait_for_leave()
        return GuardianHandle.spawn(
            folder.guard,
            launchable.order,
            lease_until_boottime_s=self._tools.lease.until_boottime_s,
            secrets=launchable.secrets,
        )

    def _adopt(self) -> GuardianHandle:
        try:
            handle = GuardianHandle.adopt(self._folder.guard)
        except InvalidOrder as error:
            raise StagingFailed(f"the run's files were damaged: {error}") from error
        if handle.status().phase is not RunPhase.UNCLAIMED:
            return handle
        # The agent died between writing the order and handing over the secrets.
        launchable = self._tools.stage.launchable(
            self._folder, self._document, resumed=bool(self._first_step)
        )
        self._wait_for_leave()
        return GuardianHandle.spawn(
            self._folder.guard,
            handle.order,
            lease_until_boottime_s=self._tools.lease.until_boottime_s,
            secrets=launchable.secrets,
        )

    def _must_not_start(self) -> bool:
        if self._tools.stopping.is_set():
            raise AgentStopping
        with self._lock:
            return self._stop is not None

    def _wait_for_leave(self) -> None:
        """Until the server stands by the order and the run lease lasts; raises StagingStopped."""
        while True:
            self._wake.clear()
            if self._must_not_start():
                raise StagingStopped
            with self._lock:
                confirmed_s = self._confirmed_s
            if self._tools.lease.covers(confirmed_s):
                return
            self._wake.wait(1.0)

    def _watch(self, handle: GuardianHandle) -> tuple[Ended, str]:
        """Until the run has ended: how, and what went wrong with its guardian, if anything."""
        phase: RunPhase | None = None
        unclaimed_since = boottime_s()
        while True:
            status = handle.status()
            if status.phase is not phase:
                phase = status.phase
                self._tools.changed()
            if status.ended is not None:
                return status.ended, ""
            if phase is RunPhase.LOST:
                return self._recover(status)
            if phase is RunPhase.UNCLAIMED and boottime_s() - unclaimed_since > _UNCLAIMED_S:
                return self._recover(status)
            self._deliver_stop()
            if phase is RunPhase.RUNNING:
                self.keeper.save_if_due(status)
            self._pause(_WATCH_S)

    def _recover(self, status: RunStatus) -> tuple[Ended, str]:
        """Take the run from a dead guardian."""
        rebooted = status.guardian is not None and status.guardian.boot_id != boot_id()
        while True:
            try:
                ended = recover(self._folder.guard)
                break
            except GuardianAlive:
                # It was only slow to claim the run.
                return self._watch(GuardianHandle.adopt(self._folder.guard))
            except LeftoversRemain as error:
                _log.error("run not ended", run=self._document.run_id, why=str(error))
                self._pause(_RECOVER_AGAIN_S)
        if rebooted:
            return ended, REBOOTED
        if status.guardian is None:
            return ended, "its guardian could not start"
        return ended, "its guardian was killed"

    def _given_up(self, problem: str) -> WireRank:
        """An agent's own fault must not leave a process behind that the server believes over."""
        final = self._unstarted(problem)
        if self._handle is None:
            return final
        self._handle.request_stop(StopCause.NODE_LOST.value, 0.0)
        while (ended := self._handle.status().ended) is None:
            self._pause(_WATCH_S)
        return final.model_copy(
            update={
                "started_at": ended.started_at,
                "ended_at": ended.ended_at,
                "exit_code": exit_code_of(ended),
            }
        )

    def _unstarted(self, problem: str) -> WireRank:
        with self._lock:
            stop = self._stop
        return WireRank(
            run_id=self._document.run_id,
            rank=self._document.rank,
            phase=RankPhase.ENDED,
            ended_at=time.time(),
            cause=None if stop is None else stop.cause,
            problem=problem[:4096],
            first_step=self._first_step,
        )

    def _pause(self, seconds: float) -> None:
        """Sleep a little; raises AgentStopping when the agent ends."""
        if self._tools.stopping.wait(seconds):
            raise AgentStopping
