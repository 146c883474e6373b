"""The starts of one pass: found one by one, and, far back in a long queue, estimated.

An estimated start follows the last one that was found for its class, later by a delay. Hot: as
numbers in a row; few of them are ever looked at, and each becomes a ``Start`` when it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hybrid.domain.hot_values import hot_value
from hybrid.domain.ids import JobId
from hybrid.estimation.waits import Duration
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.classes import JobClass


@hot_value(frozen=True, slots=True, eq=False)
class Lead:
    """A start that others of its class follow. ``work_before_s`` is the estimated work of its pool
    until then; each that follows adds ``work_s``: both in seconds of the whole pool."""

    index: int
    cls: JobClass
    start: Start
    work_before_s: float
    work_s: float


@dataclass(slots=True, eq=False)
class Starts:
    """By job: ``found`` has the exact ones. Of those that follow, ``jobs``, ``leads`` (positions in
    ``led_by``) and ``delays_s`` have an entry each."""

    found: dict[JobId, Start] = field(default_factory=dict)
    led_by: list[Lead] = field(default_factory=list)
    jobs: list[Waiting] = field(default_factory=list)
    leads: list[int] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    _places: dict[JobId, int] = field(default_factory=dict)
    _looked_at: dict[JobId, Start] = field(default_factory=dict)

    def lead(self, cls: JobClass, start: Start, work_before_s: float, work_s: float) -> Lead:
        """Another start that may be followed."""
        lead = Lead(len(self.led_by), cls, start, work_before_s, work_s)
        self.led_by.append(lead)
        return lead

    def follow(self, job: Waiting, lead: Lead, delay_s: float) -> None:
        """An estimated start."""
        self._places[job.job_id] = len(self.jobs)
        self.jobs.append(job)
        self.leads.append(lead.index)
        self.delays_s.append(delay_s)

    def follows(self, job_id: JobId) -> bool:
        """Whether the job's start is estimated."""
        return job_id in self._places

    def get(self, job_id: JobId, otherwise: Start | None = None) -> Start | None:
        """The start of a job; ``otherwise`` for one that has none."""
        start = self.found.get(job_id)
        if start is not None:
            return start
        place = self._places.get(job_id)
        if place is None:
            return otherwise
        start = self._looked_at.get(job_id)
        if start is None:
            start = self._looked_at[job_id] = self._estimated(place)
        return start

    def wait(self, job_id: JobId) -> tuple[Start, float] | None:
        """The job's own start, or the one that it follows, and by how many seconds it is later.
        Hot: what is reported of most jobs of a long queue needs no start of their own."""
        start = self.found.get(job_id)
        if start is not None:
            return start, 0.0
        place = self._places.get(job_id)
        if place is None:
            return None
        return self.led_by[self.leads[place]].start, self.delays_s[place]

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self.found or job_id in self._places

    def items(self) -> Iterator[tuple[JobId, Start]]:
        """All of them: first those that were found."""
        yield from self.found.items()
        for place, job in enumerate(self.jobs):
            yield job.job_id, self._looked_at.get(job.job_id) or self._estimated(place)

    def _estimated(self, place: int) -> Start:
        lead, delay_s = self.led_by[self.leads[place]], self.delays_s[place]
        first = lead.start
        return Start(
            self.jobs[place].job_id,
            first.at + delay_s,
            Duration(first.wait.mean_s + delay_s, first.wait.sd_s),
            first.run,
            first.nodes,
            first.masks,
            first.model,
            first.speed,
            first.micros + lead.cls.value_per_s * delay_s,
            first.type,
            first.share,
        )
