"""Conservative backfill over predicted ends: a start for every pending job, each with its
reservation, in order of rank.

A job starts at the earliest instant at which it harms no reservation made before it, on the node
where that is cheapest: ``rate × time + value × (wait + run)``. Reservations hold devices, cores and
memory on named nodes (Mu'alem & Feitelson, "Utilization, predictability, workloads, and user
runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 2001).

The uncertainty of a start is that of the end it waits for; it is carried along.

Hot: within one pass what is free only shrinks, so whatever a class has been refused stays refused,
and a lower bound found for one job of a class holds for the next.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from hybrid.domain.ids import PoolName
from hybrid.estimation.waits import Duration
from hybrid.planning.choices import (
    Choice,
    Choices,
    Spot,
    Start,
    Waiting,
    devices_for,
    slot_gbps,
    usable_on,
)
from hybrid.planning.classes import JobClass
from hybrid.planning.frontier import EDGES_S, Frontier, edge_index
from hybrid.planning.gangs import gang_start
from hybrid.planning.packing import Packing, Score
from hybrid.planning.shares import Shares
from hybrid.planning.starts import Lead, Starts
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace

_NO_WAIT = Duration(0.0)

_ALIKE = 8
"""Nodes, of those equally good for a job by what is free on them, that are told apart by when their
runs end."""

EXACT_STARTS = 1_000
"""Jobs in front of the queue that get reservations of their own. Behind them the first of each
class does, and the others follow it."""


@dataclass(slots=True)
class Refusals:
    """Where no start is possible now, for all classes that take as much of the same nodes.

    ``by_node`` has the shortest run that a node has refused, ``by_all`` the shortest that all have:
    what is refused to a run is refused to every longer one.
    """

    free_now: bool
    """Whether enough devices of any of the nodes are free at all, before the pass."""
    by_node: dict[int, float] = field(default_factory=dict)
    by_all: float = math.inf


@dataclass(slots=True)
class ChoiceState:
    """What one pass has found out about a choice of a class."""

    choice: Choice
    dead: bool = False
    """No node of it can be started on now."""
    known: dict[int, float] = field(default_factory=dict)
    """Lower bounds of a start of this class, by node."""
    frontier: Frontier | None = None
    refusals: Refusals | None = None


@dataclass(slots=True)
class ClassView:
    """A class in one pass."""

    cls: JobClass
    states: list[ChoiceState]
    closed: bool = False
    """No choice of it can be started on now."""
    hopes: list[tuple[float, int]] | None = None
    """A heap of (what owned choices cost at best, their positions): lower bounds."""
    _by_machines: dict[str, list[ChoiceState]] | None = None

    def on(self, machines: str) -> list[ChoiceState]:
        """What there is on one gang of machines held already."""
        if self._by_machines is None:
            self._by_machines = {}
            for state in self.states:
                self._by_machines.setdefault(state.choice.types[0].gang, []).append(state)
        return self._by_machines.get(machines, [])


class Schedule:
    """One pass. ``starts`` has an entry for every job that can start at all."""

    def __init__(self, ws: Workspace, choices: Choices) -> None:
        self.ws = ws
        self.now = ws.now
        self.choices = choices
        self.lines: list[Timeline] = list(ws.lines)
        self.starts = Starts()
        self._owned = [False] * len(self.lines)
        self._shares = Shares(ws)
        self._packing = Packing(ws, self.lines)
        self._views: dict[int, ClassView] = {}
        self._frontiers: dict[tuple[int, int, int, int], Frontier] = {}
        self._refusals: dict[tuple[object, ...], Refusals] = {}
        self._versions = [0] * len(self.lines)
        self._last: dict[int, Lead] = {}
        """The last exact start of each class that is not now."""
        self._work: dict[PoolName, float] = {}
        """Work of estimated starts, in seconds of the whole pool."""
        self._gpus: dict[PoolName, int] = {}

    def run(self, waiting: Iterable[Waiting]) -> Schedule:
        """Schedule the jobs, in order. Far back in a long queue starts are estimated."""
        for position, job in enumerate(waiting):
            if position >= EXACT_STARTS and self._far_back(job):
                continue
            start = self.find(job)
            if start is not None:
                self.take(start, job.cls)
                if start.at > self.now and job.ready_at <= self.now:
                    pool = start.type.pool
                    work_s = job.cls.gpus_at(start.share) * start.run.mean_s / self._pool_gpus(pool)
                    before_s = self._work.get(pool, 0.0)
                    self._last[job.cls.index] = self.starts.lead(job.cls, start, before_s, work_s)
        self.ws.evaluations += len(self.starts.jobs)
        return self

    def _far_back(self, job: Waiting) -> bool:
        """Whether the job gets a start behind the last one of its class, later by the work that has
        come between over the pool's GPUs; False where there is none to go by, or the job could
        start now.

        No reservation is made: so far back it would hold nothing that anybody before could want.
        """
        lead = self._last.get(job.cls.index)
        if lead is None or job.ready_at > self.now:
            return False
        cls = job.cls
        if cls.nodes == 1 and not cls.need.shared:
            view = self._view(cls)
            if not view.closed and self._at_once(job, view) is not None:
                return False
        pool = lead.start.type.pool
        work = self._work.get(pool, 0.0)
        self._work[pool] = work + lead.work_s
        self.starts.follow(job, lead, work - lead.work_before_s)
        return True

    def _pool_gpus(self, pool: PoolName) -> int:
        found = self._gpus.get(pool)
        if found is None:
            masks = (v.type.shape.healthy for v in self.ws.nodes if v.type.pool == pool)
            found = self._gpus[pool] = max(sum(mask.bit_count() for mask in masks), 1)
        return found

    def find(self, job: Waiting) -> Start | None:
        """The job's cheapest start that harms nobody scheduled before it."""
        self.ws.evaluations += 1
        view = self._view(job.cls)
        if job.machines:
            view = ClassView(job.cls, view.on(job.machines))
        best = self._best(job, view)
        if best is None or best.micros > job.limit_micros:
            return None
        return None if job.now_only and best.at > self.now else best

    def find_among(self, job: Waiting, choices: Iterable[Choice]) -> Start | None:
        """The job's cheapest start on some of the choices of its class alone."""
        return self._best(job, ClassView(job.cls, [ChoiceState(choice) for choice in choices]))

    def _best(self, job: Waiting, view: ClassView) -> Start | None:
        if job.cls.nodes > 1:
            return gang_start(self, job, view.states)
        if job.cls.need.shared:
            return self._share(job, view)
        return self._single(job, view)

    def take(self, start: Start, cls: JobClass) -> None:
        """Hold what a start needs."""
        self.starts.found[start.job_id] = start
        variance = start.wait.sd_s**2 + start.run.sd_s**2
        end = start.at + start.run.mean_s
        need = cls.need
        for node, mask in zip(start.nodes, start.masks, strict=True):
            line = self._own(node)
            if start.share < 1:
                self._shares.take(line, node, mask, start, variance)
                mask = 0
            line.hold(start.at, end, mask, need.cpus, need.host_memory_gib, variance=variance)
            self._versions[node] += 1
            self._shares.changed.add(node)
            if start.at <= self.now:
                self._packing.changed(self.ws.nodes[node].type.index, node)

    def open_to(self, job: Waiting, node: int) -> bool:
        """Whether a machine is there for this job, if it is one that was asked for."""
        view = self.ws.nodes[node]
        if view.claim is None:
            return True
        # what its own job leaves free there is for others of the team
        waits = view.kept_for is not None and view.kept_for not in self.starts
        return self.ws.may_use_held(job.job_id, view, kept=waits)

    def spot(self, job: Waiting, choice: Choice, node: int, after: float) -> Spot | None:
        """The first instant from ``after`` on at which the node takes one rank of the job."""
        need, fit = job.cls.need, choice.fit
        usable = None
        if need.gpus > 1:
            usable = usable_on(job.cls, self.ws.nodes[node].type, choice)
        return self.lines[node].earliest(
            after, choice.run.mean_s, fit.allowed, need.gpus, need.cpus, need.host_memory_gib,
            usable,
        )  # fmt: skip

    # --- one node -----------------------------------------------------------------------------

    def _single(self, job: Waiting, view: ClassView) -> Start | None:
        best = None
        if job.ready_at <= self.now and not view.closed:
            best = self._at_once(job, view)
        if job.now_only:
            return best
        if best is not None and best.micros <= view.states[0].choice.base_micros:
            return best
        limit = best.micros if best is not None else math.inf
        if job.ready_at > self.now:
            later = self._delayed(job, view, limit)
        else:
            later = self._later(job, view, limit)
        return best if later is None else later

    def _at_once(self, job: Waiting, view: ClassView) -> Start | None:
        """The best start now: choices by cost, then, over all that cost the same, nodes in packing
        order."""
        best: tuple[Score, Start] | None = None
        for state in view.states:
            if best is not None and state.choice.base_micros > best[1].micros:
                break
            found = None if state.dead else self._first_fitting(job, state)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            view.closed = all(state.dead for state in view.states)
            return None
        return best[1]

    def _first_fitting(self, job: Waiting, state: ChoiceState) -> tuple[Score, Start] | None:
        """The first node of a choice in packing order on which the job starts now; of the first
        few that are equally good the one whose runs end last together with it, so that machines
        come free as a whole."""
        need, choice = job.cls.need, state.choice
        refusals, run_s = self._refusals_of(state, job.cls), choice.run.mean_s
        fitting: list[tuple[Score, Start]] = []
        kept = False
        if refusals.free_now and run_s < refusals.by_all:
            for score, node in self._packing.best_first(choice, need.gpus, need.link):
                if fitting and (score != fitting[0][0] or len(fitting) == _ALIKE):
                    break
                if refusals.by_node.get(node, math.inf) <= run_s:
                    continue
                if not self.open_to(job, node):
                    kept = True
                    continue
                start = self._start_on(job, choice, node)
                if start is not None:
                    fitting.append((score, start))
                else:
                    refusals.by_node[node] = run_s
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                return min(fitting, key=lambda one: self._out_of_step(one[1]))
            if not kept:
                refusals.by_all = run_s
        state.dead = not kept
        return None

    def _out_of_step(self, start: Start) -> tuple[float, float]:
        """By how much a start on one node would keep it from being free as a whole, and how far its
        end is from when the node would be: both in seconds."""
        node = start.nodes[0]
        free_at = self.lines[node].all_free_at(self.ws.nodes[node].type.shape.healthy)
        end = start.at + start.run.mean_s
        return max(end - free_at, 0.0), abs(end - free_at)

    def _refusals_of(self, state: ChoiceState, cls: JobClass) -> Refusals:
        """What is known to all that take as much of the same nodes as the class does."""
        if state.refusals is not None:
            return state.refusals
        choice = state.choice
        need, fit = cls.need, choice.fit
        key = (
            choice.place, fit.allowed, fit.link_gbps, need.gpus, need.link, need.cpus,
            need.host_memory_gib,
        )  # fmt: skip
        found = self._refusals.get(key)
        if found is None:
            soonest = self.choices.first_free(choice, need.gpus)
            found = self._refusals[key] = Refusals(bool(soonest) and soonest[0][0] <= self.now)
        state.refusals = found
        return found

    def _start_on(self, job: Waiting, choice: Choice, node: int) -> Start | None:
        """A start now on a node, if what it takes stays free for long enough."""
        need = job.cls.need
        line = self.lines[node]
        type_ = self.ws.nodes[node].type
        run_s = choice.run.mean_s
        free = line.free_throughout(self.now, run_s, need.cpus, need.host_memory_gib)
        if free is None:
            return None
        mask = 0
        if need.gpus:
            allowed = free & choice.fit.allowed
            if allowed.bit_count() < need.gpus:
                return None
            if need.mig_profile is not None:
                instance = self.ws.instances.best(type_.shape, choice.fit.allowed, free)
                if instance is None:
                    return None
                mask = instance.mask
            else:
                found = type_.shape.table.choose(
                    allowed, need.gpus, link=need.link, min_gbps=slot_gbps(choice.fit)
                )
                if found is None:
                    return None
                mask = found.mask
        return Start(
            job.job_id, self.now, _NO_WAIT, choice.run, (node,), (mask,), choice.fit.model,
            choice.speed, choice.base_micros, type_, choice.fit.share,
        )  # fmt: skip

    def _later(self, job: Waiting, view: ClassView, limit: float) -> Start | None:
        """The cheapest start on an owned node, now or later, below ``limit``.

        Hot: what a choice costs at best only grows in one pass, so the choices stay in a heap and
        only those that come to the top are looked at again.
        """
        value, now = job.cls.value_per_s, self.now
        hopes = view.hopes
        if hopes is None:
            owned = enumerate(state.choice for state in view.states)
            hopes = [(choice.base_micros, index) for index, choice in owned if not choice.held]
            heapq.heapify(hopes)
            view.hopes = hopes
        best: tuple[Choice, int, Spot] | None = None
        tried = []
        while hopes and hopes[0][0] < limit:
            hope, index = hopes[0]
            state = view.states[index]
            base = state.choice.base_micros
            soonest = self.frontier(state, job.cls).soonest()
            at_best = math.inf if soonest == math.inf else base + value * (soonest - now)
            if at_best > hope:
                heapq.heapreplace(hopes, (at_best, index))
                continue
            tried.append(heapq.heappop(hopes))
            found = self._search(job, state, limit)
            if found is not None:
                best = (state.choice, *found)
                limit = base + value * (found[1][0] - now)
        for entry in tried:
            heapq.heappush(hopes, entry)
        return None if best is None else self._start_at(job, *best)

    def _search(self, job: Waiting, state: ChoiceState, limit: float) -> tuple[int, Spot] | None:
        """The node of a choice on which the job starts soonest, if that costs less than
        ``limit``; of several the one with the lowest index."""
        choice, frontier = state.choice, self.frontier(state, job.cls)
        value = job.cls.value_per_s
        latest = math.inf
        if value > 0:
            latest = self.now + (limit - choice.base_micros) / value
        best: tuple[float, int] | None = None
        spot_there: Spot | None = None
        aside = []
        while True:
            soonest = frontier.soonest()
            if soonest > latest or soonest == math.inf or (best and soonest > best[0]):
                break
            bound, node = frontier.pop()
            aside.append((bound, node))
            known = max(bound, state.known.get(node, bound))
            if known > latest or (best and (known, node) > best):
                continue
            spot = self.spot(job, choice, node, known)
            state.known[node] = math.inf if spot is None else spot[0]
            if spot is None or (best and (spot[0], node) >= best):
                continue
            if choice.base_micros + value * (spot[0] - self.now) < limit:
                best, spot_there = (spot[0], node), spot
        for bound, node in aside:
            frontier.push(bound, node)
        return None if best is None or spot_there is None else (best[1], spot_there)

    def frontier(self, state: ChoiceState, cls: JobClass) -> Frontier:
        """The frontier that a choice of a class shares with others of its kind."""
        if state.frontier is None:
            choice, count = state.choice, cls.need.gpus
            edge = edge_index(choice.run.mean_s)
            key = (choice.place, choice.fit.allowed, count, edge)
            state.frontier = self._frontiers.get(key)
            if state.frontier is None:
                state.frontier = self._frontiers[key] = Frontier(
                    self.lines,
                    self._versions,
                    self.choices.first_free(choice, count),
                    choice.fit.allowed,
                    count,
                    EDGES_S[edge],
                )
        return state.frontier

    def _delayed(self, job: Waiting, view: ClassView, limit: float) -> Start | None:
        """The same for a job that is not ready yet; few are, so all nodes are tried."""
        best: Start | None = None
        for state in view.states:
            choice = state.choice
            if choice.held:
                continue
            for node in choice.members:
                spot = self.spot(job, choice, node, job.ready_at)
                if spot is None:
                    continue
                start = self._start_at(job, choice, node, spot)
                if start.micros < limit:
                    best, limit = start, start.micros
        return best

    def _start_at(self, job: Waiting, choice: Choice, node: int, spot: Spot) -> Start:
        at, free, variance = spot
        type_ = self.ws.nodes[node].type
        mask = devices_for(type_, job, choice, free)
        wait = Duration(at - self.now, math.sqrt(variance)) if at > self.now else _NO_WAIT
        micros = choice.base_micros + job.cls.value_per_s * wait.mean_s
        return Start(
            job.job_id, at, wait, choice.run, (node,), (mask,), choice.fit.model, choice.speed,
            micros, type_, choice.fit.share,
        )  # fmt: skip

    def _share(self, job: Waiting, view: ClassView) -> Start | None:
        """A share goes where it can go now, unless it is cheaper to wait: for room beside other
        shares, or for a device as if it took it whole."""
        now = self._shares.find(self, job, view.states)
        whole = self._single(job, view)
        if now is not None and (whole is None or now.micros <= whole.micros):
            return now
        if job.ready_at > self.now:
            return whole
        limit = math.inf if whole is None else whole.micros
        return self._shares.later(self, job, view.states, limit) or whole

    def _view(self, cls: JobClass) -> ClassView:
        view = self._views.get(cls.index)
        if view is None:
            states = [ChoiceState(choice) for choice in self.choices.of(cls)]
            view = self._views[cls.index] = ClassView(cls, states)
        return view

    def _own(self, node: int) -> Timeline:
        if not self._owned[node]:
            self.lines[node] = self.lines[node].copy()
            self._owned[node] = True
        return self.lines[node]
