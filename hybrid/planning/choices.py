"""Where a class of jobs could run at all: node types with devices, speed, time and cost. Judged
once per plan and shared by all schedules made in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from hybrid.domain.hot_values import hot_value
from hybrid.domain.ids import JobId, NodeId
from hybrid.estimation.waits import Duration
from hybrid.hardware import MODELS, part_of_gpu
from hybrid.planning.classes import JobClass
from hybrid.planning.demand import Demand
from hybrid.planning.failed_places import failed_pools
from hybrid.planning.fit import Fit
from hybrid.planning.nodes import NodeType
from hybrid.planning.options import HeldOption, held_option
from hybrid.planning.timeline import Timeline
from hybrid.planning.workspace import Workspace
from policies import placement

Spot = tuple[float, int, float]
"""An instant, the devices free throughout from then on, and the instant's variance."""


@hot_value(frozen=True, slots=True)
class Waiting:
    """A job that wants to start: not before ``ready_at``, not for more than ``limit_micros``, if
    ``now_only`` then now or not at all, and if ``machines`` names some held ones then only there.
    """

    job_id: JobId
    cls: JobClass
    ready_at: float
    limit_micros: float = math.inf
    now_only: bool = False
    machines: str = ""


@hot_value(frozen=True, slots=True)
class Start:
    """When and where a job can start. ``masks[rank]`` are its devices on ``nodes[rank]``.

    ``micros`` is what it costs there, waiting included; ``wait`` is from now on. ``share`` is what
    it takes of its one device.
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

    @property
    def part(self) -> float:
        """What part of a GPU each of its devices is to it."""
        return self.share * part_of_gpu(self.model)

    @property
    def replicas(self) -> int:
        """Into how many its device is time-sliced: it takes one of them."""
        shape = self.type.shape
        return (
            1 if not self.model or any(shape.mig & mask for mask in self.masks) else shape.replicas
        )


@hot_value(frozen=True, slots=True, eq=False)
class Choice:
    """Node types (one, or for a gang several of one pool and model) on which a class runs alike.

    ``base_micros`` is the cost of running there without waiting; ``members`` their nodes, which
    ``place`` stands for: choices of equal members have it in common.
    """

    fit: Fit
    types: tuple[NodeType, ...]
    speed: float
    run: Duration
    base_micros: float
    members: tuple[int, ...]
    place: int = -1

    @property
    def held(self) -> bool:
        """Whether these are cloud machines held already: taken now, never waited for."""
        return self.types[0].held


class Choices:
    """All choices of one plan, and when devices of the nodes first become free."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._by_class: dict[int, tuple[Choice, ...]] = {}
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._places: dict[tuple[int, ...], int] = {}
        self._first_free: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
        self._lines: list[Timeline] = []
        self._demand: tuple[list[Timeline], Demand] | None = None

    def of(self, cls: JobClass) -> tuple[Choice, ...]:
        """The choices of a class, cheapest first."""
        found = self._by_class.get(cls.index)
        if found is None:
            found = self._by_class[cls.index] = self._judge(cls)
        return found

    def first_free(self, choice: Choice, count: int) -> list[tuple[float, int]]:
        """(When ``count`` of the choice's devices are first free, node), soonest first: lower
        bounds for any start there. Shared: copy before changing."""
        if self._lines is not self._ws.lines:
            self._lines = self._ws.lines
            self._first_free.clear()
        if len(choice.types) == 1:
            key = (choice.types[0].index, choice.fit.allowed, count)
            found = self._first_free.get(key)
            if found is None:
                found = self._first_free[key] = self._sorted(
                    self._ws.members[choice.types[0].index], choice.fit.allowed, count
                )
            if len(found) == len(choice.members):
                return found
        return self._sorted(choice.members, choice.fit.allowed, count)

    def demand(self) -> Demand:
        """The demand mix and the fragmentation before anything is placed: for jobs of shares."""
        if self._demand is None or self._demand[0] is not self._ws.lines:
            self._demand = self._ws.lines, Demand(self._ws, self._ws.lines)
        return self._demand[1]

    def _sorted(self, members: Iterable[int], allowed: int, count: int) -> list[tuple[float, int]]:
        return sorted((first_free(self._lines[node], allowed, count), node) for node in members)

    def _judge(self, cls: JobClass) -> tuple[Choice, ...]:
        ws = self._ws
        grouped: dict[tuple[object, ...], list[tuple[NodeType, Choice]]] = {}
        for type_ in ws.types:
            if type_.held and cls.home_only:
                continue
            usable = ws.usable_fits(cls, type_)
            if not isinstance(usable, tuple):
                continue
            for fit in usable:
                choice = self._choice(cls, type_, fit)
                if choice is None:
                    continue
                # a gang may take types of one model in one pool; single jobs tell types apart
                key: tuple[object, ...] = (type_.index, fit.model, fit.link_gbps)
                if cls.nodes > 1:
                    key = (type_.pool, type_.gang, fit.model, fit.allowed, choice.base_micros)
                grouped.setdefault(key, []).append((type_, choice))
        avoid = cls.avoid & ws.node_index.keys()
        found = self._merged(cls, grouped.values(), avoid)
        if not found and avoid:
            # a node on which it failed is taken only if no other fits
            found = self._merged(cls, grouped.values(), frozenset())
        found = self._where_it_has_not_failed(cls, found)
        found.sort(key=_cheapest_first)
        if placement.prefers_efficient(cls.sample, ws.policy):
            found = _efficient_first(found)
        return tuple(found)

    def _where_it_has_not_failed(self, cls: JobClass, found: list[Choice]) -> list[Choice]:
        """Pools in which the job has failed too often are left out while there is another at home.
        Whether a cloud is better than all of them is for those to say who know the clouds."""
        failed = failed_pools(cls.sample)
        if not failed:
            return found
        others = [choice for choice in found if choice.types[0].pool not in failed]
        return others if any(not choice.held for choice in others) else found

    def _choice(self, cls: JobClass, type_: NodeType, fit: Fit) -> Choice | None:
        speed = cls.speed_on(fit)
        run = cls.run_time(fit.model, speed)
        if type_.held:
            held = held_option(self._ws, cls, type_, fit)
            if not isinstance(held, HeldOption):
                return None
            return Choice(fit, (type_,), speed, held.time.on_machine, float(held.priced.micros), ())
        return Choice(fit, (type_,), speed, run, local_micros(cls, type_, fit, run), ())

    def _all_of(self, types: tuple[NodeType, ...]) -> tuple[int, ...]:
        key = tuple([type_.index for type_ in types])
        found = self._members.get(key)
        if found is None:
            found = self._members[key] = tuple(
                sorted(node for index in key for node in self._ws.members[index])
            )
        return found

    def _merged(
        self,
        cls: JobClass,
        groups: Iterable[list[tuple[NodeType, Choice]]],
        avoid: frozenset[NodeId],
    ) -> list[Choice]:
        unwanted = {self._ws.node_index[node] for node in avoid}
        found = []
        for entries in groups:
            types = tuple(type_ for type_, _ in entries)
            members = self._all_of(types)
            if unwanted:
                members = tuple(n for n in members if n not in unwanted)
            if len(members) >= cls.nodes:
                one = entries[0][1]
                place = self._places.setdefault(members, len(self._places))
                found.append(
                    Choice(one.fit, types, one.speed, one.run, one.base_micros, members, place)
                )
        return found


def _cheapest_first(choice: Choice) -> tuple[float, int, str]:
    return choice.base_micros, choice.types[0].index, choice.fit.model


def _efficient_first(found: list[Choice]) -> list[Choice]:
    """The choices with those at home that are fast enough as cheap as the cheapest of them, a
    micro-dollar apart in the order of what their boards draw: the policy's preference weighs
    less than that, and no difference in waiting is overlooked for it."""
    home = [choice for choice in found if not choice.held]
    least_s = min((choice.run.mean_s for choice in home), default=0.0)
    fast = [
        choice
        for choice in home
        if choice.run.mean_s <= placement.FAST_ENOUGH * least_s and _model(choice) in MODELS
    ]
    if len(fast) < 2:
        return found
    fast.sort(key=lambda c: (MODELS[_model(c)].tdp_w, *_cheapest_first(c)))
    least = min(choice.base_micros for choice in fast)
    ranked = [replace(choice, base_micros=least + rank) for rank, choice in enumerate(fast)]
    return sorted([*ranked, *(c for c in found if c not in fast)], key=_cheapest_first)


def _model(choice: Choice) -> str:
    return choice.fit.model.partition(":")[0]


def local_micros(cls: JobClass, type_: NodeType, fit: Fit, run: Duration) -> float:
    """Micro-dollars of running on owned GPUs, waiting apart."""
    rate = type_.rate_micros_per_hour * cls.gpus_at(fit.part)
    return (rate + cls.value_micros_per_hour) * run.mean_s / 3600.0


def usable_on(cls: JobClass, type_: NodeType, choice: Choice) -> Callable[[int], bool] | None:
    """Whether devices free together have good enough links; None where any will do."""
    if cls.need.gpus < 2:
        return None
    table, fit, need = type_.shape.table, choice.fit, cls.need
    least = slot_gbps(fit)
    return lambda mask: (
        table.choose(mask & fit.allowed, need.gpus, link=need.link, min_gbps=least) is not None
    )


def slot_gbps(fit: Fit) -> float:
    """The least bottleneck of the devices to take; none for a single one."""
    return 0.0 if math.isinf(fit.link_gbps) else fit.link_gbps


def devices_for(type_: NodeType, job: Waiting, choice: Choice, free: int) -> int:
    """The mask of the devices one rank of the job takes of those free; 0 for a CPU job."""
    need = job.cls.need
    if need.gpus == 0:
        return 0
    found = type_.shape.table.choose(
        free & choice.fit.allowed, need.gpus, link=need.link, min_gbps=slot_gbps(choice.fit)
    )
    return 0 if found is None else found.mask


def first_free(line: Timeline, allowed: int, count: int) -> float:
    """When so many of the devices are first free together: a lower bound for any start."""
    if count == 0:
        return line.times[0]
    for at, mask in zip(line.times, line.masks, strict=True):
        if (mask & allowed).bit_count() >= count:
            return at
    return line.times[-1]
