"""The smallest set of a job's constraints that no place can meet together.

Each hard constraint of a spec can be let go of alone. Letting go of one after the other, and
keeping those without which there would be a place, leaves a set of which none is needless (the
deletion filter of Chinneck, *Feasibility and Infeasibility in Optimization*, 2008, ch. 6); that
there is no smaller one is then tried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hybrid.domain.job_spec import BurstRule, JobSpec, LinkClass, Where
from hybrid.domain.reasons import Contradiction
from hybrid.hardware import MODELS, GpuModel, satisfies_memory
from hybrid.planning.fit import accepted_models

_LEAST = 1e-6
"""What is left of a size that is let go of."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One thing the spec insists on: where it stands, in words, and the spec without it."""

    path: str
    words: str
    without: Callable[[JobSpec], JobSpec]


def constraints_of(spec: JobSpec) -> tuple[Constraint, ...]:
    """What the spec insists on, in the order in which people think of it."""
    return (*_of_gpus(spec), *_of_nodes(spec), *_of_places(spec))


def contradiction(spec: JobSpec, possible: Callable[[JobSpec], bool]) -> Contradiction | None:
    """The smallest set of the spec's constraints that leaves no place, if it has at least two;
    None for a spec that is ``possible``, or that would not be with all of them let go."""
    constraints = constraints_of(spec)

    def meets(kept: Sequence[int]) -> bool:
        freed = spec
        for i, constraint in enumerate(constraints):
            if i not in kept:
                freed = constraint.without(freed)
        return possible(freed)

    return _told(constraints, smallest(len(constraints), meets))


def in_the_catalogue(spec: JobSpec) -> Contradiction | None:
    """The same for what is asked of one GPU, against every model there is anywhere. Nothing is
    said of names that the catalogue does not know."""
    gpu = spec.resources.gpu
    accepted = accepted_models(gpu.models)
    if spec.resources.gpus == 0 or (gpu.models and not accepted & MODELS.keys()):
        return None
    constraints = tuple(c for c in _of_gpus(spec) if c.path in _OF_ONE)

    def meets(kept: Sequence[int]) -> bool:
        paths = {constraints[i].path for i in kept}
        asked = _memory_of_instance if {_MEMORY, _MIG} <= paths else _anything
        return any(
            all(_OF_ONE[path](spec, model) for path in paths) and asked(spec, model)
            for model in MODELS.values()
        )

    return _told(constraints, smallest(len(constraints), meets))


def smallest(number: int, meets: Callable[[Sequence[int]], bool]) -> tuple[int, ...] | None:
    """The smallest set of ``number`` constraints that cannot be met; None when all can be, or when
    not even none can."""
    kept = list(range(number))
    if meets(kept) or not meets(()):
        return None
    for i in range(number):
        rest = [k for k in kept if k != i]
        if not meets(rest):
            kept = rest
    for size in range(1, min(len(kept), 4)):
        for few in combinations(range(number), size):
            if not meets(few):
                return few
    return tuple(kept)


def _told(constraints: Sequence[Constraint], which: tuple[int, ...] | None) -> Contradiction | None:
    if which is None or len(which) < 2:
        return None  # of one alone there is more to say than that
    found = [constraints[i] for i in which]
    return Contradiction(tuple(c.words for c in found), tuple(c.path for c in found))


# --- the constraints ------------------------------------------------------------------------------


def _of_gpus(spec: JobSpec) -> list[Constraint]:
    resources, gpu = spec.resources, spec.resources.gpu
    found = []
    if gpu.models:
        named = " or ".join(gpu.models)
        found.append(Constraint(_MODELS, f"GPU model {named}", _gpu(models=())))
    if gpu.memory is not None:
        words = f"GPU memory ≥ {gpu.memory:g} GiB"
        found.append(Constraint(_MEMORY, words, _gpu(memory=None)))
    if gpu.min_compute_capability is not None:
        words = f"compute capability ≥ {gpu.min_compute_capability}"
        found.append(Constraint(_CAPABILITY, words, _gpu(min_compute_capability=None)))
    if gpu.slice_memory is not None:
        words = f"{gpu.slice_memory:g} GiB of one GPU's memory"
        # without any it would be a whole GPU, which asks for more
        found.append(Constraint(_SLICE, words, _gpu(slice_memory=_LEAST)))
    elif resources.gpus == 1 and not gpu.time_slicing and gpu.mig_profile is None:
        words = "a whole GPU" if gpu.share == 1 else f"{gpu.share:g} of a GPU"
        found.append(Constraint("resources.gpu.time_slicing", words, _gpu(time_slicing=True)))
    if gpu.mig_profile is not None:
        words = f"MIG profile {gpu.mig_profile}"
        found.append(Constraint(_MIG, words, _gpu(mig_profile=None)))
    if gpu.link is not LinkClass.ANY:
        found.append(Constraint(_LINK, f"link {gpu.link}", _gpu(link=LinkClass.ANY)))
    fewest = 1 if gpu.link is LinkClass.ANY else 2  # a link is between two
    if resources.gpus > fewest:
        words = f"{resources.gpus} GPUs on one node"
        found.append(Constraint("resources.gpus", words, _resources(gpus=fewest)))
    return found


def _of_nodes(spec: JobSpec) -> list[Constraint]:
    resources = spec.resources
    found = []
    if resources.nodes > 1:
        words = f"{resources.nodes} nodes"
        found.append(Constraint("resources.nodes", words, _resources(nodes=1)))
    words = f"{resources.cpus:g} CPU cores"
    found.append(Constraint("resources.cpus", words, _resources(cpus=_LEAST)))
    words = f"{resources.memory:g} GiB of memory"
    found.append(Constraint("resources.memory", words, _resources(memory=_LEAST)))
    if resources.architecture is not None:
        words = f"CPU architecture {resources.architecture}"
        found.append(Constraint("resources.architecture", words, _resources(architecture=None)))
    if spec.image is not None:
        found.append(Constraint("image", "a container image", _spec(image=None)))
    return found


def _of_places(spec: JobSpec) -> list[Constraint]:
    where = spec.where
    found = []
    for field in ("pools", "providers", "regions", "markets"):
        allowed = getattr(where, field)
        if allowed:
            words = f"only {field} {', '.join(map(str, allowed))}"
            found.append(Constraint(f"where.{field}", words, _where(**{field: ()})))
    if where.burst is BurstRule.NEVER:
        allowed = _where(burst=BurstRule.ALLOWED)
        found.append(Constraint("where.burst", "burst: never", allowed))
    if not spec.checkpoint.enabled and not spec.retries.on_spot_restart:
        saves = _spec(checkpoint=spec.checkpoint.model_copy(update={"enabled": True}))
        found.append(Constraint("checkpoint.enabled", "no checkpoints", saves))
    if spec.max_cost is not None:
        words = f"max_cost ${spec.max_cost}"
        found.append(Constraint("max_cost", words, _spec(max_cost=None)))
    return found


def _spec(**fields: Any) -> Callable[[JobSpec], JobSpec]:
    return lambda spec: spec.model_copy(update=fields)


def _resources(**fields: Any) -> Callable[[JobSpec], JobSpec]:
    return lambda spec: spec.model_copy(
        update={"resources": spec.resources.model_copy(update=fields)}
    )


def _gpu(**fields: Any) -> Callable[[JobSpec], JobSpec]:
    def freed(spec: JobSpec) -> JobSpec:
        gpu = spec.resources.gpu.model_copy(update=fields)
        return _resources(gpu=gpu)(spec)

    return freed


def _where(**fields: Any) -> Callable[[JobSpec], JobSpec]:
    def freed(spec: JobSpec) -> JobSpec:
        where: Where = spec.where.model_copy(update=fields)
        return spec.model_copy(update={"where": where})

    return freed


_MODELS = "resources.gpu.models"
_MEMORY = "resources.gpu.memory"
_CAPABILITY = "resources.gpu.min_compute_capability"
_MIG = "resources.gpu.mig_profile"
_SLICE = "resources.gpu.slice_memory"
_LINK = "resources.gpu.link"


def _memory(spec: JobSpec, model: GpuModel) -> bool:
    asked = spec.resources.gpu.memory or 0.0
    if spec.resources.gpu.mig_profile is not None:
        return True  # what is asked is of the instance: together with its profile
    return satisfies_memory(model.usable_memory_gib, asked)


def _memory_of_instance(spec: JobSpec, model: GpuModel) -> bool:
    gpu = spec.resources.gpu
    if model.mig is None or gpu.mig_profile is None:
        return False
    return satisfies_memory(model.mig.profile(gpu.mig_profile).memory_gib, gpu.memory or 0.0)


def _anything(_spec: JobSpec, _model: GpuModel) -> bool:
    return True


def _capability(spec: JobSpec, model: GpuModel) -> bool:
    major, _, minor = (spec.resources.gpu.min_compute_capability or "0.0").partition(".")
    return model.compute_capability >= (int(major), int(minor))


_OF_ONE: dict[str, Callable[[JobSpec, GpuModel], bool]] = {
    _MODELS: lambda spec, model: model.key in accepted_models(spec.resources.gpu.models),
    _MEMORY: _memory,
    _CAPABILITY: _capability,
    _SLICE: lambda spec, model: satisfies_memory(
        model.usable_memory_gib, spec.resources.gpu.slice_memory or 0.0
    ),
    _MIG: lambda spec, model: spec.resources.gpu.mig_profile in model.mig_profiles,
}
"""Constraints that the catalogue can judge: whether a model meets them."""
