"""The event log for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrid.domain.event import Event
from hybrid.domain.ids import JobId
from hybrid.ports.store import Store
from hybrid.services.access import Principal

PAGE = 500
REMEMBERED_TEAMS = 50_000


@dataclass(slots=True)
class Happenings:
    """Events past a number, as far as the asker may know of them."""

    store: Store
    _teams: dict[str, str | None] = field(default_factory=dict)
    _last: int = 0

    def last(self) -> int:
        """The number of the newest event, found by halving: the log may be long."""
        low, step = self._last, 1
        while self.store.events(after=low + step, limit=1):
            low, step = low + step, step * 2
        high = low + step
        while low < high:
            middle = (low + high) // 2
            if self.store.events(after=middle, limit=1):
                low = middle + 1
            else:
                high = middle
        self._last = low
        return low

    def after(
        self, asker: Principal, number: int, *, limit: int = PAGE
    ) -> tuple[int, tuple[tuple[int, Event], ...]]:
        """How far it has looked, and the events on the way that the asker may see."""
        page = self.store.events(after=number, limit=limit)
        if not page:
            return number, ()
        return page[-1][0], tuple((seq, event) for seq, event in page if self._shown(asker, event))

    def _shown(self, asker: Principal, event: Event) -> bool:
        if asker.teams is None or not event.job_id:
            return True
        team = self._team_of(event.job_id)
        return team is not None and asker.sees(team)

    def _team_of(self, job_id: str) -> str | None:
        """Jobs do not change their team: what has been asked once need not be asked again."""
        if job_id not in self._teams:
            job = self.store.job(JobId(job_id))
            if len(self._teams) >= REMEMBERED_TEAMS:
                self._teams.clear()
            self._teams[job_id] = None if job is None else job.team
        return self._teams[job_id]
