"""The world after changes, and the Snapshot that a plan is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from hybrid.domain.ids import RunId
from hybrid.domain.job import Progress
from hybrid.domain.node import NodeState
from hybrid.domain.offer import Offer
from hybrid.domain.snapshot import Snapshot, UnknownSource
from hybrid.ports.observation import Known, Observation, Unknown
from hybrid.ports.store import World

K = TypeVar("K", bound=str)
V = TypeVar("V")


def merged(world: World, delta: World) -> World:
    """The world with the rows changed since; those that ended meanwhile are dropped."""
    if delta.revision == world.revision:
        return replace(world, balances=delta.balances)
    jobs = _merge(world.jobs, delta.jobs, lambda job: not job.state.ended)
    decisions = world.decisions
    if delta.jobs or delta.decisions:
        told = {**world.decisions, **delta.decisions}
        decisions = {job_id: decision for job_id, decision in told.items() if job_id in jobs}
    return replace(
        delta,
        jobs=jobs,
        runs=_merge(world.runs, delta.runs, lambda run: run.live),
        claims=_merge(world.claims, delta.claims, lambda claim: not claim.state.over),
        nodes=_merge(world.nodes, delta.nodes, lambda node: node.state is not NodeState.GONE),
        pools=_merge(world.pools, delta.pools, lambda pool: not pool.removed),
        # breakers are deleted when they close, which a delta cannot show: it holds all of them
        breakers=delta.breakers,
        decisions=decisions,
        sightings=_merge(world.sightings, delta.sightings, lambda _: True),
    )


def _merge(base: Mapping[K, V], changed: Mapping[K, V], live: Callable[[V], bool]) -> Mapping[K, V]:
    if not changed:
        return base
    result = dict(base)
    for key, value in changed.items():
        if live(value):
            result[key] = value
        else:
            result.pop(key, None)
    return result


def snapshot_of(
    world: World,
    observation: Observation,
    *,
    now: float,
    epoch: int,
    evaluation_budget: int,
    usage_half_life_s: float,
) -> Snapshot:
    """The frozen world the planner sees."""
    return Snapshot(
        now=now,
        revision=world.revision,
        installation=world.installation,
        epoch=epoch,
        jobs=world.jobs,
        runs=world.runs,
        nodes=world.nodes,
        pools=world.pools,
        claims=world.claims,
        offers=_offers(observation),
        balances=world.balances,
        breakers=world.breakers,
        learned=world.learned,
        sightings=world.sightings,
        progress=_progress(observation),
        decisions=world.decisions,
        usage_gpu_s=_usage(world, now, usage_half_life_s),
        unknown=_unknown(observation),
        evaluation_budget=evaluation_budget,
    )


def _usage(world: World, now: float, half_life_s: float) -> dict[str, float]:
    """GPU-seconds per team: those of ended runs, decayed, and those of live ones so far."""
    usage = {
        team: used.decayed(now, half_life_s) for team, used in sorted(world.learned.usage.items())
    }
    for run in world.runs.values():
        job = world.jobs.get(run.job_id)
        if job is not None:
            held = run.gpus * max(0.0, now - run.assigned_at)
            usage[job.team] = usage.get(job.team, 0.0) + held
    return usage


def _offers(observation: Observation) -> tuple[Offer, ...]:
    offers: list[Offer] = []
    for source in observation.offers.values():
        if isinstance(source, Known):
            offers.extend(source.value)
    return tuple(sorted(offers, key=lambda offer: offer.id))


def _progress(observation: Observation) -> dict[RunId, Progress]:
    """The progress of each run: that of its slowest rank."""
    progress: dict[RunId, Progress] = {}
    for source in observation.engines.values():
        if not isinstance(source, Known):
            continue
        for rank in source.value.ranks:
            if rank.progress is None:
                continue
            slowest = progress.get(rank.run_id)
            if slowest is None or rank.progress.step < slowest.step:
                progress[rank.run_id] = rank.progress
    return progress


def _unknown(observation: Observation) -> tuple[UnknownSource, ...]:
    gaps = [
        UnknownSource(f"{kind}:{name}", source.cause)
        for kind, sources in (
            ("engine", observation.engines),
            ("provider", observation.machines),
            ("offers", observation.offers),
        )
        for name, source in sources.items()
        if isinstance(source, Unknown)
    ]
    return tuple(sorted(gaps, key=lambda gap: gap.source))
