"""The order in which pending jobs are served: total, whatever the strategy.

Tiers come first (under every strategy but ``fifo``): jobs past their class's longest wait, by how
long they are past it; then jobs whose deadline leaves no slack; then those that their team's
guarantee covers; then all others. Nobody starves: a job's tier and rank never fall as it ages, and
only finitely many jobs can have become overdue before it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from hybrid.domain.ids import JobId
from hybrid.domain.job import Job
from policies.document import PolicyDocument
from policies.fairshare import demand_gpus
from policies.priority import effective_rank, value_micros_per_hour
from policies.sections import Strategy

_OVERDUE, _NO_SLACK, _GUARANTEED, _OTHERS = range(4)
_LEAST_WIDTH = 0.01
"""GPUs that a job counts as at least: one that asks for none has a width too."""

_BY_SHARE = frozenset({Strategy.FAIR_SHARE, Strategy.BREAK_EVEN})
_COST_DECIDES = frozenset({Strategy.SHORTEST_PREDICTED, Strategy.BREAK_EVEN})
"""Strategies under which jobs that rank alike may be served in whatever order costs least."""

_NOTHING: Mapping[JobId, float] = MappingProxyType({})
_NOBODY: Mapping[str, int] = MappingProxyType({})
_NO_PREFERENCE: Mapping[JobId, int] = MappingProxyType({})


@dataclass(slots=True)
class _Place:
    """One job's sort keys, computed once. ``within`` orders equals: rank, then who came first."""

    job: Job
    rank: float
    runtime_s: float
    demand_gpus: float
    tier: int
    bucket: int
    within: tuple[float, float, str]
    group: tuple[int, float] = (0, 0.0)
    """Its tier, and its bucket there. Overdue jobs share none: only how long they are overdue
    counts among them."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a job stands whatever it costs. Jobs of one ``group`` rank alike, groups are numbered
    from the front; ``open`` where cost may decide among them, with ``team`` only among one team's
    (its turn comes by share)."""

    group: int
    open: bool
    team: str


class Ranking:
    """Jobs by tier, rank and share, and the orders that these allow."""

    def __init__(
        self,
        jobs: Iterable[Job],
        policy: PolicyDocument,
        now: float,
        usage_gpu_s: Mapping[str, float],
        *,
        predicted_s: Mapping[JobId, float] = _NOTHING,
        demand: Mapping[JobId, float] = _NOTHING,
        team_gpus: Mapping[str, int] = _NOBODY,
        no_slack: Collection[JobId] = (),
    ) -> None:
        """``usage_gpu_s`` is each team's decayed usage; ``predicted_s`` expected run times (where
        there is none: the job's own ``expected_runtime``, else its walltime); ``demand`` what jobs
        take in GPU equivalents (where there is none it is worked out); ``team_gpus`` the local GPUs
        each team holds now, for guarantees; ``no_slack`` the jobs that meet their deadline only if
        they are served now."""
        self._policy = policy
        self._usage = usage_gpu_s
        self._strategy = policy.scheduling.strategy
        self._places = [_place(job, policy, now, predicted_s, demand) for job in jobs]
        _guarantee(self._places, policy, team_gpus)
        late = frozenset(no_slack)
        for place in self._places:
            if place.tier > _NO_SLACK and place.job.id in late:
                place.tier = _NO_SLACK
            place.group = _group(place)

    @property
    def by_share(self) -> bool:
        """Whether teams take turns."""
        return self._strategy in _BY_SHARE

    def order(self, preferred: Mapping[JobId, int] = _NO_PREFERENCE) -> tuple[JobId, ...]:
        """All jobs, the one to be served first in front; ties end with the time of submission and
        the id. Where cost may decide, jobs that rank alike go by their number in ``preferred``
        first (a team's own jobs, where teams take turns).

        Within a bucket of equal rank (``fair_share.rank_bucket``) it is the turn of the team with
        the smallest share, and its share grows by what its job will use: many small jobs get a
        team no more than a few large ones.
        """
        if self._strategy is Strategy.FIFO:
            places = sorted(self._places, key=lambda p: (p.job.submitted_at, p.job.id))
            return tuple(p.job.id for p in places)
        places = sorted(self._places, key=lambda p: self._key(p, preferred))
        if self.by_share:
            return tuple(p.job.id for p in _by_share(places, self._policy, self._usage))
        return tuple(p.job.id for p in places)

    def ranks(self) -> dict[JobId, Rank]:
        """Where each job stands."""
        cost_decides = self._strategy in _COST_DECIDES
        groups = sorted({p.group for p in self._places})
        number = {group: position for position, group in enumerate(groups)}
        return {
            p.job.id: Rank(
                number[p.group],
                cost_decides and p.tier == _OTHERS,
                p.job.team if self.by_share else "",
            )
            for p in self._places
        }

    def _key(self, place: _Place, preferred: Mapping[JobId, int]) -> tuple[float | str, ...]:
        match self._strategy:
            case Strategy.PRIORITY:
                return (place.tier, *place.within)
            case Strategy.SHORTEST_PREDICTED:
                equals: tuple[float, ...] = _delay(place, self._policy)
            case Strategy.BEST_FIT:
                equals = (-place.demand_gpus,)
            case _:
                equals = ()
        if preferred and place.tier == _OTHERS and self._strategy in _COST_DECIDES:
            equals = (preferred.get(place.job.id, math.inf), *equals)
        return (*place.group, *equals, *place.within)


def served_first(
    first: Job, second: Job, policy: PolicyDocument, now: float, *, no_slack: Collection[JobId] = ()
) -> bool:
    """Whether ``first`` goes before ``second`` whatever their teams have used: by tier and rank."""
    places = [_place(job, policy, now, _NOTHING, _NOTHING) for job in (first, second)]
    for place in places:
        if place.tier > _NO_SLACK and place.job.id in no_slack:
            place.tier = _NO_SLACK
    before, after = (_group(place) for place in places)
    return before < after


def _place(
    job: Job,
    policy: PolicyDocument,
    now: float,
    predicted_s: Mapping[JobId, float],
    demand: Mapping[JobId, float],
) -> _Place:
    spec = job.spec
    rank = effective_rank(job, policy, now)
    runtime_s = predicted_s.get(job.id)
    if runtime_s is None:
        runtime_s = spec.walltime if spec.expected_runtime is None else spec.expected_runtime
    gpus = demand.get(job.id)
    return _Place(
        job=job,
        rank=rank,
        runtime_s=runtime_s,
        demand_gpus=demand_gpus(spec.resources, policy) if gpus is None else gpus,
        tier=_OVERDUE if rank >= policy.top_rank else _OTHERS,
        bucket=math.floor(rank / policy.fair_share.rank_bucket),
        within=(-rank, job.submitted_at, job.id),
    )


def _group(place: _Place) -> tuple[int, float]:
    return place.tier, -place.rank if place.tier == _OVERDUE else -place.bucket


def _delay(place: _Place, policy: PolicyDocument) -> tuple[float, float]:
    """How long serving the job first keeps the others waiting, per dollar of its own wait: its
    expected run, weighed by a power of what it takes (``width_exponent``), over the value of its
    time. Jobs whose time has no value come last.

    On one machine that is Smith's rule ("Various optimizers for single-stage production", Naval
    Research Logistics Quarterly 1956), which makes the weighted sum of waits least. On many a job
    delays only as many others as it takes machines from; with its size in full a wide job would
    come behind every narrow one. Narrow jobs in front are soon served and leave wide ones, which
    cannot use what is free in parts: with a power below 0 more GPUs are used.
    """
    width = max(place.demand_gpus, _LEAST_WIDTH) ** policy.scheduling.width_exponent
    delay_s = place.runtime_s * width
    micros = value_micros_per_hour(place.job, policy)
    return delay_s / micros if micros > 0 else math.inf, delay_s


def _guarantee(places: list[_Place], policy: PolicyDocument, team_gpus: Mapping[str, int]) -> None:
    """Raise each team's first jobs, as many as fit into what it is guaranteed and lacks."""
    lacking = {
        team: policy.team(team).guaranteed_gpus - team_gpus.get(team, 0)
        for team in {place.job.team for place in places}
    }
    covered = [p for p in places if lacking[p.job.team] > 0]
    for place in sorted(covered, key=lambda p: p.within):
        gpus = place.job.spec.resources.total_gpus
        if 0 < gpus <= lacking[place.job.team]:
            lacking[place.job.team] -= gpus
            place.tier = min(place.tier, _GUARANTEED)


def _by_share(
    places: Sequence[_Place], policy: PolicyDocument, usage_gpu_s: Mapping[str, float]
) -> Iterator[_Place]:
    """Bucket by bucket, which is how the places are sorted; within one, team by team as their
    shares grow, each team's jobs in the order in which they stand."""
    usage = dict(usage_gpu_s)
    weight = {team: policy.team(team).weight for team in {p.job.team for p in places}}
    for _, members in groupby(places, key=lambda p: p.group):
        bucket = list(members)
        queues: dict[str, list[_Place]] = {}
        for place in bucket:
            queues.setdefault(place.job.team, []).append(place)
        for queue in queues.values():
            queue.reverse()
        turns = [
            (usage.get(team, 0.0) / weight[team], *queue[-1].within, team)
            for team, queue in queues.items()
        ]
        heapq.heapify(turns)
        while turns:
            team = turns[0][-1]
            place = queues[team].pop()
            yield place
            usage[team] = usage.get(team, 0.0) + place.demand_gpus * place.runtime_s
            if queues[team]:
                share = usage[team] / weight[team]
                heapq.heapreplace(turns, (share, *queues[team][-1].within, team))
            else:
                heapq.heappop(turns)
