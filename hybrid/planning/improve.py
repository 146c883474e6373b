"""Better than greedy: other orders of the jobs that rank alike, and other choices of who goes to a
cloud, kept where all jobs together cost less.

Local search over what the first choice left open. A move puts a job elsewhere among those it ranks
alike with, keeps one at home that was to go to a cloud, or sends one there before all others are
weighed; then everything is chosen anew by the same rules, so guards, margins, tiers and the turns
of teams hold as they did before. What a move may not do: make a job late that was not; let those
in front pay for a gain of those behind; where teams take turns, let one team pay for another.

The next plan finds what this one starts and asks for as given, and orders only the rest. So the
search is repeated here on the rest, as the next plan will do it, until it adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import JobId
from hybrid.domain.money import cents
from hybrid.planning.adopt import Adoption, schedule_of
from hybrid.planning.burst import Burst, Bursting, home_micros
from hybrid.planning.choices import Choices, Start, Waiting
from hybrid.planning.cloud import Cloud
from hybrid.planning.nodes import NodeView
from hybrid.planning.preempt import may_preempt
from hybrid.planning.queue import Queue
from hybrid.planning.workspace import Workspace

MOST_WAITING = 400
"""A longer queue is left as it is: there one look at it costs what many moves should."""
WINDOW = 24
"""Jobs in front of the queue that are moved."""

KICKS = 16
"""Arrangements that are followed further where no single move helps, the most promising."""

_NOT_THERE = frozenset({ClaimState.REQUESTED, ClaimState.BOOTING, ClaimState.TERMINATING})

_LEAST_GAIN_MICROS = 1.0
"""A smaller gain is the dust of adding up floats."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a choice comes to. ``groups`` is the cost up to and with each group of jobs that rank
    alike, from the front; ``fixed`` that of each job whose place no cost decides."""

    late: frozenset[JobId]
    groups: tuple[float, ...]
    teams: Mapping[str, float]
    fixed: Mapping[JobId, float]

    @property
    def micros(self) -> float:
        """All jobs together."""
        return self.groups[-1]

    def better_than(self, other: _Cost) -> bool:
        """Whether it is cheaper, and nobody pays for it who must not."""
        return (
            self.micros < other.micros - _LEAST_GAIN_MICROS
            and self.late <= other.late
            and _none_above(self.groups, other.groups)
            and _none_above(self.teams.values(), other.teams.values())
            and all(
                micros <= other.fixed.get(job_id, math.inf) + _LEAST_GAIN_MICROS
                for job_id, micros in self.fixed.items()
            )
        )


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """One point of the search: the order wanted, who stays, and who goes first."""

    order: tuple[JobId, ...]
    staying: frozenset[JobId] = frozenset()
    first: tuple[JobId, ...] = ()


@dataclass(slots=True)
class _Tried:
    """An arrangement with what was chosen under it."""

    arrangement: _Arrangement
    waiting: Sequence[Waiting]
    starts: Mapping[JobId, Start]
    bursts: Mapping[JobId, Burst]
    cost: _Cost


@dataclass(slots=True)
class _Given:
    """What this plan has settled: starts now, and machines asked for."""

    starts: Mapping[JobId, Start] = field(default_factory=dict)
    bursts: Mapping[JobId, Burst] = field(default_factory=dict)


def improve(
    ws: Workspace,
    choices: Choices,
    cloud: Cloud,
    queue: Queue,
    adoptions: Mapping[JobId, Adoption],
    greedy: Bursting,
) -> Bursting:
    """The choice to go on with: a better one where there is one, else ``greedy``."""
    if not _open(ws, queue, greedy):
        return greedy
    return _Search(ws, choices, cloud, queue, adoptions).run(greedy)


def _open(ws: Workspace, queue: Queue, greedy: Bursting) -> bool:
    """Whether there is anything to decide by cost alone. Where runs stop, somebody may take their
    place, or machines on their way look for a job, what those steps saw must stay as it was.

    Asked of facts that this plan's own actions do not change: the next plan must answer alike.
    """
    if not ws.policy.scheduling.improve or not greedy.complete or not queue.waiting:
        return False
    ranks = queue.ranks()
    if len(ranks) > MOST_WAITING or not any(rank.open for rank in ranks.values()):
        return False
    if any(ws.stopping(run) is not None for run in ws.run_of.values()) or _adrift(ws):
        return False
    return not may_preempt(ws, ranks)


def _adrift(ws: Workspace) -> bool:
    """Whether machines that never came to be there are nobody's, or were until this plan."""
    covering = {claim.id for claims in ws.covering.values() for claim in claims}
    return any(
        claim.node_id is None and claim.state in _NOT_THERE and claim.id not in covering
        for claim in ws.snapshot.claims.values()
    )


class _Search:
    def __init__(
        self,
        ws: Workspace,
        choices: Choices,
        cloud: Cloud,
        queue: Queue,
        adoptions: Mapping[JobId, Adoption],
    ) -> None:
        self._ws, self._choices, self._cloud = ws, choices, cloud
        self._queue, self._adoptions = queue, adoptions
        self._ranks = queue.ranks()
        self._base = queue.ranking.order()
        self._given = _Given()
        self._kept: list[tuple[NodeView, JobId | None]] = [
            (view, view.kept_for) for view in ws.nodes if view.claim is not None
        ]
        self._spent = self._limit = 0
        self._seen: set[_Arrangement] = set()
        self._followed: set[_Arrangement] = set()
        self._complete = True
        self._looks = 0

    def run(self, greedy: Bursting) -> Bursting:
        """Search, settle what starts now and what is asked for, and search again on the rest."""
        current = greedy
        before = self._noted(_Arrangement(self._base), greedy).cost
        for _ in range(len(self._queue.waiting) + 2):
            self._seen, self._followed = {_Arrangement(self._base)}, set()
            # the other half is for what comes after
            self._limit = (self._ws.evaluations + self._ws.snapshot.evaluation_budget) // 2
            start = self._noted(_Arrangement(self._base), current)
            current.give_back()
            found = self._improved(start)
            current = self._choose(found.arrangement)
            starts = self._now(current)
            settled = self._given
            if starts.keys() == settled.starts.keys() and current.bursts.keys() == (
                settled.bursts.keys()
            ):
                break
            self._given = _Given(starts, dict(current.bursts))
            if not self._rest():
                break
            current.give_back()
            current = self._choose(_Arrangement(self._base))
        current.complete = self._complete
        self._report(before, self._noted(_Arrangement(self._base), current).cost)
        return current

    def _report(self, before: _Cost, after: _Cost) -> None:
        saved = round(before.micros - after.micros)
        if saved <= 0 and self._complete:
            return
        words = f"{self._looks} other arrangements of the queue were looked at"
        if saved > 0:
            words += f", the one taken costs ${cents(saved)} less"
        if not self._complete:
            words += "; the evaluation budget is used up"
        self._ws.notes.append(words)

    def _rest(self) -> int:
        """How many are neither started nor sent to a cloud."""
        return len(self._queue.waiting) - len(self._given.starts) - len(self._given.bursts)

    def _now(self, bursting: Bursting) -> dict[JobId, Start]:
        return {
            job.job_id: start
            for job in bursting.waiting
            if (start := bursting.schedule.starts.get(job.job_id)) is not None
            and start.at <= self._ws.now
            and job.ready_at <= self._ws.now
        }

    # --- trying -------------------------------------------------------------------------------

    def _choose(self, arrangement: _Arrangement) -> Bursting:
        """Everything chosen anew under an arrangement, beside what is given."""
        self._restore()
        waiting = self._queue.in_order(_positions(arrangement.order))
        bursting = Bursting(
            self._ws, self._choices, self._cloud, waiting, self._adoptions,
            given=self._given.starts, staying=arrangement.staying,
        )  # fmt: skip
        bursting.take_again(self._given.bursts)
        for job_id in arrangement.first:
            bursting.send_first(job_id)
        bursting.choose()
        return bursting

    def _noted(self, arrangement: _Arrangement, bursting: Bursting) -> _Tried:
        starts, bursts = bursting.schedule.starts.found, dict(bursting.bursts)
        cost = self._cost(starts, bursts, bursting.adoptions)
        return _Tried(arrangement, bursting.waiting, starts, bursts, cost)

    def _estimate(self, arrangement: _Arrangement, near: _Tried) -> _Cost | None:
        """Roughly what an arrangement comes to: in clouds are those who are there in one ``near``,
        but for those who stay, and the one who goes first. One look at the queue, where choosing
        anew takes many. None where the one who goes first finds no offer."""
        self._restore()
        bursts = {
            id_: burst for id_, burst in near.bursts.items() if id_ not in arrangement.staying
        }
        if arrangement.first and arrangement.first[0] not in bursts:
            sent = self._sent(arrangement.first[0], bursts)
            if sent is None:
                return None
            bursts[sent.job_id] = sent
        waiting = self._queue.in_order(_positions(arrangement.order))
        schedule = schedule_of(
            self._ws, self._choices, waiting, self._adoptions, bursts, self._given.starts
        )
        return self._cost(schedule.starts.found, bursts, self._adoptions)

    def _sent(self, job_id: JobId, beside: Mapping[JobId, Burst]) -> Burst | None:
        """The job's cheapest way to a cloud beside others."""
        jobs, cloud = self._ws.snapshot.jobs, self._cloud
        for burst in beside.values():
            cloud.take(burst.option, burst.offer, jobs[burst.job_id])
        best = cloud.best(self._queue.waiting[job_id].cls, jobs[job_id])
        for burst in beside.values():
            cloud.give_back(burst.option, burst.offer, jobs[burst.job_id])
        return None if best is None else Burst(job_id, *best, None, 0, 0.0)

    def _restore(self) -> None:
        for view, job_id in self._kept:
            view.kept_for = job_id

    def _improved(self, start: _Tried) -> _Tried:
        """The best found: first by single moves; then, from where none of these helps, by moves
        whose worth shows only after others, each followed as far down as it leads."""
        best = self._descended(start)
        again = True
        while again:
            again = False
            for arrangement in self._kicks(best):
                if not self._affordable():
                    self._complete = False
                    break
                found = self._descended(self._tried(arrangement))
                if found.cost.better_than(best.cost):
                    best, again = found, True
                    break
        return best

    def _descended(self, tried: _Tried) -> _Tried:
        """Single moves until none helps."""
        again = True
        while again:
            again = False
            for arrangement in self._moves(tried):
                if not self._new(arrangement):
                    continue
                estimate = self._estimate(arrangement, tried)
                if estimate is None or not estimate.better_than(tried.cost):
                    continue
                other = self._tried(arrangement)
                if other.cost.better_than(tried.cost):
                    tried, again = other, True
                    break
        return tried

    def _new(self, arrangement: _Arrangement) -> bool:
        """Whether it is still to be tried, and the budget allows it."""
        if arrangement in self._seen:
            return False
        if not self._affordable():
            self._complete = False
            return False
        self._seen.add(arrangement)
        self._looks += 1
        return True

    def _tried(self, arrangement: _Arrangement) -> _Tried:
        """What an arrangement comes to."""
        before = self._ws.evaluations
        bursting = self._choose(arrangement)
        tried = self._noted(arrangement, bursting)
        bursting.give_back()
        self._spent = max(self._spent, self._ws.evaluations - before)
        return tried

    def _affordable(self) -> bool:
        """Whether one more move, and the choice made at the end, are within the limit."""
        return self._ws.evaluations + 3 * self._spent <= self._limit

    # --- moves --------------------------------------------------------------------------------

    def _moves(self, best: _Tried) -> Iterator[_Arrangement]:
        """Arrangements one move away, those of jobs that pay most for waiting first."""
        now = best.arrangement
        for job in sorted(self._front(best), key=lambda job: -self._waits_micros(job, best)):
            id_ = job.job_id
            if id_ in best.bursts:
                stays = replace(now, staying=now.staying | {id_})
                yield stays
                yield from self._elsewhere(job, best, stays)
                continue
            yield from self._elsewhere(job, best, now)
            if self._waits_micros(job, best) > 0:
                yield _first(now, id_)

    def _front(self, best: _Tried) -> list[Waiting]:
        """The first of those who are not settled."""
        given = self._given
        rest = [
            job
            for job in best.waiting
            if job.job_id not in given.starts and job.job_id not in given.bursts
        ]
        return rest[:WINDOW]

    def _kicks(self, best: _Tried) -> Iterator[_Arrangement]:
        """Arrangements from which single moves may lead further, the most promising first: a job
        stays, or goes first, alone or in place of one that was to go; a job stands elsewhere; all
        stand by the weight of what they keep from others."""
        now = best.arrangement
        gone = [id_ for id_ in sorted(best.bursts) if id_ not in self._given.bursts]
        flips = [replace(now, staying=now.staying | {out}) for out in gone]
        orders = [
            replace(now, order=tuple(sorted(self._base, key=self._weight(power))))
            for power in (0.0, 0.5, 1.0)
        ]
        for job in self._front(best):
            orders += self._elsewhere(job, best, now)
            if job.job_id not in best.bursts:
                sent = _first(now, job.job_id)
                flips += [sent, *(replace(sent, staying=sent.staying | {out}) for out in gone)]
        for kind in (flips, orders):
            for arrangement in self._promising(kind, best)[:KICKS]:
                if arrangement not in self._followed:
                    self._followed.add(arrangement)
                    yield arrangement

    def _promising(self, arrangements: Sequence[_Arrangement], best: _Tried) -> list[_Arrangement]:
        """The arrangements, the cheapest by estimate first."""
        found = []
        for position, arrangement in enumerate(arrangements):
            if not self._affordable():
                self._complete = False
                break
            estimate = self._estimate(arrangement, best)
            if estimate is not None:
                found.append((estimate.micros, position))
        return [arrangements[position] for _, position in sorted(found)]

    def _weight(self, power: float) -> Callable[[JobId], float]:
        """How long a job keeps others waiting, its width to some power, per dollar of its wait."""

        def weight(job_id: JobId) -> float:
            job = self._queue.waiting.get(job_id)
            if job is None:
                return 0.0
            micros = max(job.cls.value_micros_per_hour, 1)
            return job.cls.work.mean_s * math.pow(job.cls.total_gpus, power) / micros

        return weight

    def _elsewhere(self, job: Waiting, best: _Tried, now: _Arrangement) -> Iterator[_Arrangement]:
        """The job in each place that is open to it."""
        mine = self._ranks[job.job_id]
        if not mine.open:
            return
        order = [other.job_id for other in best.waiting]
        at = order.index(job.job_id)
        rest = [*order[:at], *order[at + 1 :]]
        for place, other in enumerate(order[:WINDOW]):
            if place == at or self._ranks[other] != mine:
                continue
            if other in self._given.starts or other in self._given.bursts:
                continue
            yield replace(now, order=(*rest[:place], job.job_id, *rest[place:]))

    def _waits_micros(self, job: Waiting, tried: _Tried) -> float:
        if job.job_id in tried.bursts:
            return math.inf
        start = tried.starts.get(job.job_id)
        return 0.0 if start is None else job.cls.value_per_s * (start.at - self._ws.now)

    # --- what it comes to ---------------------------------------------------------------------

    def _cost(
        self,
        starts: Mapping[JobId, Start],
        bursts: Mapping[JobId, Burst],
        adoptions: Mapping[JobId, Adoption],
    ) -> _Cost:
        late: set[JobId] = set()
        groups = [0.0] * (1 + max(rank.group for rank in self._ranks.values()))
        teams = dict.fromkeys(sorted({rank.team for rank in self._ranks.values()}), 0.0)
        fixed: dict[JobId, float] = {}
        for job_id, job in sorted(self._queue.waiting.items()):
            start, burst, adoption = starts.get(job_id), bursts.get(job_id), adoptions.get(job_id)
            if burst is not None:
                micros = float(burst.option.micros)
            elif adoption is not None and start is None:
                micros = float(adoption.priced.micros)
            else:
                micros = home_micros(self._ws, job, start)
            if math.isinf(micros):
                late.add(job_id)
                continue
            rank = self._ranks[job_id]
            groups[rank.group] += micros
            teams[rank.team] += micros
            if not rank.open:
                fixed[job_id] = micros
        return _Cost(frozenset(late), tuple(accumulate(groups)), teams, fixed)


def _positions(order: Sequence[JobId]) -> dict[JobId, int]:
    return {job_id: position for position, job_id in enumerate(order)}


def _first(arrangement: _Arrangement, job_id: JobId) -> _Arrangement:
    others = (other for other in arrangement.first if other != job_id)
    staying = arrangement.staying - {job_id}
    return replace(arrangement, first=(job_id, *others), staying=staying)


def _none_above(these: Iterable[float], those: Iterable[float]) -> bool:
    return all(one <= other + _LEAST_GAIN_MICROS for one, other in zip(these, those, strict=True))
