"""Jobs that a cloud may be worth it for: one by one, and, far back in a long queue, in columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from hybrid.domain.hot_values import hot_value
from hybrid.domain.ids import JobId
from hybrid.domain.offer import Offer
from hybrid.planning.choices import Start, Waiting
from hybrid.planning.options import CloudOption, costs_micros
from hybrid.planning.relief import Relief
from hybrid.planning.starts import Starts
from policies.burst import margins_micros
from policies.document import PolicyDocument

Best = Callable[[Waiting], tuple[CloudOption, Offer, int] | None]
"""The cheapest option of a job's class, the offer to ask for, and how much of its cost is money."""


@hot_value(frozen=True, slots=True)
class Candidate:
    """A job at a ``position`` in the queue, its ``option``, and what it would gain, all in
    micro-dollars: ``shortened`` is the part of ``gain`` that others have of it, ``money`` the part
    of the option's cost that is not time."""

    position: int
    waiting: Waiting
    option: CloudOption
    offer: Offer
    start: Start | None
    gain: float
    shortened: float
    money: int

    @property
    def worth(self) -> tuple[float, int]:
        """Sorting key: gain per dollar, larger first; then the order of rank."""
        per_dollar = math.inf if math.isinf(self.gain) else self.gain / max(self.money, 1)
        return -per_dollar, self.position


class Followers:
    """The candidates among jobs whose starts are estimated, those with a deadline left out: each
    of these is judged by its chance to be late."""

    def __init__(
        self,
        starts: Starts,
        relief: Relief,
        best: Best,
        policy: PolicyDocument,
        positions: Mapping[JobId, int],
        left_out: Collection[JobId],
    ) -> None:
        self._starts = starts
        first: dict[int, Waiting] = {}
        for job, index in zip(starts.jobs, starts.leads, strict=True):
            first.setdefault(index, job)
        # jobs of one lead are of one class
        self._best = {index: best(job) for index, job in first.items()}
        leads = np.array(starts.leads, dtype=np.int64)
        delays_s = np.array(starts.delays_s)
        columns = np.array([self._facts(index) for index in range(len(starts.led_by))])
        if not len(leads):
            columns = np.empty((0, 5))
        base, at, wait_s, value_per_s, option = columns.T[:, leads]
        self._shortened = relief.of_followers(leads, at + delays_s)
        self._gain = base + value_per_s * delays_s - option + self._shortened
        values = np.array([lead.cls.value_micros_per_hour for lead in starts.led_by], np.int64)
        margins = margins_micros(costs_micros(values[leads], wait_s + delays_s), policy)
        worth_it = np.floor(self._gain) > margins
        if left_out:
            worth_it &= np.array([job.job_id not in left_out for job in starts.jobs], bool)
        self._places = np.flatnonzero(worth_it)
        money = np.array([self._money(index) for index in range(len(starts.led_by))], dtype=float)
        self._worth = -(self._gain / money[leads])[self._places]
        self._positions = np.array(
            [positions[starts.jobs[place].job_id] for place in self._places.tolist()],
            dtype=np.int64,
        )

    def __len__(self) -> int:
        return len(self._places)

    def first(
        self, most: int, others: Sequence[Candidate], closed: Collection[int]
    ) -> Iterator[Candidate]:
        """The first ``most`` of these and the others together, by worth; without those whose
        option, named by its identity, has been ``closed`` by the time it is their turn."""
        keys = [candidate.worth for candidate in others]
        worth = np.concatenate([[key[0] for key in keys], self._worth])
        positions = np.concatenate([[key[1] for key in keys], self._positions])
        chosen = np.lexsort((positions, worth))[:most].tolist()
        leads, places = self._starts.leads, self._places.tolist()
        for entry in chosen:
            if entry < len(others):
                candidate = others[entry]
                if id(candidate.option) not in closed:
                    yield candidate
                continue
            best = self._best[leads[places[entry - len(others)]]]
            if best is not None and id(best[0]) not in closed:
                yield self._candidate(entry - len(others))

    def _candidate(self, entry: int) -> Candidate:
        place = int(self._places[entry])
        job = self._starts.jobs[place]
        found = self._best[self._starts.leads[place]]
        assert found is not None
        return Candidate(
            int(self._positions[entry]),
            job,
            found[0],
            found[1],
            self._starts.get(job.job_id),
            float(self._gain[place]),
            float(self._shortened[place]),
            found[2],
        )

    def _facts(self, index: int) -> tuple[float, float, float, float, float]:
        lead = self._starts.led_by[index]
        found, start = self._best.get(index), lead.start
        # one that has no option, or a deadline, gains nothing here
        price = (
            math.inf
            if found is None or lead.cls.deadline_at is not None
            else float(found[0].micros)
        )
        return start.micros, start.at, start.wait.mean_s, lead.cls.value_per_s, price

    def _money(self, index: int) -> int:
        found = self._best.get(index)
        return 1 if found is None else max(found[2], 1)
