"""After the end of a run: its last checkpoint, its outputs, the rest of its log, its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from hybrid.agent.exits import cause_of, exit_code_of
from hybrid.agent.guardian import EXIT_CHECKPOINTED, EXIT_DONE, Ended, boottime_s, read_log
from hybrid.agent.guardian.output import log_size
from hybrid.agent.launch import read_progress
from hybrid.agent.log_shipper import LogShipper
from hybrid.agent.outputs import OutputsRefused, send_outputs
from hybrid.agent.periodic import CheckpointKeeper
from hybrid.agent.protocol import TAIL_BYTES, TAIL_LINES, RunDocument, WireProgress, WireRank
from hybrid.agent.run_folder import RunFolder
from hybrid.agent.transport import ServerClient, ServerUnreachable
from hybrid.domain.job import StopCause
from hybrid.ports.engine import RankPhase

_log = structlog.get_logger(__name__)

SERVER_DEADLINE_S = 3600.0
"""How long outputs and logs wait for a server that is away, before the run is over without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finisher:
    """Does what is left to do for one ended run. ``pause`` raises when the agent ends; all of it
    can then be done again."""

    folder: RunFolder
    document: RunDocument
    client: ServerClient
    keeper: CheckpointKeeper
    shipper: LogShipper
    first_step: int | None
    pause: Callable[[float], None]

    def finish(self, ended: Ended, problem: str, dropped: Callable[[], bool]) -> WireRank:
        """The run's last report. ``problem`` is what befell its guardian, if anything;
        ``dropped`` tells that nobody wants anything of the run any more."""
        digest = ""
        if not dropped():
            if self._worth_saving(ended, problem):
                self.keeper.save_last(self.pause, dropped)
            digest, output_problem = self._outputs(ended, dropped)
            problem = "; ".join(filter(None, (problem, output_problem)))
            self._patiently(self.shipper.ship, dropped)
        return self._report(ended, problem, digest)

    def _worth_saving(self, ended: Ended, problem: str) -> bool:
        """A job that is done needs no checkpoint; nor does one that was called off."""
        if ended.exit_code == EXIT_DONE or ended.cause == StopCause.CANCEL:
            return False
        if problem == REBOOTED:
            return False  # what was not synced when the machine went down may be half there
        return self.document.spec.checkpoint.enabled or ended.exit_code == EXIT_CHECKPOINTED

    def _outputs(self, ended: Ended, dropped: Callable[[], bool]) -> tuple[str, str]:
        """Send the named outputs of a run that ended by itself: their digest, or what was wrong."""
        names = self.document.spec.outputs
        over = ended.exit_code == EXIT_DONE or ended.cause is None
        if not names or not over or ended.exit_code == EXIT_CHECKPOINTED:
            return "", ""
        found: list[str] = []

        def send() -> bool:
            found.append(send_outputs(self.client, self.folder, names, self.document.run_id))
            return True

        try:
            self._patiently(send, dropped)
        except OutputsRefused as error:
            _log.warning("outputs not sent", run=self.document.run_id, why=str(error))
            return "", f"outputs did not come back: {error}"
        return (found[0], "") if found else ("", "outputs did not come back: no server")

    def _patiently(self, send: Callable[[], bool], dropped: Callable[[], bool]) -> None:
        began_s, wait_s = boottime_s(), 0.3
        while not dropped():
            try:
                if send():
                    return
            except ServerUnreachable:
                if boottime_s() - began_s > SERVER_DEADLINE_S:
                    return
                self.pause(wait_s)
                wait_s = min(10.0, wait_s * 1.7)

    def _report(self, ended: Ended, problem: str, digest: str) -> WireRank:
        code = exit_code_of(ended)
        progress = read_progress(self.folder.progress)
        return WireRank(
            run_id=self.document.run_id,
            rank=self.document.rank,
            phase=RankPhase.ENDED,
            started_at=ended.started_at,
            ended_at=ended.ended_at,
            exit_code=code,
            cause=cause_of(ended.cause),
            stop_s=ended.stop_took_s or 0.0,
            problem="; ".join(filter(None, (problem, ended.error)))[:4096],
            tail="" if code in (EXIT_DONE, EXIT_CHECKPOINTED) else self._tail(),
            progress=None if progress is None else WireProgress.of(progress),
            checkpoint=self.keeper.last,
            checkpoint_problem=self.keeper.problem,
            first_step=self.first_step,
            outputs=digest,
        )

    def _tail(self) -> str:
        """The last lines of a run that failed."""
        guard = self.folder.guard
        chunk = read_log(guard, max(0, log_size(guard) - TAIL_BYTES), TAIL_BYTES)
        lines = chunk.data.decode(errors="replace").replace("\0", "\ufffd").splitlines()
        return "\n".join(lines[-TAIL_LINES:])


REBOOTED = "the machine was restarted"
