"""Hard filters between what a job needs and what a machine is; and the speed where it fits.

Machines are reduced to *shapes* and jobs to *needs*; each pair is judged once in a process's life.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from hybrid.domain.job_spec import GpuRequest, JobSpec, LinkClass
from hybrid.domain.learned import Estimate
from hybrid.domain.node import Node
from hybrid.domain.offer import Offer
from hybrid.domain.reasons import (
    GpuMemoryTooSmall,
    HardwareMismatch,
    NoContainerRuntime,
    Reason,
)
from hybrid.estimation.speed import MIN_SAMPLES, job_speed
from hybrid.hardware import MODELS, UnknownGpuModel, part_of_gpu, resolve, satisfies_memory
from hybrid.planning.parting import NOT_PARTED, Parting, no_instance, parting_of
from hybrid.planning.replicas import refused_replica
from hybrid.topology import (
    MINIMUM_GBPS,
    Slots,
    devices_of,
    link_efficiency,
    mask_of,
    slots_of,
)

CPU_ONLY = ""
"""The GPU model of a job that uses none."""

LearnedSpeeds = Mapping[tuple[str, str], Estimate]
_Fact = TypeVar("_Fact", str, float)


@dataclass(frozen=True, slots=True)
class Shape:
    """A machine, as far as fit goes. Positions are those of its devices.

    ``healthy`` is the mask of devices that work. ``replicas`` is into how many each device but MIG
    instances is time-sliced; ``memory_gib`` is that of one. ``runtimes`` is None where it is not
    known yet (a machine that does not exist): its image is taken to have one.
    """

    models: tuple[str, ...]
    memory_gib: tuple[float, ...]
    healthy: int
    links_gbps: tuple[tuple[float, ...], ...]
    numa: tuple[int, ...]
    mig: int
    cpus: float
    host_memory_gib: float
    architecture: str
    runtimes: tuple[str, ...] | None
    parting: Parting = NOT_PARTED
    replicas: int = 1
    _hash: int = field(init=False, repr=False, compare=False)
    _table: Slots | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        # hot: shapes are keys of every memo here, and a link matrix takes long to hash
        told = (self.models, self.memory_gib, self.healthy, self.links_gbps, self.numa, self.mig)
        host = (self.cpus, self.host_memory_gib, self.architecture, self.runtimes)
        object.__setattr__(self, "_hash", hash(told + host))

    def __hash__(self) -> int:
        return self._hash

    @property
    def table(self) -> Slots:
        """Slot choices on this machine."""
        table = self._table
        if table is None:
            count = len(self.models)
            links = self.links_gbps
            matrix = links if len(links) == count else ((0.0,) * count,) * count
            table = slots_of(matrix, self.numa, self.models)
            object.__setattr__(self, "_table", table)
        return table


def node_facts(node: Node, replicas: int = 1) -> tuple[object, ...]:
    """All that a node's shape is made of, for telling nodes apart without making it. Hot."""
    return (
        node.links_gbps,
        node.cpus,
        node.memory_gib,
        node.architecture,
        node.container_runtimes,
        tuple([
            (gpu.model, gpu.memory_gib, gpu.numa, gpu.healthy, gpu.id.startswith("MIG-"))
            for gpu in node.gpus
        ]),
        parting_of(node),
        replicas,
    )  # fmt: skip


def node_shape(node: Node, replicas: int = 1) -> Shape:
    """The shape of a machine that is there."""
    healthy = mig = 0
    for position, gpu in enumerate(node.gpus):
        healthy |= gpu.healthy << position
        mig |= gpu.id.startswith("MIG-") << position
    shape = Shape(
        tuple([gpu.model for gpu in node.gpus]),
        tuple([g.memory_gib / (1 if mig >> i & 1 else replicas) for i, g in enumerate(node.gpus)]),
        healthy,
        node.links_gbps,
        tuple([gpu.numa for gpu in node.gpus]),
        mig,
        node.cpus,
        node.memory_gib,
        node.architecture,
        node.container_runtimes,
        parting_of(node),
        replicas,
    )
    return _one_shape(shape)


def offer_shape(offer: Offer) -> Shape:
    """The shape of a machine that could be had."""
    shape = Shape(
        offer.models,
        offer.memories_gib,
        (1 << offer.gpus) - 1,
        offer.links_gbps,
        (0,) * offer.gpus,
        0,
        offer.cpus,
        offer.memory_gib,
        offer.architecture,
        None,
    )
    return _one_shape(shape)


@lru_cache(maxsize=16_384)
def _one_shape(shape: Shape) -> Shape:
    """The same object for all equal shapes of all plans. Hot: as keys of memos, two that are one
    are not compared field by field."""
    return shape


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs of each machine; equal needs are judged once."""

    gpus: int
    share: float
    slice_memory_gib: float | None
    time_slicing: bool
    mig_profile: str | None
    models: tuple[str, ...]
    memory_gib: float | None
    capability: str | None
    link: LinkClass
    cpus: float
    host_memory_gib: float
    architecture: str | None
    image: str | None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # hot, as with shapes
        asked = (self.share, self.slice_memory_gib, self.time_slicing, self.mig_profile)
        model = (self.models, self.memory_gib, self.capability, self.link)
        host = (self.cpus, self.host_memory_gib, self.architecture, self.image)
        object.__setattr__(self, "_hash", hash((self.gpus, *asked, *model, *host)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def shared(self) -> bool:
        """Whether a part of a device will do."""
        return self.share < 1 or self.slice_memory_gib is not None or self.time_slicing

    @property
    def asked(self) -> GpuRequest:
        """What part that is."""
        return GpuRequest(
            share=self.share,
            slice_memory=self.slice_memory_gib,
            time_slicing=self.time_slicing,
        )


def need_of(spec: JobSpec) -> Need:
    """What the spec asks of each machine."""
    resources = spec.resources
    gpu = resources.gpu
    need = Need(
        resources.gpus,
        gpu.share if gpu.mig_profile is None else 1.0,  # an instance is held whole
        gpu.slice_memory,
        gpu.time_slicing,
        gpu.mig_profile,
        gpu.models,
        gpu.memory,
        gpu.min_compute_capability,
        gpu.link,
        resources.cpus,
        resources.memory,
        resources.architecture,
        spec.image,
    )
    return _one_need(need)


@lru_cache(maxsize=65_536)
def _one_need(need: Need) -> Need:
    """The same object for all equal needs, as with shapes."""
    return need


@dataclass(frozen=True, slots=True)
class Fit:
    """Devices of one model on a machine that will do: ``allowed`` is their mask, empty for a CPU
    job. ``link_gbps`` is the usable bottleneck that those the job takes must have; it is what its
    speed is judged by. ``share`` is what it takes of its device where a part will do; ``replicas``
    into how many that is time-sliced."""

    model: str
    allowed: int
    link_gbps: float = math.inf
    share: float = 1.0
    replicas: int = 1

    @property
    def part(self) -> float:
        """What part of a GPU each device is to the job: its share, or a MIG instance."""
        return self.share * part_of_gpu(self.model)


@lru_cache(maxsize=131_072)
def fits(need: Need, shape: Shape) -> tuple[Fit, ...] | Reason:
    """The groups of devices that fit, one per model, or the first filter none passes."""
    refused = _host(need, shape)
    if refused is not None:
        return refused
    if need.gpus == 0:
        return (Fit(CPU_ONLY, 0),)
    if need.mig_profile is not None and not shape.mig:
        return no_instance(need.mig_profile, shape.models, shape.parting)
    if shape.replicas > 1 and need.mig_profile is None:
        refused = refused_replica(need.asked, need.gpus, shape.replicas)
        if refused is not None:
            return refused
    working = shape.healthy & (shape.mig if need.mig_profile else ~shape.mig)
    allowed, refused = _filtered(need, shape, working)
    if refused is not None:
        return refused
    return _grouped(need, shape, allowed)


def _host(need: Need, shape: Shape) -> Reason | None:
    if need.architecture is not None and need.architecture != shape.architecture:
        return HardwareMismatch("CPU architecture", need.architecture, shape.architecture)
    if need.cpus > shape.cpus:
        return HardwareMismatch("CPU cores", f"{need.cpus:g}", f"{shape.cpus:g}")
    if need.host_memory_gib > shape.host_memory_gib:
        return HardwareMismatch(
            "memory", f"{need.host_memory_gib:g} GiB", f"{shape.host_memory_gib:g} GiB"
        )
    if need.image is not None and shape.runtimes == ():
        return NoContainerRuntime(need.image)
    return None


def _filtered(need: Need, shape: Shape, working: int) -> tuple[int, Reason | None]:
    """Devices that pass the filters on single devices, or the first filter too few pass."""
    wanted = need.gpus
    mask = working
    if mask.bit_count() < wanted:
        return 0, HardwareMismatch("GPUs", f"{wanted}", f"{mask.bit_count()}")
    mask = _keep(mask, shape.models, lambda model: _model_accepted(need.models, model))
    if mask.bit_count() < wanted:
        has = ", ".join(sorted(set(shape.models))) or "none"
        named = " or ".join(need.models)
        if mask:
            return 0, HardwareMismatch(f"GPUs of model {named}", f"{wanted}", f"{mask.bit_count()}")
        return 0, HardwareMismatch("GPU model", named, has)
    if need.mig_profile is not None:
        profile = need.mig_profile
        mask = _keep(mask, shape.models, lambda model: model.endswith(f":{profile}"))
        if mask.bit_count() < wanted:
            return 0, no_instance(profile, shape.models, shape.parting)
    if need.capability is not None:
        least = tuple(int(part) for part in need.capability.split("."))
        mask = _keep(mask, shape.models, lambda model: _capability(model) >= least)
        if mask.bit_count() < wanted:
            major, minor = max((_capability(model) for model in shape.models), default=(0, 0))
            return 0, HardwareMismatch("compute capability", need.capability, f"{major}.{minor}")
    if need.memory_gib is not None:
        asked = need.memory_gib
        mask = _keep(mask, shape.memory_gib, lambda gib: satisfies_memory(gib, asked))
        if mask.bit_count() < wanted:
            return 0, GpuMemoryTooSmall(asked, max(shape.memory_gib, default=0.0))
    if need.slice_memory_gib is not None:
        part = need.slice_memory_gib
        mask = _keep(mask, shape.memory_gib, lambda gib: satisfies_memory(gib, part))
        if mask.bit_count() < wanted:
            return 0, GpuMemoryTooSmall(part, max(shape.memory_gib, default=0.0))
    return mask, None


def _keep(mask: int, facts: Sequence[_Fact], accept: Callable[[_Fact], bool]) -> int:
    """The devices of the mask whose fact is accepted; each fact is judged once."""
    for fact in set(facts):
        if not accept(fact):
            mask &= ~sum(1 << i for i, has in enumerate(facts) if has == fact)
    return mask


def _grouped(need: Need, shape: Shape, allowed: int) -> tuple[Fit, ...] | Reason:
    """One fit per model with enough devices on good enough links."""
    groups: dict[str, int] = {}
    for i, model in enumerate(shape.models):
        if allowed >> i & 1:
            groups[model] = groups.get(model, 0) | 1 << i
    found = []
    widest = -1.0
    for model, mask in sorted(groups.items()):
        if mask.bit_count() < need.gpus:
            continue
        if need.gpus == 1:
            replicas = 1 if shape.mig & mask else shape.replicas
            found.append(Fit(model, mask, math.inf, _share(need, shape, mask), replicas))
            continue
        best = shape.table.best_gbps(mask, need.gpus, need.link)
        widest = max(widest, best)
        if best >= MINIMUM_GBPS[need.link]:
            found += [Fit(model, mask, gbps) for gbps in _link_tiers(need, shape, model, mask)]
    if found:
        return tuple(found)
    if widest < 0:
        return HardwareMismatch("GPUs of one model", f"{need.gpus}", f"{len(groups)} models")
    return HardwareMismatch("link between GPUs", str(need.link), f"{widest:g} GB/s")


def _share(need: Need, shape: Shape, mask: int) -> float:
    """What the job takes of any of these devices: by that with the least memory."""
    if not need.shared:
        return 1.0
    if shape.replicas > 1:
        return 1 / shape.replicas
    least_gib = min(shape.memory_gib[device] for device in devices_of(mask))
    return need.asked.share_of(least_gib)


def _link_tiers(need: Need, shape: Shape, model: str, mask: int) -> list[float]:
    """Bottlenecks that sets of these devices can have, widest first, and that differ in speed: a
    job may wait for the wide links or take the slow ones now."""
    table = shape.table
    widest = table.best_gbps(mask, need.gpus, need.link)
    devices = devices_of(mask)
    if math.comb(len(devices), need.gpus) > _MOST_SETS:
        return [widest]
    sets = itertools.combinations(devices, need.gpus)
    least = MINIMUM_GBPS[need.link]
    reached = {table.bottleneck_gbps(mask_of(chosen), need.link) for chosen in sets}
    tiers: dict[float, float] = {}
    for gbps in sorted(g for g in reached if g >= least):
        tiers.setdefault(round(_efficiency(model, gbps), 3), gbps)
    return sorted(tiers.values(), reverse=True)


_MOST_SETS = 1000
"""Up to so many sets of devices their links are told apart."""


def _model_accepted(names: tuple[str, ...], model: str) -> bool:
    return not names or model.partition(":")[0] in accepted_models(names)


@lru_cache(maxsize=1024)
def accepted_models(names: tuple[str, ...]) -> frozenset[str]:
    """Catalogue keys that a request by these names accepts, and the names themselves: a pool may
    have devices the catalogue does not know."""
    keys: set[str] = set(names)
    for name in names:
        try:
            keys |= resolve(name)
        except UnknownGpuModel:
            continue
    return frozenset(keys)


def _capability(model: str) -> tuple[int, int]:
    known = MODELS.get(model.partition(":")[0])
    return known.compute_capability if known else (0, 0)


@lru_cache(maxsize=65_536)
def _efficiency(model: str, link_gbps: float) -> float:
    """What links leave of the speed."""
    known = MODELS.get(model.partition(":")[0])
    if known is None or math.isinf(link_gbps):
        return 1.0
    return link_efficiency(link_gbps, known)


def speed_on(spec: JobSpec, model: str, link_gbps: float, learned: LearnedSpeeds) -> float:
    """Speed relative to the reference GPU, lowered for slow links.

    A CPU job, and one on devices nobody can say anything about, runs at 1.
    """
    if model == CPU_ONLY:
        return 1.0
    try:
        speed = job_speed(
            model, spec.profile, family=spec.family or "", table=spec.speeds, learned=learned
        )
    except UnknownGpuModel:
        return 1.0
    return speed.value * _efficiency(model, link_gbps)


def speed_words(spec: JobSpec, model: str, learned: LearnedSpeeds, replicas: int = 1) -> str:
    """How fast the job is taken to be on a model, links apart, where that is known from, and what
    else there is: the guess beside what was learned, with the number of finished runs; and what
    part of that one of several replicas gets. Empty without a GPU."""
    if replicas > 1:
        alone = speed_words(spec, model, learned)
        return f"{alone}; one of {replicas} replicas that share it: {1 / replicas:.3g} of that"
    if model == CPU_ONLY:
        return ""
    # a MIG instance is told by its own name only where something was learned of it
    key = model if (spec.family, model) in learned else model.partition(":")[0]
    try:
        speed = job_speed(
            key, spec.profile, family=spec.family or "", table=spec.speeds, learned=learned
        )
    except UnknownGpuModel:
        return f"speed 1 on {key}: nothing is known of it"
    guess = "" if speed.guess is None else f"guess {speed.guess:.3g}"
    runs = f"{speed.samples} finished run{'s' if speed.samples != 1 else ''}"
    seen = "" if speed.learned is None else f"{speed.learned:.3g} after {runs}"
    source, others = {
        "table": ("as the job says", (guess, seen)),
        "learned": (f"learned from {runs}", (guess,)),
        "guess": ("a guess", (seen and f"{seen}, of {MIN_SAMPLES} needed",)),
    }[speed.source]
    rest = "; ".join(other for other in others if other)
    return f"speed {speed.value:.3g} on {key}, {source}{f' ({rest})' if rest else ''}"


def stated_speed(spec: JobSpec, learned: LearnedSpeeds) -> float:
    """The speed of the hardware ``expected_runtime`` is meant for: the one model the job names,
    else the reference GPU (1)."""
    names = spec.resources.gpu.models
    if len(names) != 1:
        return 1.0
    keys = sorted(key for key in accepted_models(names) if key in MODELS)
    if not keys:
        return 1.0
    return max(speed_on(spec, key, math.inf, learned) for key in keys)
