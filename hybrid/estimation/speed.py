"""How fast a job runs on a GPU model, relative to the reference GPU.

Three sources, best first: what the user measured, what finished runs taught, and a roofline guess
from what bounds the job (Williams, Waterman & Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 2009).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Literal

from hybrid.domain.hot_values import hot_value
from hybrid.domain.job_spec import Profile
from hybrid.domain.learned import Estimate
from hybrid.hardware import REFERENCE_KEY, GpuModel, UnknownGpuModel, gpu_model, resolve

MIN_SAMPLES = 5
"""Finished runs of a job family on a model from which on their speed replaces the guess."""

Source = Literal["table", "learned", "guess"]


@hot_value(frozen=True, slots=True)
class Speed:
    """A job's speed on a model: 2.0 does in an hour what the reference does in two.

    ``source`` says where ``value`` is from and ``samples`` how many finished runs there are,
    also while they are too few to be used. ``guess`` and ``learned`` are shown beside it; ``None``
    where there is none.
    """

    value: float
    source: Source
    samples: int = 0
    guess: float | None = None
    learned: float | None = None


@functools.lru_cache(maxsize=4096)
def guess_speed(profile: Profile, model_key: str) -> float:
    """The roofline guess, 1.0 for the reference GPU; raises UnknownGpuModel.

    ``compute``: ratio of dense 16-bit TFLOP/s. ``memory``: of memory GB/s. ``balanced``: geometric
    mean of the two. ``latency``: of boost clocks, because such a job waits for single steps and
    fills neither.
    """
    model, reference = gpu_model(model_key), gpu_model(REFERENCE_KEY)
    compute = model.dense_tflops / reference.dense_tflops
    memory = model.memory_bandwidth_gbps / reference.memory_bandwidth_gbps
    match profile:
        case Profile.COMPUTE:
            return compute
        case Profile.MEMORY:
            return memory
        case Profile.BALANCED:
            return math.sqrt(compute * memory)
        case Profile.LATENCY:
            return model.boost_clock_mhz / reference.boost_clock_mhz


def job_speed(
    model_key: str,
    profile: Profile,
    *,
    family: str = "",
    table: Mapping[str, float] | None = None,
    learned: Mapping[tuple[str, str], Estimate] | None = None,
) -> Speed:
    """The speed of a job on a model, from the best source there is.

    ``table`` is the user's, by any name a request may use: the entry that names fewest models
    counts (the exact model before its family), and a name the catalogue does not know concerns
    none of its models. ``learned`` maps (job family, model key) to the mean speed of finished
    runs and counts from ``MIN_SAMPLES`` runs on. For a MIG instance (``KEY:PROFILE``) it is what
    runs on such instances taught, or else what is known of its whole GPU. Raises ValueError for a
    speed that is not a positive number, and UnknownGpuModel for a model that is neither in the
    catalogue nor in the other sources.
    """
    whole_key = model_key.partition(":")[0]
    told = _from_table(model_key if model_key in (table or {}) else whole_key, table or {})
    seen = learned_on(model_key, family, learned or {})
    learned_speed, samples = None, 0
    if seen is not None:
        samples = seen.samples
        learned_speed = _positive(seen.mean, f"learned speed of {family} on {model_key}")
    guess = _guess_or_none(profile, whole_key)
    if told is not None:
        return Speed(told, "table", samples, guess, learned_speed)
    if learned_speed is not None and samples >= MIN_SAMPLES:
        return Speed(learned_speed, "learned", samples, guess, learned_speed)
    if guess is None:
        raise UnknownGpuModel(model_key)
    return Speed(guess, "guess", samples, guess, learned_speed)


def learned_on(
    model_key: str, family: str, learned: Mapping[tuple[str, str], Estimate]
) -> Estimate | None:
    """What finished runs taught of a device: on a MIG instance those on such instances, unless
    they are too few and those on the whole GPU are enough."""
    own = learned.get((family, model_key))
    if own is not None and own.samples >= MIN_SAMPLES:
        return own
    whole = learned.get((family, model_key.partition(":")[0]))
    return own if whole is None or (own is not None and whole.samples < MIN_SAMPLES) else whole


def work_per_watt(profile: Profile, model: GpuModel) -> float:
    """The guess divided by board power relative to the reference: which card does such work with
    the least energy, for policies that prefer efficient cards."""
    return guess_speed(profile, model.key) * gpu_model(REFERENCE_KEY).tdp_w / model.tdp_w


def _from_table(model_key: str, table: Mapping[str, float]) -> float | None:
    if model_key in table:
        return _positive(table[model_key], f"speed given for {model_key}")
    matching = [(len(keys), name) for name in table if model_key in (keys := _keys(name))]
    if not matching:
        return None
    _, name = min(matching)
    return _positive(table[name], f"speed given for {name}")


@functools.lru_cache(maxsize=4096)
def _keys(name: str) -> frozenset[str]:
    try:
        return resolve(name)
    except UnknownGpuModel:
        return frozenset()


def _guess_or_none(profile: Profile, model_key: str) -> float | None:
    try:
        return guess_speed(profile, model_key)
    except UnknownGpuModel:
        return None


def _positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} is {value}, not a positive number")
    return value
