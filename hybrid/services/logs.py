"""What jobs print: which run's log, and whether more of it can come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hybrid.agent.engine import AgentEngine
from hybrid.agent.log_store import LogPiece, LogStore
from hybrid.domain.ids import JobId, RunId
from hybrid.domain.run import Run
from hybrid.ports.engine import WorkloadRuntime
from hybrid.ports.errors import PortError
from hybrid.ports.store import Store
from hybrid.services.access import Principal
from hybrid.services.errors import NotFound, NotNow
from hybrid.services.jobs import Jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """How far a job has come, for someone who reads along.

    ``run`` is the run to read now, None while there is none; ``first`` the job's first.
    ``run_over`` says that the run has ended, ``job_over`` that no other will follow.
    """

    run: Run | None
    first: Run | None
    following: Run | None
    run_over: bool
    job_over: bool


@dataclass(frozen=True, slots=True)
class Logs:
    """Reads logs: of the built-in engine from the server's own copy, which knows the offset of
    each piece, of others through the engine."""

    store: Store
    jobs: Jobs
    kept: LogStore
    engines: Mapping[str, WorkloadRuntime]

    def state(self, asker: Principal, job_id: JobId, run_id: RunId | None) -> LogState:
        """How things stand with a run of the job: the named one, or the latest.

        Raises NotFound for a job that the asker may not see, or a run that it does not have.
        """
        job = self.jobs.get(asker, job_id)
        runs = self.store.runs_of(job_id)
        named = next((run for run in runs if run.id == run_id), None)
        if run_id is not None and named is None:
            raise NotFound("no_such_run", f"job {job_id} has no run {run_id}")
        run = named or (runs[-1] if runs else None)
        following = next(
            (each for each in runs if run is not None and each.attempt > run.attempt), None
        )
        return LogState(
            run=run,
            first=runs[0] if runs else None,
            following=following,
            run_over=run is not None and not run.live,
            job_over=job.state.ended,
        )

    def check(self, run: Run, rank: int) -> None:
        """Raise NotFound for a rank that the run does not have, NotNow when its engine is not
        one of this server's."""
        if rank >= len(run.slots):
            last = len(run.slots) - 1
            raise NotFound("no_such_rank", f"run {run.id} has ranks 0 to {last}, not {rank}")
        if run.engine not in self.engines:
            raise NotNow("no_engine", f"this server has no engine {run.engine} to ask")

    def pieces(self, run: Run, rank: int, offset: int) -> Iterator[LogPiece]:
        """What rank ``rank`` of the run has printed so far, from a byte offset on. A piece may
        begin later than asked for: what was before it is gone."""
        self.check(run, rank)
        engine = self.engines[run.engine]
        if isinstance(engine, AgentEngine):
            return self.kept.pieces(run.job_id, run.id, rank, offset)
        return _through(engine, run, rank, offset)


def _through(engine: WorkloadRuntime, run: Run, rank: int, offset: int) -> Iterator[LogPiece]:
    try:
        for data in engine.logs(run.job_id, run.id, rank, offset=offset):
            yield LogPiece(offset, data)
            offset += len(data)
    except PortError as problem:
        raise NotNow("logs_unavailable", f"{run.engine} cannot show logs now") from problem
