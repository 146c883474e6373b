"""Streams that outlive a broken connection and a restarted server: a job's log, the events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import tenacity

from hybrid.client.answers import Event, Job, Run
from hybrid.client.client import HybridClient
from hybrid.client.errors import Problem, Unreachable
from hybrid.client.wire import CONNECT_S, passes
from hybrid.domain.run import RunState

AWAY_S = 120.0
"""How long a server may be away before following ends."""
LOOK_S = (0.3, 2.0)
"""Between looks at a job that has no run yet: at first, and at most."""
SILENCE_S = 60.0
"""A connection on which nothing came for so long is made anew: it may be dead."""


def _nobody(_job: Job) -> None:
    """Who is told of a job when nobody asked."""


@dataclass
class LogFollower:
    """Reads what a job prints, run after run, to its end; ``offset`` is where in ``run_id``.
    ``only``: that run alone.

    A broken connection is made anew where it broke. ``told`` hears of the job each time it is
    looked at. Raises Unreachable when the server stays away, Problem.
    """

    client: HybridClient
    job_id: str
    rank: int = 0
    told: Callable[[Job], None] = _nobody
    sleep: Callable[[float], None] = time.sleep
    run_id: str | None = None
    offset: int = 0
    only: bool = False
    last: Job | None = field(default=None, init=False)

    def pieces(self) -> Iterator[bytes]:
        """What is printed, as it comes, until the job has ended and all has been read."""
        pause_s = LOOK_S[0]
        while True:
            job = self._look()
            run = self._run(job)
            # known before the read: what was printed before the end is read after it
            over = run is None or run.state is RunState.ENDED
            if run is not None:
                if run.id != self.run_id:
                    self.run_id, self.offset = run.id, 0
                yield from self._read(run.id)
            if not over:
                pause_s = LOOK_S[0]
                continue
            following = None if run is None or self.only else _next(job, run)
            if following is not None:
                self.run_id, self.offset = following.id, 0
            elif job.state.ended or self.only:
                return
            else:
                self.sleep(pause_s)
                pause_s = min(LOOK_S[1], pause_s * 1.5)

    def _run(self, job: Job) -> Run | None:
        """The run being read, else the latest."""
        named = [run for run in job.runs if run.id == self.run_id]
        if self.only and not named:
            raise Problem(404, "no_such_run", f"job {job.id} has no run {self.run_id}")
        return named[0] if named else (job.runs[-1] if job.runs else None)

    def _look(self) -> Job:
        job: Job = _patiently(self.sleep)(self.client.job, self.job_id)
        self.last = job
        self.told(job)
        return job

    def _read(self, run_id: str) -> Iterator[bytes]:
        """One connection's worth."""
        params: dict[str, Any] = {
            "run": run_id, "rank": self.rank, "offset": self.offset, "follow": "true",
        }  # fmt: skip
        path = f"/v1/jobs/{self.job_id}/logs"
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
        try:
            with self.client.wire.stream("GET", path, params=params, timeout=timeout) as answer:
                for piece in answer.iter_raw():
                    self.offset += len(piece)
                    yield piece
        except (Unreachable, Problem) as problem:
            if not passes(problem):
                raise
            self.sleep(LOOK_S[0])  # the next look finds out whether it is gone for good


def _next(job: Job, run: Run) -> Run | None:
    return next((each for each in job.runs if each.attempt > run.attempt), None)


def logs(
    client: HybridClient, job_id: str, *, rank: int = 0, run: str | None = None
) -> Iterator[bytes]:
    """What a job's latest run, or the named one, has printed so far."""
    params: dict[str, Any] = {"rank": rank, **({} if run is None else {"run": run})}
    with client.wire.stream("GET", f"/v1/jobs/{job_id}/logs", params=params) as answer:
        yield from answer.iter_raw()


def events(
    client: HybridClient,
    *,
    after: int | None = None,
    follow: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """The event log from number ``after`` on (now, if omitted), as it grows. A broken connection
    is made anew after the last event seen."""
    seen = after
    began: float | None = None
    while True:
        params: dict[str, Any] = {"follow": str(follow).lower()}
        headers = {}
        if seen is not None:
            headers["Last-Event-ID"] = str(seen)
        try:
            timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
            with client.wire.stream(
                "GET", "/v1/events", params=params, headers=headers, timeout=timeout
            ) as answer:
                for data in _messages(answer.iter_lines()):
                    event = Event.model_validate_json(data)
                    seen, began = event.seq, None
                    yield event
            if not follow:
                return
        except (Unreachable, Problem) as problem:
            if not passes(problem) or not follow:
                raise
            began = time.monotonic() if began is None else began
            if time.monotonic() - began > AWAY_S:
                raise
        sleep(LOOK_S[0])


def _messages(lines: Iterator[str]) -> Iterator[str]:
    """The data of each message of a text/event-stream."""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def _patiently(sleep: Callable[[float], None]) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        stop=tenacity.stop_after_delay(AWAY_S),
        wait=tenacity.wait_random_exponential(multiplier=0.3, max=5.0),
        sleep=sleep,
        reraise=True,
    )
