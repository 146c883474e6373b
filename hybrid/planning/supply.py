"""Everything jobs could ever run on: nodes that have joined, and machines a burst pool may ask for
whether or not they are listed now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from hybrid.domain.ids import PoolName
from hybrid.domain.job_spec import Market
from hybrid.domain.node import Node
from hybrid.domain.offer import Offer, offer_id
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.snapshot import Pool
from hybrid.hardware import MODELS, MachineType, machine_types
from hybrid.planning.fit import Shape, node_facts, node_shape, offer_shape
from hybrid.planning.replicas import replicas_in
from hybrid.topology import preset


@dataclass(frozen=True, slots=True)
class Site:
    """Machines of one shape in one pool: ``offer`` says how they are had, None for those that are
    owned. ``most`` is how many there are, or may be."""

    shape: Shape
    label: str
    most: int
    pool: LocalPool | BurstPool
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """A pool of which too little is known to refuse a job on its account: no node has joined it
    yet, its engine could not be read, or nothing describes one of its machine types. ``offers``
    say to where and on which markets a burst pool goes; their hardware means nothing."""

    pool: LocalPool | BurstPool
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Supply:
    """All sites, local ones first, and the pools that are unclear."""

    sites: tuple[Site, ...]
    unclear: tuple[Unclear, ...]
    models: tuple[str, ...]
    """The GPU models there are, by name."""


def supply(
    nodes: Iterable[Node],
    pools: Iterable[Pool],
    offers: Iterable[Offer],
    unknown: Collection[str] = (),
) -> Supply:
    """What could be had at all. ``unknown`` names the sources that could not be read
    (``engine:NAME``). Compute it once for all jobs of a tick."""
    by_pool: dict[PoolName, list[Node]] = {}
    for node in nodes:
        by_pool.setdefault(node.pool, []).append(node)
    listed: dict[PoolName, list[Offer]] = {}
    for offer in offers:
        listed.setdefault(offer.pool, []).append(offer)
    shapes = _Shapes()
    local: list[Site] = []
    cloud: list[Site] = []
    unclear: list[Unclear] = []
    for pool in sorted((p for p in pools if not p.removed), key=lambda p: p.name):
        spec = pool.spec
        if isinstance(spec, LocalPool):
            here = by_pool.get(pool.name, [])
            local += _local_sites(spec, here, shapes)
            if not here or f"engine:{spec.engine}" in unknown:
                unclear.append(Unclear(spec))
        else:
            found, undescribed = _cloud_sites(spec, listed.get(pool.name, []), shapes)
            cloud += found
            if undescribed:
                unclear.append(Unclear(spec, undescribed))
    sites = (*local, *cloud)
    models = {model for site in sites for model in site.shape.models}
    return Supply(sites, tuple(unclear), tuple(sorted(models)))


class _Shapes:
    """One object for all machines of one shape. Hot: these are compared by value otherwise."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, Shape] = {}
        self._by_facts: dict[tuple[object, ...], Shape] = {}

    def of_node(self, node: Node, replicas: int) -> Shape:
        """A node's shape. A sick device may recover, so all count as working."""
        facts = node_facts(node, replicas)
        found = self._by_facts.get(facts)
        if found is None:
            healthy = (1 << len(node.gpus)) - 1
            found = self._one(replace(node_shape(node, replicas), healthy=healthy))
            self._by_facts[facts] = found
        return found

    def of_offer(self, offer: Offer) -> Shape:
        """An offer's shape."""
        return self._one(offer_shape(offer))

    def _one(self, shape: Shape) -> Shape:
        return self._shapes.setdefault(shape, shape)


def _local_sites(pool: LocalPool, nodes: list[Node], shapes: _Shapes) -> Iterator[Site]:
    """One site per shape."""
    alike: dict[Shape, list[Node]] = {}
    replicas = replicas_in(pool)
    for node in sorted(nodes, key=lambda n: n.id):
        alike.setdefault(shapes.of_node(node, replicas), []).append(node)
    for shape, members in alike.items():
        name = members[0].hostname or members[0].id
        others = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        yield Site(shape, f"{name}{others} in pool {pool.name}", len(members), pool)


def _cloud_sites(
    pool: BurstPool, listed: list[Offer], shapes: _Shapes
) -> tuple[list[Site], tuple[Offer, ...]]:
    """The pool's machine types, as listed or else from the catalogue; and stand-ins, one per
    market, when a type is in neither."""
    offers = list(listed)
    seen = {offer.machine_type for offer in listed}
    undescribed: tuple[Offer, ...] = ()
    for name in pool.machine_types:
        kind = _catalogue().get(name)
        if name in seen:
            continue
        if kind is None:
            undescribed = tuple(_offer(pool, name, market, None) for market in pool.markets)
        else:
            offers += [_offer(pool, name, market, kind) for market in pool.markets]
    # zones of a pool differ in nothing that matters here
    distinct = {(o.machine_type, o.market): o for o in sorted(offers, key=lambda o: o.id)}
    most = pool.ceilings.machines
    sites = [
        Site(
            shapes.of_offer(o), f"{o.machine_type} ({o.market}) in pool {pool.name}", most, pool, o
        )
        for _, o in sorted(distinct.items())
    ]
    return sites, undescribed


@cache
def _catalogue() -> dict[str, MachineType]:
    return {kind.name: kind for kind in machine_types()}


def _offer(pool: BurstPool, name: str, market: Market, kind: MachineType | None) -> Offer:
    """A machine type as the catalogue knows it (None: as nobody does), without a price: only for
    asking whether it would do at all."""
    zone = pool.zones[0].name
    return Offer(
        id=offer_id(PoolName(pool.name), zone, name, market),
        pool=PoolName(pool.name),
        provider=pool.provider,
        region=pool.region,
        zone=zone,
        machine_type=name,
        market=market,
        gpus=kind.gpus if kind else 0,
        gpu_model=kind.gpu if kind else "",
        gpu_memory_gib=MODELS[kind.gpu].usable_memory_gib if kind else 0.0,
        links_gbps=preset(kind.links, kind.gpu, kind.gpus).gbps if kind else (),
        cpus=kind.vcpus if kind else 0,
        memory_gib=kind.memory_gib if kind else 0.0,
        architecture=_CPU_NAMES.get(kind.architecture, kind.architecture) if kind else "",
        price_micros_per_hour=0,
        price_ceiling_micros_per_hour=0,
        priced_at=0.0,
        price_source="none",
    )


_CPU_NAMES = {"arm64": "aarch64"}
"""EC2's name of an architecture where it is not the one jobs ask for."""
