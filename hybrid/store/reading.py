"""What the loop starts from: the live rows, or what has changed since."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from sqlalchemy import Connection, select, text

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim
from hybrid.domain.ids import ClaimId, JobId, NodeId, OfferId, PoolName, RunId
from hybrid.domain.job import Job
from hybrid.domain.learned import Learned
from hybrid.domain.node import Node
from hybrid.domain.plan import Decision
from hybrid.domain.run import Run
from hybrid.domain.sightings import Sightings
from hybrid.domain.snapshot import Pool
from hybrid.ports.store import World
from hybrid.store.checks import policy_version
from hybrid.store.documents import load, load_decision, load_learned
from hybrid.store.money import load_balances
from hybrid.store.rows import BREAKER, CLAIM, JOB, NODE, POOL, RUN, SIGHTINGS, RowKind
from hybrid.store.tables import decisions, jobs, learned, system

T = TypeVar("T")

_LIVE = text("live = 1")
"""Written out, not bound: only then do the partial indexes serve it."""


def load_world(connection: Connection, *, now: float, since: int | None) -> World:
    """The live rows, or those changed after a revision; one consistent view."""
    row = connection.execute(select(system.c.revision, system.c.installation)).one()
    world = World(
        revision=row.revision,
        installation=row.installation,
        policy_version=policy_version(connection),
        breakers={b.scope: b for b in _values(connection, BREAKER, Breaker, None)},
        balances=load_balances(connection, now),
        learned=_learned(connection),
    )
    if since is not None and since >= row.revision:
        return world
    return World(
        revision=world.revision,
        installation=world.installation,
        policy_version=world.policy_version,
        jobs={JobId(job.id): job for job in _values(connection, JOB, Job, since)},
        runs={RunId(run.id): run for run in _values(connection, RUN, Run, since)},
        claims={ClaimId(claim.id): claim for claim in _values(connection, CLAIM, Claim, since)},
        nodes={NodeId(node.id): node for node in _values(connection, NODE, Node, since)},
        pools={PoolName(pool.name): pool for pool in _values(connection, POOL, Pool, since)},
        breakers=world.breakers,
        decisions=_decisions(connection, since),
        balances=world.balances,
        learned=world.learned,
        sightings={
            OfferId(seen.offer_id): seen
            for seen in _values(connection, SIGHTINGS, Sightings, since)
        },
    )


def _values(connection: Connection, kind: RowKind, type_: type[T], since: int | None) -> list[T]:
    # sorted here: asked for an order by id, SQLite walks all history along that index
    question = select(kind.table.c.id, kind.table.c.doc)
    if since is not None:
        question = question.where(kind.table.c.revision > since)
    elif kind.live is not None:
        question = question.where(_LIVE)
    rows = sorted((row.id, row.doc) for row in connection.execute(question))
    return [load(type_, doc) for _, doc in rows]


def _decisions(connection: Connection, since: int | None) -> dict[JobId, Decision]:
    question = select(decisions.c.job_id, decisions.c.doc)
    if since is None:
        question = question.join(jobs, jobs.c.id == decisions.c.job_id).where(text("jobs.live = 1"))
    else:
        question = question.where(decisions.c.revision > since)
    rows = sorted((row.job_id, row.doc) for row in connection.execute(question))
    return {JobId(job_id): load_decision(doc) for job_id, doc in rows}


def _learned(connection: Connection) -> Learned:
    doc = connection.execute(select(learned.c.doc)).scalar()
    return Learned() if doc is None else _parsed(doc)


@lru_cache(maxsize=4)
def _parsed(doc: str) -> Learned:
    """It is asked for at every tick and changes seldom."""
    return load_learned(doc)
