"""Jobs for those who ask: list, show, cancel, and what happened to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import JobId
from hybrid.domain.job import Job, JobState
from hybrid.domain.plan import Decision
from hybrid.domain.run import Run
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, JobFilter, Note, Page, Put, Store
from hybrid.services.access import Principal
from hybrid.services.errors import Conflict, Fault, NotFound, NotNow, Refused

MAX_PAGE = 200
TRIES = 8


@dataclass(frozen=True, slots=True)
class JobStory:
    """A job with its runs, first to last, and its last decision."""

    job: Job
    runs: tuple[Run, ...]
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class Jobs:
    """Reads and cancels jobs. ``poke`` wakes the loop."""

    store: Store
    clock: Clock
    poke: Callable[[], None]

    def list(
        self, asker: Principal, which: JobFilter, *, limit: int, cursor: str | None = None
    ) -> Page:
        """A page of the jobs that the asker may see, newest first."""
        if asker.teams is not None:
            which = replace(which, teams=asker.teams)
        try:
            return self.store.jobs(which, limit=min(limit, MAX_PAGE), cursor=cursor)
        except ValueError as problem:
            said = "this cursor did not come from a listing; begin without one"
            raise Refused("bad_cursor", said, errors=[Fault("query.cursor", said)]) from problem

    def get(self, asker: Principal, job_id: JobId) -> Job:
        """The job; NotFound also for one of a team that the asker does not belong to."""
        job = self.store.job(job_id)
        if job is None or not asker.sees(job.team):
            raise NotFound("no_such_job", f"there is no job {job_id}")
        return job

    def story(self, asker: Principal, job_id: JobId) -> JobStory:
        """The job, its runs and its last decision."""
        job = self.get(asker, job_id)
        return JobStory(job, self.store.runs_of(job_id), self.store.decision(job_id))

    def timeline(
        self, asker: Principal, job_id: JobId, *, after: int = 0, limit: int = 1000
    ) -> tuple[tuple[int, Event], ...]:
        """What happened to the job, in order, each event with its number."""
        self.get(asker, job_id)
        return self.store.events(job_id=job_id, after=after, limit=limit)

    def cancel(self, asker: Principal, job_id: JobId) -> Job:
        """Cancel a job, and say how it stands then.

        One that runs nowhere is cancelled here and now; for any other the wish is written down
        and the loop stops its run. Cancelling twice is as cancelling once; Conflict
        ``already_ended`` when the job ended otherwise.
        """
        for _ in range(TRIES):
            job = self.get(asker, job_id)
            if job.state is JobState.CANCELLED:
                return job
            if job.state.ended:
                raise Conflict("already_ended", f"job {job_id} has {job.state} already")
            if job.cancel_requested and job.state is not JobState.PENDING:
                return job
            if self._commit(job, by=asker.name):
                self.poke()
                return self.get(asker, job_id)
        raise NotNow("busy", f"job {job_id} changes all the time; cancel it again")

    def _commit(self, job: Job, *, by: str) -> bool:
        now = self.clock.now()
        idle = job.state is JobState.PENDING and not any(
            run.live for run in self.store.runs_of(job.id)
        )
        cancelled = (
            job.to(JobState.CANCELLED, at=now, cause=f"cancelled by {by}", reason="cancelled")
            if idle
            else job
        )
        event = Event(
            kind=EventKind.JOB,
            subject=job.id,
            what="cancelled" if idle else "cancel_requested",
            at=now,
            words=f"cancelled by {by}" if idle else f"{by} asked to cancel it",
            job_id=job.id,
            actor=by,
        )
        done = self.store.commit(
            [
                Bundle(
                    id=f"cancel:{job.id}",
                    changes=(Put(replace(cancelled, cancel_requested=True)), Note(event)),
                )
            ],
            at=now,
        )
        return not done.dropped
