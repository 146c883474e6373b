"""Which jobs go to a cloud: those whose gain, the waits they shorten behind them included, exceeds
the policy's margin.

Greedy with re-simulation: after each choice the local schedule is made anew, because a job that
leaves shortens the waits of others and so changes what their own bursting would gain. In a short
queue the largest gain comes first, in a long one the largest gain per dollar. A shortened wait
counts at most up to that job's own best alternative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from hybrid.domain.ids import JobId
from hybrid.domain.offer import Offer
from hybrid.planning.adopt import Adoption, schedule_of, urgent_first
from hybrid.planning.candidates import Candidate, Followers
from hybrid.planning.choices import Choices, Start, Waiting
from hybrid.planning.cloud import Cloud
from hybrid.planning.options import CloudOption, cost_micros
from hybrid.planning.relief import Relief
from hybrid.planning.schedule import Schedule
from hybrid.planning.workspace import Workspace
from policies import burst as burst_rules
from policies import spot as spot_rules

_EXACT_BELOW = 400
"""Up to this many waiting jobs what others gain is found by scheduling without the job; above it
by the share of the pool's time that it sets free."""

_EXACT_CANDIDATES = 6
_EXACT_STARTS = 2_000
"""In a round the gain of the most promising candidates is found exactly: of six at least, of more
while scheduling without each of them takes no more than so many starts in all."""

_ROUNDS = 12
"""Most rounds in a long queue."""

_NEVER = math.inf
_NOTHING_GIVEN: Mapping[JobId, Start] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Burst:
    """A job sent to a cloud: what was chosen, instead of what (None: it fits nowhere at home), and
    what others gain."""

    job_id: JobId
    option: CloudOption
    offer: Offer
    instead: Start | None
    shortened_micros: int
    gain_micros: float


class Bursting:
    """The choice of one plan: ``bursts``, and the ``schedule`` of all others. ``adoptions`` loses
    those jobs that are better off elsewhere than on their machines."""

    def __init__(
        self,
        ws: Workspace,
        choices: Choices,
        cloud: Cloud,
        waiting: Sequence[Waiting],
        adoptions: Mapping[JobId, Adoption],
        *,
        given: Mapping[JobId, Start] = _NOTHING_GIVEN,
        staying: Collection[JobId] = (),
    ) -> None:
        """``given`` are starts that stand; jobs ``staying`` go to no cloud."""
        self.ws = ws
        self.choices = choices
        self.cloud = cloud
        self.waiting = waiting
        self._in_order = waiting
        self._positions = {job.job_id: position for position, job in enumerate(waiting)}
        self.adoptions = dict(adoptions)
        self._given = dict(given)
        self._staying: set[JobId] = set(staying)
        self.bursts: dict[JobId, Burst] = {}
        self.schedule = Schedule(ws, choices)
        self.complete = True

    def choose(self) -> None:
        """Choose until no candidate gains enough or the evaluation budget is used up."""
        while True:
            self.schedule = self._schedule()
            if self.complete and self._accept(self.schedule):
                # a further round costs a schedule of all that wait, besides the one to come
                next_ = self.ws.evaluations + 2 * len(self.waiting)
                self.complete = next_ <= self.ws.snapshot.evaluation_budget
            elif not self._home_after_all():
                return

    def send_first(self, job_id: JobId) -> bool:
        """Send this job to a cloud before any other is weighed, if it gains enough as things are;
        whether it went."""
        schedule = self._schedule()
        for candidate in self._candidates(schedule, self._most_shortened(schedule)):
            if candidate.waiting.job_id == job_id:
                judged = self._judged(candidate, schedule)
                if judged is not None:
                    self._take(judged, judged.offer)
                    return True
        return False

    def take_again(self, bursts: Mapping[JobId, Burst]) -> None:
        """Choose what was chosen before."""
        for job_id, burst in bursts.items():
            self.cloud.take(burst.option, burst.offer, self.ws.snapshot.jobs[job_id])
            self.bursts[job_id] = burst

    def give_back(self) -> None:
        """Undo all choices of machines."""
        for job_id, burst in self.bursts.items():
            self.cloud.give_back(burst.option, burst.offer, self.ws.snapshot.jobs[job_id])
        self.bursts.clear()

    def _schedule(self, without: JobId | None = None) -> Schedule:
        left_out = set(self.bursts)
        if without is not None:
            left_out.add(without)
        return schedule_of(
            self.ws, self.choices, self._in_order, self.adoptions, left_out, self._given
        )

    # --- one round ----------------------------------------------------------------------------

    def _accept(self, schedule: Schedule) -> bool:
        """Accept the best candidates of this round; False when there is none."""
        if len(self.waiting) <= _EXACT_BELOW:
            return self._accept_exactly(schedule)
        near, far = self._of_a_long_queue(schedule)
        found = len(near) + len(far)
        if not found:
            return False
        # each round costs a whole schedule: as many are accepted as fits the rounds still left
        budget = self.ws.snapshot.evaluation_budget - self.ws.evaluations
        rounds = min(_ROUNDS, budget // max(len(self.waiting), 1) - 1)
        accepted = False
        closed: set[int] = set()
        for candidate in far.first(-(-found // max(rounds, 1)), near, closed):
            # what the ones before took may have closed it
            id_ = candidate.waiting.job_id
            again = self.cloud.obtainable(candidate.option, self.ws.snapshot.jobs[id_])
            if isinstance(again, Offer):
                self._take(candidate, again)
                accepted = True
            elif id_ not in self.ws.held_for_job:
                closed.add(id(candidate.option))  # to all jobs of the class
        return accepted

    def _of_a_long_queue(self, schedule: Schedule) -> tuple[list[Candidate], Followers]:
        """The candidates whose starts were found, and those whose starts follow one."""
        relief = Relief(self.ws, schedule, self.waiting)
        best: dict[int, tuple[CloudOption, Offer, int] | None] = {}
        far = Followers(
            schedule.starts,
            relief,
            lambda job: self._best(best, job),
            self.ws.policy,
            self._positions,
            self._staying,
        )
        return self._candidates(schedule, relief.of), far

    def _accept_exactly(self, schedule: Schedule) -> bool:
        """Accept the candidate with the largest gain, each found by scheduling without it.

        What others gain is at most what they wait, and those in front gain nothing, so a candidate
        that could not be better than the best so far even then is not looked at.
        """
        candidates = self._candidates(schedule, self._most_shortened(schedule))
        candidates.sort(key=lambda c: (-c.gain, c.position))
        best: Candidate | None = None
        most = max(_EXACT_CANDIDATES, _EXACT_STARTS // max(len(self.waiting), 1))
        for candidate in candidates[:most]:
            if best is not None and candidate.gain <= best.gain:
                break
            judged = self._judged(candidate, schedule)
            if judged is not None and (best is None or self._before(judged, best)):
                best = judged
        if best is None:
            return False
        self._take(best, best.offer)
        return True

    def _judged(self, candidate: Candidate, schedule: Schedule) -> Candidate | None:
        """The candidate with what others truly gain; None if that is not enough."""
        shortened = self._shortened_exactly(candidate, schedule)
        gain = candidate.gain - candidate.shortened + shortened
        judged = replace(candidate, gain=gain, shortened=shortened)
        return judged if self._worth_it(judged) else None

    def _before(self, one: Candidate, other: Candidate) -> bool:
        """Whether to accept one before the other: by gain, because each changes what the others
        would gain."""
        return (-one.gain, one.position) < (-other.gain, other.position)

    def _most_shortened(self, schedule: Schedule) -> Callable[[Start], float]:
        """Bounds of what the others gain when a job leaves: those served after it, whose waits end,
        up to their own alternative."""
        cache: dict[int, tuple[CloudOption, Offer, int] | None] = {}
        behind: dict[JobId, float] = {}
        total = 0.0
        for waiting in reversed(urgent_first(self.ws, self.waiting)):
            behind[waiting.job_id] = total
            start = schedule.starts.get(waiting.job_id)
            if start is None or start.at <= self.ws.now:
                continue
            waits = waiting.cls.value_per_s * (start.at - self.ws.now)
            option = self._best(cache, waiting)
            over = 0.0 if option is None else max(start.micros - option[0].micros, 0.0)
            total += max(waits - over, 0.0)
        return lambda start: behind[start.job_id]

    def _candidates(self, schedule: Schedule, relief: Callable[[Start], float]) -> list[Candidate]:
        """Jobs that a cloud may be worth it for, if others gain as much as ``relief`` says."""
        best: dict[int, tuple[CloudOption, Offer, int] | None] = {}
        found = []
        follows = schedule.starts.follows
        for position, waiting in enumerate(self.waiting):
            id_ = waiting.job_id
            if waiting.cls.deadline_at is None and follows(id_):
                continue  # in a column with others
            if id_ in self.bursts or id_ in self._staying or id_ in self._given:
                continue
            adoption = self.adoptions.get(id_)
            if adoption is not None and not adoption.machines:
                continue
            if waiting.ready_at > self.ws.now and self.ws.moving(id_) is None:
                continue
            start = schedule.starts.get(id_)
            if start is not None and start.type.held:
                continue
            option = self._best(best, waiting)
            if option is None:
                continue
            home = home_micros(self.ws, waiting, start)
            direct = home - option[0].micros
            shortened = 0.0 if start is None else relief(start)
            candidate = Candidate(
                position, waiting, option[0], option[1], start, direct + shortened, shortened,
                option[2],
            )  # fmt: skip
            if self._worth_it(candidate):
                found.append(candidate)
        return found

    def _best(
        self, cache: dict[int, tuple[CloudOption, Offer, int] | None], waiting: Waiting
    ) -> tuple[CloudOption, Offer, int] | None:
        index = waiting.cls.index
        if index not in cache:
            job = self.ws.snapshot.jobs[waiting.job_id]
            found = self.cloud.best(waiting.cls, job)
            cache[index] = None
            if found is not None:
                cache[index] = (*found, found[0].micros - _value_part(waiting, found[0]))
        return cache[index]

    def _worth_it(self, candidate: Candidate) -> bool:
        if math.isinf(candidate.gain):
            return True
        start = candidate.start
        waiting_s = 0.0 if start is None else start.wait.mean_s
        waits = cost_micros(candidate.waiting.cls.value_micros_per_hour, waiting_s)
        refused = burst_rules.gain_refusal(
            math.floor(candidate.gain), waits, self.ws.policy, "waiting"
        )
        return refused is None

    def _take(self, candidate: Candidate, offer: Offer) -> None:
        job = self.ws.snapshot.jobs[candidate.waiting.job_id]
        self.cloud.take(candidate.option, offer, job)
        self.bursts[job.id] = Burst(
            job.id, candidate.option, offer, candidate.start, math.floor(candidate.shortened),
            candidate.gain,
        )  # fmt: skip

    # --- what others gain ---------------------------------------------------------------------

    def _shortened_exactly(self, candidate: Candidate, schedule: Schedule) -> float:
        """What all others save when this job leaves, each at most up to its own alternative."""
        if candidate.start is None:
            return 0.0
        after = self._schedule(without=candidate.waiting.job_id)
        cache: dict[int, tuple[CloudOption, Offer, int] | None] = {}
        saved = 0.0
        for waiting in self.waiting:
            before = schedule.starts.get(waiting.job_id)
            then = after.starts.get(waiting.job_id)
            if before is None or then is None or before.at == then.at:
                continue
            option = self._best(cache, waiting)
            most = _NEVER if option is None else float(option[0].micros)
            saved += min(before.micros, most) - min(then.micros, most)
        return saved

    # --- second thoughts ----------------------------------------------------------------------

    def with_queue(self, waiting: Sequence[Waiting]) -> Schedule | None:
        """The schedule of another queue with the same choices of machines and what starts now
        starting now, as the next plan will find it; None if a choice would not stand."""
        twin = Bursting(self.ws, self.choices, self.cloud, waiting, self.adoptions)
        twin.bursts = self.bursts
        classes = {job.job_id: job.cls for job in waiting}
        placed = [s for s in self.schedule.starts.found.values() if s.at <= self.ws.now]
        twin.schedule = Schedule(self.ws, self.choices)
        for start in placed:
            twin.schedule.take(start, classes[start.job_id])
        coming = {id_ for id_, adoption in self.adoptions.items() if not adoption.machines}
        twin.schedule.run(
            job
            for job in urgent_first(self.ws, waiting)
            if job.job_id not in twin.schedule.starts
            and job.job_id not in self.bursts
            and job.job_id not in coming
        )
        return None if twin._home_after_all(undo=False) else twin.schedule

    def _home_after_all(self, *, undo: bool = True) -> bool:
        """Jobs with machines chosen or on their way take a free slot that nobody else wants, if
        that is cheaper by the margin now. True if a chosen machine is not asked for after all.

        The slot is the job's from then on: placed anew by its rank it would take another's, who
        would go to a cloud for it, or find its own taken and wait, whatever that costs.
        """
        margin = burst_rules.margin_micros(0, self.ws.policy)
        changed = False
        for waiting in self._in_order:
            if waiting.job_id in self._given:
                continue
            burst = self.bursts.get(waiting.job_id)
            adoption = self.adoptions.get(waiting.job_id)
            if burst is not None:
                micros = burst.option.micros
            elif adoption is not None:
                micros = adoption.priced.micros
                own = self.schedule.starts.get(waiting.job_id)
                if adoption.machines and (own is None or not own.type.held):
                    continue  # its machines cannot take it: it waits like any other
                if own is not None and not adoption.machines:
                    continue  # it has its slot already
            else:
                continue
            late = Waiting(
                waiting.job_id, waiting.cls, waiting.ready_at, float(micros - margin), now_only=True
            )
            start = self.schedule.find(late)
            if start is None or home_micros(self.ws, waiting, start) == _NEVER:
                continue
            if adoption is not None and not adoption.machines:
                self.schedule.take(start, waiting.cls)
                continue
            if not undo:
                return True
            changed = True
            if adoption is not None:
                self._decline(waiting, adoption)
                continue
            assert burst is not None
            job = self.ws.snapshot.jobs[waiting.job_id]
            self.cloud.give_back(burst.option, burst.offer, job)
            del self.bursts[waiting.job_id]
            self.schedule.take(start, waiting.cls)
            self._given[waiting.job_id] = start
        return changed

    def _decline(self, waiting: Waiting, adoption: Adoption) -> None:
        """The job is better off at home: its machines are there for others."""
        del self.adoptions[waiting.job_id]
        self._staying.add(waiting.job_id)
        for view in self.ws.nodes:
            if view.claim in adoption.claims:
                view.kept_for = None


def home_micros(ws: Workspace, waiting: Waiting, start: Start | None) -> float:
    """What staying costs; infinite when the job fits nowhere, would miss a deadline that a cloud
    meets, or has failed there too often while a cloud is open to it."""
    if start is None:
        return _NEVER
    if not start.type.held and start.type.pool in ws.shunned.get(waiting.job_id, ()):
        return _NEVER
    cls = waiting.cls
    if cls.deadline_at is not None:
        left_s = cls.deadline_at - ws.now
        finish = start.wait.then(start.run)
        late = spot_rules.deadline_refusal(
            finish.mean_s - left_s, finish.probability_beyond(left_s), ws.policy
        )
        if late is not None:
            return _NEVER
    return start.micros


def _value_part(waiting: Waiting, option: CloudOption) -> int:
    """The part of an option's cost that is time, not money."""
    assert option.priced is not None
    return cost_micros(waiting.cls.value_micros_per_hour, option.priced.finish_in.mean_s)
