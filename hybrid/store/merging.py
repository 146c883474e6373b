"""A world brought up to date by what changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from hybrid.domain.node import NodeState
from hybrid.ports.store import World

K = TypeVar("K")
V = TypeVar("V")


def merged(world: World, changed: World) -> World:
    """What a full load would give, from an earlier world and ``load(since=world.revision)``.

    Rows that ended leave; breakers, balances and what was learned come whole with every load, and
    replace what was there.
    """
    jobs = _over(world.jobs, changed.jobs, lambda job: not job.state.ended)
    decisions = {**world.decisions, **changed.decisions}
    if changed.jobs or changed.decisions:
        decisions = {id_: said for id_, said in decisions.items() if id_ in jobs}
    return replace(
        changed,
        jobs=jobs,
        runs=_over(world.runs, changed.runs, lambda run: run.live),
        claims=_over(world.claims, changed.claims, lambda claim: not claim.state.over),
        nodes=_over(world.nodes, changed.nodes, lambda node: node.state is not NodeState.GONE),
        pools=_over(world.pools, changed.pools, lambda pool: not pool.removed),
        decisions=decisions,
    )


def _over(base: Mapping[K, V], changed: Mapping[K, V], live: Callable[[V], bool]) -> Mapping[K, V]:
    if not changed:
        return base
    rows = {**base, **changed}
    return {key: row for key, row in rows.items() if key not in changed or live(row)}
