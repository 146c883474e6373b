"""How each kind of entity becomes a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim
from hybrid.domain.job import Job
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run
from hybrid.domain.sightings import Sightings
from hybrid.domain.snapshot import Pool
from hybrid.ports.store import Entity
from hybrid.store import tables


@dataclass(frozen=True, slots=True)
class RowKind:
    """One kind of row: its table, what identifies it, and the columns beside the document.

    ``renewable``: a row that is no longer live may be written anew under the same name (a pool
    that was removed and comes back, a node that left and joins again).
    """

    name: str
    type: type[Any]
    table: Table
    id_of: Callable[[Any], str]
    live: Callable[[Any], bool] | None
    columns: Callable[[Any], Mapping[str, Any]]
    renewable: bool = False

    def values(self, entity: Any) -> dict[str, Any]:
        """The row's columns, without version, revision and document."""
        values = {"id": self.id_of(entity), **self.columns(entity)}
        if self.live is not None:
            values["live"] = int(self.live(entity))
        return values


JOB = RowKind(
    "job",
    Job,
    tables.jobs,
    lambda job: job.id,
    lambda job: not job.state.ended,
    lambda job: {
        "state": job.state.value,
        "team": job.team,
        "user_name": job.user,
        "priority": job.spec.priority,
        "name": job.spec.name,
        "submitted_at": job.submitted_at,
    },
)
RUN = RowKind(
    "run",
    Run,
    tables.runs,
    lambda run: run.id,
    lambda run: run.live,
    lambda run: {"state": run.state.value, "job_id": run.job_id, "attempt": run.attempt},
)
CLAIM = RowKind(
    "claim",
    Claim,
    tables.claims,
    lambda claim: claim.id,
    lambda claim: not claim.state.over,
    lambda claim: {
        "state": claim.state.value,
        "pool": claim.pool,
        "team": claim.team,
        "job_id": claim.job_id,
        "requested_at": claim.requested_at,
    },
)
NODE = RowKind(
    "node",
    Node,
    tables.nodes,
    lambda node: node.id,
    lambda node: node.state is not NodeState.GONE,
    lambda node: {"state": node.state.value, "pool": node.pool},
    renewable=True,
)
POOL = RowKind(
    "pool",
    Pool,
    tables.pools,
    lambda pool: pool.name,
    lambda pool: not pool.removed,
    lambda _: {},
    renewable=True,
)
BREAKER = RowKind(
    "breaker", Breaker, tables.breakers, lambda breaker: breaker.scope, None, lambda _: {}
)
SIGHTINGS = RowKind(
    "sightings", Sightings, tables.sightings, lambda seen: seen.offer_id, None, lambda _: {}
)

KINDS: Mapping[str, RowKind] = {
    kind.name: kind for kind in (JOB, RUN, CLAIM, NODE, POOL, BREAKER, SIGHTINGS)
}
_BY_TYPE: Mapping[type[Any], RowKind] = {kind.type: kind for kind in KINDS.values()}


def kind_of(entity: Entity) -> RowKind:
    """The kind of row an entity is."""
    return _BY_TYPE[type(entity)]
