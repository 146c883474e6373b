"""What every cloud's offers are made of: pools × zones × machine types × markets, priced.

A provider says what its region sells (:class:`Region`); what cannot be used says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hybrid.domain.ids import PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.offer import Offer, Quota, offer_id
from hybrid.domain.pool_spec import BurstPool
from hybrid.estimation.interruptions import price_pressure
from hybrid.ports.capacity import Offers


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What a machine of a type has. ``gpu_model`` is empty for one without GPUs; ``devices`` are
    model and memory of each GPU where they differ."""

    gpus: int
    gpu_model: str
    gpu_memory_gib: float
    links_gbps: tuple[tuple[float, ...], ...]
    cpus: float
    memory_gib: float
    architecture: str
    devices: tuple[tuple[str, float], ...] = ()


STALE: Final = "not renewed since"
"""Stands in the source of a price that could not be asked for anew."""


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour, when it was found and where. ``usual_micros_per_hour`` is what it has been
    of late, where a cloud's spot prices move and it tells."""

    micros_per_hour: int
    at: float
    source: str
    usual_micros_per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What a region sells: facts per machine type, where each is sold, and prices.

    ``cloud`` names the cloud to people. ``quotas`` go by machine type and market; what is not in it
    is unknown.
    """

    cloud: str
    facts: Mapping[str, MachineFacts]
    sold: frozenset[tuple[str, str]]
    on_demand: Mapping[tuple[str, str], Price]
    spot: Mapping[tuple[str, str], Price]
    quota_family: Callable[[str], str]
    quotas: Mapping[tuple[str, Market], Quota] = field(default_factory=dict)


def offers(pools: Sequence[BurstPool], region: Region) -> Offers:
    """The offers of the pools, and for each that is ignored its id and the reason."""
    usable: list[Offer] = []
    ignored: list[tuple[str, str]] = []
    for pool in pools:
        for zone, machine_type, market in combinations(pool):
            name = offer_id(PoolName(pool.name), zone, machine_type, market)
            found = _offer(pool, zone, machine_type, market, region)
            if isinstance(found, Offer):
                usable.append(found)
            else:
                ignored.append((str(name), found))
    return Offers(tuple(usable), tuple(ignored))


def combinations(pool: BurstPool) -> Iterator[tuple[str, str, Market]]:
    """Zone, machine type and market of each offer that a pool can have."""
    for zone in pool.zones:
        for machine_type in pool.machine_types:
            for market in pool.markets:
                yield zone.name, machine_type, market


def _offer(
    pool: BurstPool, zone: str, machine_type: str, market: Market, region: Region
) -> Offer | str:
    facts = region.facts.get(machine_type)
    if facts is None:
        return (
            f"{region.cloud} knows no machine type {machine_type}, or its GPU is not in the"
            " catalogue"
        )
    if (machine_type, zone) not in region.sold:
        return f"{machine_type} is not sold in {zone}"
    listed = region.on_demand.get((machine_type, zone))
    price = region.spot.get((machine_type, zone)) if market is Market.SPOT else listed
    if price is None:
        return f"no {market.replace('_', '-')} price is known"
    if price.micros_per_hour <= 0:
        return f"its {market.replace('_', '-')} price is {price.micros_per_hour} micro-dollars"
    # a spot machine never costs more than the list price
    ceiling = max(price.micros_per_hour, listed.micros_per_hour if listed else 0)
    spot = market is Market.SPOT
    quota = region.quotas.get((machine_type, market))
    name = PoolName(pool.name)
    return Offer(
        id=offer_id(name, zone, machine_type, market),
        pool=name,
        provider=pool.provider,
        region=pool.region,
        zone=zone,
        machine_type=machine_type,
        market=market,
        gpus=facts.gpus,
        gpu_model=facts.gpu_model,
        gpu_memory_gib=facts.gpu_memory_gib,
        devices=facts.devices,
        links_gbps=facts.links_gbps,
        cpus=facts.cpus,
        memory_gib=facts.memory_gib,
        architecture=facts.architecture,
        price_micros_per_hour=price.micros_per_hour,
        price_ceiling_micros_per_hour=ceiling,
        priced_at=price.at,
        price_source=price.source,
        price_follows_market=spot,
        interruptions_per_hour=pool.interruptions_per_hour if spot else 0.0,
        price_pressure=_pressure(price, ceiling) if spot else 1.0,
        notice_s=pool.notice if spot else 0.0,
        boot_s=pool.boot.expected,
        quota_family=region.quota_family(machine_type),
        quota_left=None if quota is None else quota.machines_left,
        quota=quota,
    )


def _pressure(price: Price, ceiling: int) -> float:
    if price.usual_micros_per_hour is None:
        return 1.0
    return price_pressure(price.micros_per_hour, price.usual_micros_per_hour, ceiling)
