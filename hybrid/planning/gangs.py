"""Gangs: all machines or none, of one model, at once, in the lowest common network domain."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hybrid.estimation.waits import Duration
from hybrid.planning.choices import Spot, Start, Waiting, devices_for

if TYPE_CHECKING:
    from hybrid.planning.schedule import ChoiceState, Schedule

ROUNDS = 200
"""Instants tried for one gang before it is given up for this plan."""


def gang_start(schedule: Schedule, job: Waiting, states: Sequence[ChoiceState]) -> Start | None:
    """The cheapest start of a gang."""
    best: Start | None = None
    for state in states:
        if best is not None and state.choice.base_micros >= best.micros:
            break
        start = _start_on(schedule, job, state)
        if start is not None and (best is None or start.micros < best.micros):
            best = start
    return best


def _start_on(schedule: Schedule, job: Waiting, state: ChoiceState) -> Start | None:
    choice = state.choice
    if choice.held and not all(schedule.open_to(job, node) for node in choice.members):
        return None
    search = _Search(schedule, job, state)
    found = search.run()
    search.put_back()
    return found


class _Search:
    """One gang on one choice: nodes are taken from the frontier as they are needed."""

    def __init__(self, schedule: Schedule, job: Waiting, state: ChoiceState) -> None:
        self.schedule = schedule
        self.job = job
        self.choice = state.choice
        self.known = state.known
        self.frontier = schedule.frontier(state, job.cls)
        self.begin = max(job.ready_at, schedule.now)
        self.bounds: dict[int, float] = {}
        """Nodes taken from the frontier, with their bounds there."""
        self._spots: dict[int, tuple[float, Spot | None]] = {}
        """The last spot found on each node, and the instant from which it was looked for."""

    def run(self) -> Start | None:
        """The first instant at which enough nodes are free together, and the nodes to take."""
        wanted, now = self.job.cls.nodes, self.schedule.now
        after = self.begin
        for _ in range(ROUNDS):
            starts = self._known(after)
            while (soonest := self.frontier.soonest()) < math.inf and (
                len(starts) < wanted or soonest < starts[wanted - 1][0]
            ):
                self._look(after, starts)
            if len(starts) < wanted:
                return None
            at = starts[wanted - 1][0]
            if at <= now:
                # look at all that are free now, to choose a network domain among them
                while self.frontier.soonest() <= at:
                    self._look(after, starts)
            elif self.choice.held:
                return None
            together, later = self._together(starts, at)
            if len(together) >= wanted:
                return self._start(at, together)
            later = min(later, max(self.frontier.soonest(), at))
            if not at < later < math.inf:
                return None
            after = later
        return None

    def put_back(self) -> None:
        """Return the nodes looked at to the frontier."""
        for node, bound in self.bounds.items():
            self.frontier.push(bound, node)

    def _spot(self, node: int, after: float) -> Spot | None:
        """The first instant from ``after`` on at which the node takes one rank. Hot: one found from
        an earlier instant on is still the first if it lies no earlier than ``after``."""
        from_, spot = self._spots.get(node, (math.inf, None))
        if from_ > after or (spot is not None and spot[0] < after):
            spot = self.schedule.spot(self.job, self.choice, node, after)
            self._spots[node] = after, spot
        return spot

    def _known(self, after: float) -> list[tuple[float, int]]:
        found = []
        for node in self.bounds:
            spot = self._spot(node, after)
            if spot is not None:
                found.append((spot[0], node))
        found.sort()
        return found

    def _look(self, after: float, starts: list[tuple[float, int]]) -> None:
        bound, node = self.frontier.pop()
        self.bounds[node] = bound
        known = max(bound, self.known.get(node, bound))
        spot = self._spot(node, max(known, after))
        if after <= self.schedule.now:
            # found from now on, it holds for every later job of the class
            self.known[node] = math.inf if spot is None else spot[0]
        if spot is not None:
            insort(starts, (spot[0], node))

    def _together(self, starts: Sequence[tuple[float, int]], at: float) -> tuple[list[int], float]:
        """Nodes that are free at ``at`` for long enough, and the next instant at which another
        one could be."""
        free, later = [], math.inf
        for first, node in starts:
            begins: float | None = first
            if first < at:
                spot = self._spot(node, at)
                begins = None if spot is None else spot[0]
            if begins == at:
                free.append(node)
            elif begins is not None:
                later = min(later, begins)
        return free, later

    def _start(self, at: float, together: list[int]) -> Start:
        schedule, job, choice = self.schedule, self.job, self.choice
        if at <= schedule.now:
            nodes = _one_domain(schedule, together, job.cls.nodes)
        else:
            # a reservation must not move when others are placed meanwhile: by index alone
            nodes = sorted(together)[: job.cls.nodes]
        masks, variance = [], 0.0
        for node in nodes:
            spot = self._spot(node, at)
            assert spot is not None
            masks.append(devices_for(schedule.ws.nodes[node].type, job, choice, spot[1]))
            variance = max(variance, spot[2])
        wait_s = at - schedule.now
        wait = Duration(wait_s, math.sqrt(variance) if wait_s > 0 else 0.0)
        micros = choice.base_micros + job.cls.value_per_s * wait_s
        return Start(
            job.job_id, at, wait, choice.run, tuple(nodes), tuple(masks), choice.fit.model,
            choice.speed, micros, schedule.ws.nodes[nodes[0]].type,
        )  # fmt: skip


def _one_domain(schedule: Schedule, candidates: list[int], wanted: int) -> list[int]:
    """As many as the gang has machines, in the lowest network domain that has enough: a rack, a
    block, else the pool; of several domains the one with least to spare. In rank order: neighbours
    in rank are neighbours in the network."""
    views = schedule.ws.nodes
    pool = candidates
    keys: tuple[Callable[[int], tuple[str, ...]], ...] = (
        lambda n: (views[n].node.block, views[n].node.rack),
        lambda n: (views[n].node.block,),
    )
    for key in keys:
        domains: dict[tuple[str, ...], list[int]] = {}
        for node in pool:
            name = key(node)
            if name[-1]:
                domains.setdefault(name, []).append(node)
        fitting = [(len(n), name) for name, n in domains.items() if len(n) >= wanted]
        if fitting:
            pool = domains[min(fitting)[1]]
            break
    fullest = sorted(pool, key=lambda n: (schedule.lines[n].masks[0].bit_count(), views[n].id))
    return sorted(
        fullest[:wanted],
        key=lambda n: (views[n].node.block, views[n].node.rack, views[n].id),
    )
