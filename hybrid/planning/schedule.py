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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hybrid.domain.ids import JobId, NodeId
from hybrid.domain.job_spec import LinkClass
from hybrid.estimation.waits import Duration
from hybrid.planning.classes import JobClass
from hybrid.planning.fit import Fit
from hybrid.planning.options import HeldOption, held_option
from hybrid.planning.packing import Packing
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import NodeType, Workspace
from policies.sections import Spread

_ROUNDS = 200
"""Instants tried for one gang before it is given up for this plan."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that wants to start: not before ``ready_at``, not unless it costs at most
    ``limit_micros`` (and then only now) if that is set."""

    job_id: JobId
    cls: JobClass
    ready_at: float
    limit_micros: float = math.inf
    now_only: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a job can start. ``masks[rank]`` are its devices on ``nodes[rank]``.

    ``micros`` is what it costs there, waiting included; ``wait`` is from now on.
    """

    job_id: JobId
    at: float
    wait: Duration
    run: Duration
    nodes: tuple[int, ...]
    masks: tuple[int, ...]
    model: str
    speed: float
    micros: float
    type: NodeType
    share: float = 1.0


@dataclass(slots=True)
class _Option:
    """A type of node (or several, for a gang) on which a class fits: devices, time and cost."""

    fit: Fit
    types: tuple[NodeType, ...]
    speed: float
    run: Duration
    base_micros: float
    members: list[int]
    dead: bool = False
    refused: set[int] = field(default_factory=set)
    heap: list[tuple[float, int]] | None = None


@dataclass(slots=True)
class _ClassView:
    cls: JobClass
    options: list[_Option]
    future: list[tuple[float, float, int, int]] | None = None
    """(cost bound, start bound, node, option), of jobs on one node."""


class Schedule:
    """One pass. ``starts`` has an entry for every job that can start at all."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        self.now = ws.now
        self.lines: list[Timeline] = list(ws.lines)
        self._owned = [False] * len(self.lines)
        self.shared: list[dict[int, float]] = [dict(view.shared) for view in ws.nodes]
        self.shared_until = dict(ws.shared_until)
        spread = ws.policy.placement.strategy is Spread.SPREAD
        self._packing = Packing(
            self.lines, [view.type.shape for view in ws.nodes], spread=spread
        )
        self._views: dict[int, _ClassView] = {}
        self.starts: dict[JobId, Start] = {}
        self.released: set[JobId] = set()
        """Jobs that start elsewhere than on the machines asked for them."""

    def run(self, waiting: Iterable[Waiting]) -> Schedule:
        """Schedule the jobs, in order."""
        for job in waiting:
            start = self.find(job)
            if start is not None:
                self.take(start, job.cls)
                self.starts[job.job_id] = start
        return self

    def find(self, job: Waiting) -> Start | None:
        """The job's cheapest start that harms nobody scheduled before it."""
        self.ws.evaluations += 1
        view = self._view(job.cls)
        if job.cls.nodes > 1:
            best = self._gang(job, view)
        elif job.cls.need.share < 1:
            best = self._share(job, view)
        else:
            best = self._single(job, view)
        if best is None or best.micros > job.limit_micros:
            return None
        if job.now_only and best.at > self.now:
            return None
        return best

    def take(self, start: Start, cls: JobClass) -> None:
        """Hold what a start needs."""
        variance = start.wait.sd_s**2 + start.run.sd_s**2
        end = start.at + start.run.mean_s
        need = cls.need
        for node, mask in zip(start.nodes, start.masks, strict=True):
            line = self._own(node)
            if start.share < 1:
                self._take_share(node, mask, start, end)
                line.hold(start.at, end, 0, need.cpus, need.host_memory_gib, variance=variance)
            else:
                line.hold(
                    start.at, end, mask, need.cpus, need.host_memory_gib, variance=variance
                )
            self._packing.changed(self.ws.nodes[node].type.index, node)

    # --- one node -----------------------------------------------------------------------------

    def _single(self, job: Waiting, view: _ClassView) -> Start | None:
        best: Start | None = None
        if job.ready_at <= self.now:
            best = self._now(job, view)
        if job.now_only:
            return best
        cheapest = view.options[0].base_micros if view.options else math.inf
        if best is not None and best.micros <= cheapest:
            return best
        later = self._later(job, view, best.micros if best is not None else math.inf)
        return best if later is None else later

    def _now(self, job: Waiting, view: _ClassView) -> Start | None:
        """The best start at once: options by cost, then nodes in packing order."""
        need = job.cls.need
        for option in view.options:
            if option.dead:
                continue
            kept = False
            type_ = option.types[0]
            for _, node in self._packing.best_first(
                type_.index, option.members, option.fit, need.gpus, need.link
            ):
                if node in option.refused:
                    continue
                if not self._open_to(job, node):
                    kept = True
                    continue
                start = self._start_now(job, option, node)
                if start is not None:
                    return start
                option.refused.add(node)
            option.dead = not kept
        return None

    def _start_now(self, job: Waiting, option: _Option, node: int) -> Start | None:
        need = job.cls.need
        line = self.lines[node]
        run, speed = option.run, option.speed
        free = line.free_throughout(self.now, run.mean_s, need.cpus, need.host_memory_gib)
        if free is None:
            return None
        type_ = self.ws.nodes[node].type
        mask = 0
        if need.gpus:
            allowed = free & option.fit.allowed
            if allowed.bit_count() < need.gpus:
                return None
            choice = type_.shape.table.choose(allowed, need.gpus, link=need.link)
            if choice is None:
                return None
            mask = choice.mask
            if choice.bottleneck_gbps != option.fit.link_gbps and not type_.held:
                speed = job.cls.speed(option.fit.model, choice.bottleneck_gbps)
                run = job.cls.run_time(option.fit.model, speed)
                free = line.free_throughout(self.now, run.mean_s, need.cpus, need.host_memory_gib)
                if free is None or mask & ~free:
                    return None
        micros = option.base_micros
        if run is not option.run and not type_.held:
            micros = self._local_micros(job.cls, type_, run)
        return Start(
            job.job_id, self.now, Duration(0.0), run, (node,), (mask,), option.fit.model, speed,
            micros, type_,
        )  # fmt: skip

    def _later(self, job: Waiting, view: _ClassView, limit: float) -> Start | None:
        """The cheapest start on an owned node, now or later, below ``limit``."""
        if job.ready_at > self.now:
            return self._delayed(job, view, limit)
        heap = self._future(view)
        value = job.cls.value_per_s
        while heap and heap[0][0] < limit:
            _, bound, node, index = heap[0]
            option = view.options[index]
            spot = self._spot(job, option, node, bound)
            if spot is None:
                heapq.heappop(heap)
            elif spot[0] == bound:
                return self._start_later(job, option, node, spot)
            else:
                # what is free only shrinks: what was found is a bound for the next job as well
                at = spot[0]
                heapq.heapreplace(
                    heap, (option.base_micros + value * (at - self.now), at, node, index)
                )
        return None

    def _delayed(self, job: Waiting, view: _ClassView, limit: float) -> Start | None:
        """The same for a job that is not ready yet; few are, so all nodes are tried."""
        best: Start | None = None
        for option in view.options:
            if option.types[0].held:
                continue
            for node in option.members:
                spot = self._spot(job, option, node, job.ready_at)
                if spot is None:
                    continue
                start = self._start_later(job, option, node, spot)
                if start.micros < limit:
                    best, limit = start, start.micros
        return best

    def _start_later(
        self, job: Waiting, option: _Option, node: int, spot: tuple[float, int, float]
    ) -> Start:
        at, mask, variance = spot
        need = job.cls.need
        type_ = self.ws.nodes[node].type
        chosen = 0
        if need.gpus:
            choice = type_.shape.table.choose(
                mask & option.fit.allowed, need.gpus, link=need.link
            )
            chosen = choice.mask if choice is not None else 0
        wait = Duration(at - self.now, math.sqrt(variance) if at > self.now else 0.0)
        micros = option.base_micros + job.cls.value_per_s * wait.mean_s
        return Start(
            job.job_id, at, wait, option.run, (node,), (chosen,), option.fit.model, option.speed,
            micros, type_,
        )  # fmt: skip

    def _future(self, view: _ClassView) -> list[tuple[float, float, int, int]]:
        if view.future is None:
            need, value = view.cls.need, view.cls.value_per_s
            heap = []
            for index, option in enumerate(view.options):
                if option.types[0].held:
                    continue
                for node in option.members:
                    line = self.lines[node]
                    at = self.now
                    if need.gpus:
                        at = _first_free(line, option.fit.allowed, need.gpus)
                    heap.append((option.base_micros + value * (at - self.now), at, node, index))
            heapq.heapify(heap)
            view.future = heap
        return view.future

    # --- shares of one device -----------------------------------------------------------------

    def _share(self, job: Waiting, view: _ClassView) -> Start | None:
        """A share goes beside other shares where there is room, the tightest room first; else it
        opens a device as if it took it whole."""
        need = job.cls.need
        if job.ready_at <= self.now:
            for option in view.options:
                best: tuple[tuple[float, int, int], Start] | None = None
                for node in option.members:
                    if not self._open_to(job, node):
                        continue
                    for device, free in self.shared[node].items():
                        if not option.fit.allowed >> device & 1 or free + 1e-9 < need.share:
                            continue
                        start = self._share_now(job, option, node, device)
                        key = (free - need.share, node, device)
                        if start is not None and (best is None or key < best[0]):
                            best = (key, start)
                if best is not None:
                    return best[1]
        whole = self._single(job, view)
        return None if whole is None else _as_share(whole, need.share)

    def _share_now(self, job: Waiting, option: _Option, node: int, device: int) -> Start | None:
        need = job.cls.need
        line = self.lines[node]
        end = self.now + option.run.mean_s
        until = self.shared_until.get((node, device), self.now)
        run_s = option.run.mean_s
        if line.free_throughout(self.now, run_s, need.cpus, need.host_memory_gib) is None:
            return None
        if end > until:
            free = line.free_throughout(until, end - until, 0.0, 0.0)
            if free is None or not free >> device & 1:
                return None
        type_ = self.ws.nodes[node].type
        return Start(
            job.job_id, self.now, Duration(0.0), option.run, (node,), (1 << device,),
            option.fit.model, option.speed, option.base_micros, type_,
            need.share,
        )  # fmt: skip

    def _take_share(self, node: int, mask: int, start: Start, end: float) -> None:
        device = mask.bit_length() - 1
        line = self.lines[node]
        until = self.shared_until.get((node, device))
        variance = start.wait.sd_s**2 + start.run.sd_s**2
        if start.at > self.now or device not in self.shared[node]:
            line.hold(start.at, end, mask, 0.0, 0.0, variance=variance)
        elif until is not None and end > until:
            line.hold(until, end, mask, 0.0, 0.0, variance=variance)
        if start.at <= self.now:
            left = self.shared[node].get(device, 1.0) - start.share
            self.shared[node][device] = left
            self.shared_until[node, device] = max(until or 0.0, end)

    # --- gangs --------------------------------------------------------------------------------

    def _gang(self, job: Waiting, view: _ClassView) -> Start | None:
        """All machines or none, of one model, at one instant."""
        best: Start | None = None
        for option in view.options:
            if best is not None and option.base_micros >= best.micros:
                break
            start = self._gang_on(job, option)
            if start is not None and (best is None or start.micros < best.micros):
                best = start
        return best

    def _gang_on(self, job: Waiting, option: _Option) -> Start | None:
        if option.heap is None:
            option.heap = [(self.now, node) for node in option.members]
        heap = option.heap
        held = option.types[0].held
        wanted = job.cls.nodes
        if held and not all(self._open_to(job, node) for node in option.members):
            return None
        after = max(job.ready_at, self.now)
        known: dict[int, tuple[float, int, float]] = {}
        found: Start | None = None
        for _ in range(_ROUNDS):
            starts = sorted(
                (spot[0], node)
                for node in known
                if (spot := self._spot(job, option, node, after)) is not None
            )
            while heap and (len(starts) < wanted or heap[0][0] <= starts[wanted - 1][0]):
                bound, node = heapq.heappop(heap)
                spot = self._spot(job, option, node, max(bound, after))
                if spot is None:
                    continue
                known[node] = spot
                starts.append((spot[0], node))
                starts.sort()
            if len(starts) < wanted:
                break
            at = starts[wanted - 1][0]
            if held and at > self.now:
                break
            together = [
                (node, spot)
                for node, spot in self._spots(job, option, starts, at)
                if spot[0] == at
            ]
            if len(together) >= wanted:
                found = self._gang_start(job, option, at, together)
                break
            after = min(
                [spot[0] for _, spot in self._spots(job, option, starts, at) if spot[0] > at]
                + [bound for bound, _ in heap[:1] if bound > at],
                default=at,
            )
            if after <= at:
                break
        for node, spot in known.items():
            # the first instant found is a bound for the next job of the class, unless this one
            # was not ready before
            bound = spot[0] if job.ready_at <= self.now else self.now
            heapq.heappush(heap, (bound, node))
        return found

    def _spots(
        self, job: Waiting, option: _Option, starts: list[tuple[float, int]], after: float
    ) -> list[tuple[int, tuple[float, int, float]]]:
        found = ((node, self._spot(job, option, node, after)) for _, node in starts)
        return [(node, spot) for node, spot in found if spot is not None]

    def _spot(
        self, job: Waiting, option: _Option, node: int, after: float
    ) -> tuple[float, int, float] | None:
        need = job.cls.need
        shape = self.ws.nodes[node].type.shape
        return self.lines[node].earliest(
            after,
            option.run.mean_s,
            option.fit.allowed,
            need.gpus,
            need.cpus,
            need.host_memory_gib,
            _usable(shape.table.choose, need.gpus, need.link, option.fit.allowed),
        )

    def _gang_start(
        self,
        job: Waiting,
        option: _Option,
        at: float,
        together: list[tuple[int, tuple[float, int, float]]],
    ) -> Start:
        need = job.cls.need
        spots = dict(together)
        nodes = self._one_domain([node for node, _ in together], job)
        masks = []
        for node in nodes:
            mask = 0
            if need.gpus:
                choice = self.ws.nodes[node].type.shape.table.choose(
                    spots[node][1] & option.fit.allowed, need.gpus, link=need.link
                )
                mask = choice.mask if choice is not None else 0
            masks.append(mask)
        variance = max(spots[node][2] for node in nodes)
        wait = Duration(at - self.now, math.sqrt(variance) if at > self.now else 0.0)
        micros = option.base_micros + job.cls.value_per_s * wait.mean_s
        return Start(
            job.job_id, at, wait, option.run, tuple(nodes), tuple(masks), option.fit.model,
            option.speed, micros, self.ws.nodes[nodes[0]].type,
        )  # fmt: skip

    def _one_domain(self, candidates: list[int], job: Waiting) -> list[int]:
        """As many as the gang has machines, in the lowest network domain that has enough: a rack,
        a block, else the pool; of several domains the one with least to spare. In rank order:
        neighbours in rank are neighbours in the network."""
        wanted = job.cls.nodes
        views = self.ws.nodes
        keys: tuple[Callable[[int], tuple[str, ...]], ...] = (
            lambda n: (views[n].node.block, views[n].node.rack),
            lambda n: (views[n].node.block,),
        )
        pool = candidates
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
        fullest = sorted(pool, key=lambda n: (self.lines[n].masks[0].bit_count(), views[n].id))
        chosen = fullest[:wanted]
        return sorted(
            chosen, key=lambda n: (views[n].node.block, views[n].node.rack, views[n].id)
        )

    # --- views --------------------------------------------------------------------------------

    def _local_micros(self, cls: JobClass, type_: NodeType, run: Duration) -> float:
        """Micro-dollars of running on owned GPUs, waiting apart."""
        rate = type_.rate_micros_per_hour * cls.total_gpus
        return rate * run.mean_s / 3600.0 + cls.value_per_s * run.mean_s

    def _open_to(self, job: Waiting, node: int) -> bool:
        """Whether a held machine is there for this job."""
        view = self.ws.nodes[node]
        if view.claim is None:
            return True
        return self.ws.may_use_held(job.cls, job.job_id, view)

    def _view(self, cls: JobClass) -> _ClassView:
        view = self._views.get(cls.index)
        if view is None:
            view = self._views[cls.index] = _ClassView(cls, self._options(cls))
        return view

    def _options(self, cls: JobClass) -> list[_Option]:
        grouped: dict[tuple[object, ...], list[tuple[NodeType, Fit, float, Duration, float]]] = {}
        for type_ in self.ws.types:
            if type_.held and cls.home_only:
                continue
            usable = self.ws.usable_fits(cls, type_)
            if not isinstance(usable, tuple):
                continue
            for fit in usable:
                speed = cls.speed(fit.model, fit.link_gbps)
                run = cls.run_time(fit.model, speed)
                base = self._local_micros(cls, type_, run)
                if type_.held:
                    held = held_option(self.ws, cls, type_, fit)
                    if not isinstance(held, HeldOption):
                        continue
                    run, base = held.time.on_machine, float(held.priced.micros)
                # gangs may mix types of one model in one pool; single jobs take types apart
                key: tuple[object, ...] = (type_.index, fit.model)
                if cls.nodes > 1:
                    key = (type_.pool, type_.gang, fit.model, fit.allowed, base)
                grouped.setdefault(key, []).append((type_, fit, speed, run, base))
        avoid = cls.avoid & frozenset(self.ws.node_index)
        options: list[_Option] = []
        for avoiding in (avoid, frozenset[NodeId]()) if avoid else (avoid,):
            # a node on which it failed is taken only if no other fits
            if options:
                break
            unwanted = {self.ws.node_index[node] for node in avoiding}
            for entries in grouped.values():
                _, fit, speed, run, base = entries[0]
                types = tuple(entry[0] for entry in entries)
                members = sorted(
                    n for t in types for n in self.ws.members[t.index] if n not in unwanted
                )
                if len(members) >= cls.nodes:
                    options.append(_Option(fit, types, speed, run, base, members))
        options.sort(key=lambda o: (o.base_micros, o.types[0].index, o.fit.model))
        return options

    def _own(self, node: int) -> Timeline:
        if not self._owned[node]:
            self.lines[node] = self.lines[node].copy()
            self._owned[node] = True
        return self.lines[node]


def _as_share(start: Start, share: float) -> Start:
    return Start(
        start.job_id, start.at, start.wait, start.run, start.nodes, start.masks, start.model,
        start.speed, start.micros, start.type, share,
    )  # fmt: skip


def _usable(
    choose: Callable[..., object], count: int, link: LinkClass, allowed: int
) -> Callable[[int], bool] | None:
    """Whether a mask has devices on good enough links; None when any will do."""
    if count < 2 or link is LinkClass.ANY:
        return None
    return lambda mask: choose(mask & allowed, count, link=link) is not None


def _first_free(line: Timeline, allowed: int, count: int) -> float:
    for at, mask in zip(line.times, line.masks, strict=True):
        if (mask & allowed).bit_count() >= count:
            return at
    return line.times[-1]
