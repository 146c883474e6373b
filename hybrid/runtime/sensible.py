"""What clouds and engines say, as far as it can be true.

Whatever is no figure is stopped here, at the port, and told: an offer is ignored with the reason, a
machine keeps its name and its runs while its devices take no new ones. Behind this, nobody meets a
price that is none, a link that goes one way only, or NaN.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hybrid.domain.node import Gpu
from hybrid.domain.offer import Offer
from hybrid.domain.quantities import format_duration
from hybrid.ports.capacity import Offers
from hybrid.ports.engine import NodeReport
from hybrid.runtime.parting import sensible_instances, sensible_parted
from hybrid.topology import InvalidTopology, check_links

OLDEST_PRICE_S = 2 * 86_400.0
"""Prices are asked for once a day; one older than this has not been, and is not gone by."""

AHEAD_S = 3600.0
"""How far another clock may be ahead of ours."""

Matrix = tuple[tuple[float, ...], ...]


def usable(found: Offers, now: float) -> Offers:
    """The offers that can be gone by; the others join those ignored, each with the reason."""
    faults = [(offer, offer_fault(offer, now)) for offer in found.usable]
    return Offers(
        tuple(offer for offer, fault in faults if fault is None),
        (*found.ignored, *((str(offer.id), fault) for offer, fault in faults if fault is not None)),
    )


def offer_fault(offer: Offer, now: float) -> str | None:
    """Why an offer cannot be gone by, or None."""
    try:
        return _price_fault(offer, now) or _machine_fault(offer)
    except (TypeError, ValueError, OverflowError) as problem:
        return f"its figures are not numbers: {problem}"


def _price_fault(offer: Offer, now: float) -> str | None:
    # whatever their types say: providers are other people's code
    price: Any = offer.price_micros_per_hour
    ceiling: Any = offer.price_ceiling_micros_per_hour
    if price is None:
        return "it has no price"
    if not math.isfinite(price) or price <= 0:
        return f"its price is {price} micro-dollars an hour"
    if ceiling is None or not math.isfinite(ceiling) or ceiling < price:
        return f"its price ceiling of {ceiling} micro-dollars is not above its price of {price}"
    if int(price) != price or int(ceiling) != ceiling:
        return f"its price of {price} is no whole number of micro-dollars"
    age_s = now - offer.priced_at
    if not math.isfinite(age_s):
        return f"its price is dated {offer.priced_at}"
    if age_s < -AHEAD_S:
        return f"its price is dated {format_duration(round(-age_s))} ahead of now"
    if age_s > OLDEST_PRICE_S:
        return f"its price is {format_duration(round(age_s))} old"
    return None


def _machine_fault(offer: Offer) -> str | None:
    for name in (
        "gpu_memory_gib", "cpus", "memory_gib", "interruptions_per_hour", "price_pressure",
        "notice_s", "boot_s",
    ):  # fmt: skip
        figure = getattr(offer, name)
        if figure is None or not math.isfinite(figure) or figure < 0:
            return f"its {name} is {figure}"
    left: Any = offer.quota_left
    if left is not None and (not math.isfinite(left) or left < 0):
        return f"its quota_left is {left}"
    if offer.gpus < 0 or (offer.gpus and not offer.gpu_model):
        return f"it has {offer.gpus} GPUs of model {offer.gpu_model!r}"
    if offer.devices and len(offer.devices) != offer.gpus:
        return f"it has {offer.gpus} GPUs, and {len(offer.devices)} are described"
    if not all(math.isfinite(gib) and gib >= 0 for _, gib in offer.devices):
        return f"the memory of its GPUs is {', '.join(str(gib) for _, gib in offer.devices)}"
    links: Any = offer.links_gbps
    if links is None:
        return "its links are not said"
    models = offer.models
    return _links_fault(offer.links_gbps, models, tuple(map(str, range(offer.gpus))))


def sensible(report: NodeReport) -> NodeReport:
    """The report without what cannot be true. Devices at fault are not healthy, and say why; where
    the links are at fault that is all of them, with the pair named. MIG instances that overlap name
    each other. Cores and memory that are no
    figures count as none."""
    gpus = sensible_instances(tuple([_sensible(gpu) for gpu in report.gpus]))
    parted = sensible_parted(report.parted)
    links = report.links_gbps
    models, names = tuple([g.model for g in gpus]), tuple([str(g.id) for g in gpus])
    fault = _links_fault(links, models, names)
    if fault is not None:
        gpus = tuple([replace(gpu, healthy=False, health_reason=fault) for gpu in gpus])
        links = ((0.0,) * len(gpus),) * len(gpus)
    cpus, memory_gib = _figure(report.cpus), _figure(report.memory_gib)
    told = (report.gpus, report.links_gbps, report.parted, report.cpus, report.memory_gib)
    if told == (gpus, links, parted, cpus, memory_gib):
        return report
    return replace(
        report, gpus=gpus, links_gbps=links, parted=parted, cpus=cpus, memory_gib=memory_gib
    )


def _sensible(gpu: Gpu) -> Gpu:
    if math.isfinite(gpu.memory_gib) and gpu.memory_gib >= 0:
        return gpu
    words = f"its memory is {gpu.memory_gib} GiB"
    return replace(gpu, memory_gib=0.0, healthy=False, health_reason=words)


def _figure(value: float) -> float:
    return value if math.isfinite(value) and value >= 0 else 0.0


@lru_cache(maxsize=4096)
def _links_fault(links: Matrix, models: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    """What is wrong with the links of a machine, by the names of its devices."""
    count = len(models)
    if not links and count <= 1:
        return None
    try:
        if links and len(links) != count:
            return f"links between {len(links)} devices, and there are {count}"
        check_links(links or ((0.0,) * count,) * count, models)
    except InvalidTopology as problem:
        if problem.pair is None:
            return problem.reason
        one, other = (names[i] if i in range(count) else f"device {i}" for i in _two(problem.pair))
        return f"link between {one} and {other}: {problem.reason}"
    return None


def _two(pair: tuple[object, object]) -> tuple[int, int]:
    one, other = pair
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one, other
