"""Collects the changes of one pass over the world, bundle by bundle.

A pass reads through the drafts, so that it sees what it has already changed. Every step that an
entity's history gained becomes an event in the same bundle: a timeline can never tell less than
what was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from hybrid.domain.breaker import Breaker
from hybrid.domain.claim import Claim
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import ClaimId, JobId, NodeId, OfferId, RunId
from hybrid.domain.job import Job
from hybrid.domain.node import Node
from hybrid.domain.plan import RowRef
from hybrid.domain.run import Run
from hybrid.domain.sightings import Sightings
from hybrid.domain.transitions import Step
from hybrid.ports.store import Bundle, Change, Entity, Note, Put, World

K = TypeVar("K", bound=str)
V = TypeVar("V")


class Draft:
    """The changes of one bundle."""

    def __init__(self, drafts: Drafts, bundle_id: str) -> None:
        self._drafts = drafts
        self.id = bundle_id
        self._entities: dict[tuple[str, str], Entity] = {}
        self._changes: list[Change] = []
        self._rests_on: dict[tuple[str, str], RowRef] = {}

    def put(self, entity: Entity) -> None:
        """Write an entity; the last of several in one bundle counts."""
        self._entities[row_key(entity)] = entity
        self._drafts.see(entity)

    def add(self, change: Change) -> None:
        """Add a change that is not an entity."""
        self._changes.append(change)

    def rest_on(self, kind: str, id_: str, version: int) -> None:
        """Rest on a row that is only read."""
        self._rests_on[kind, id_] = RowRef(kind=kind, id=id_, version=version)

    def bundle(self, world: World) -> Bundle | None:
        """The bundle, or None when nothing changes."""
        if not self._entities and not self._changes:
            return None
        changes: list[Change] = []
        for entity in self._entities.values():
            changes.append(Put(entity))
            changes.extend(Note(event) for event in _events(entity, world))
        rests_on = tuple(ref for key, ref in self._rests_on.items() if key not in self._entities)
        return Bundle(id=self.id, changes=(*changes, *self._changes), rests_on=rests_on)


class Drafts:
    """All bundles of one pass, and the world as seen through them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._drafts: dict[str, Draft] = {}
        self._jobs: dict[JobId, Job] = {}
        self._runs: dict[RunId, Run] = {}
        self._claims: dict[ClaimId, Claim] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._sightings: dict[OfferId, Sightings] = {}
        self._breakers: dict[str, Breaker] = {}

    def draft(self, bundle_id: str) -> Draft:
        """The draft of that id, begun now if there is none."""
        return self._drafts.setdefault(bundle_id, Draft(self, bundle_id))

    def see(self, entity: Entity) -> None:
        """Let later reads see an entity."""
        match entity:
            case Job():
                self._jobs[entity.id] = entity
            case Run():
                self._runs[entity.id] = entity
            case Claim():
                self._claims[entity.id] = entity
            case Node():
                self._nodes[entity.id] = entity
            case Sightings():
                self._sightings[entity.offer_id] = entity
            case Breaker():
                self._breakers[entity.scope] = entity
            case _:
                pass

    def job(self, id_: JobId) -> Job | None:
        """A live job."""
        return self._jobs.get(id_) or self.world.jobs.get(id_)

    def run(self, id_: RunId) -> Run | None:
        """A live run, or one that ended in this pass."""
        return self._runs.get(id_) or self.world.runs.get(id_)

    def claim(self, id_: ClaimId) -> Claim | None:
        """A claim not over, or one that came to be over in this pass."""
        return self._claims.get(id_) or self.world.claims.get(id_)

    def node(self, id_: NodeId) -> Node | None:
        """A node not gone, or one that went in this pass."""
        return self._nodes.get(id_) or self.world.nodes.get(id_)

    def breaker(self, scope: str) -> Breaker | None:
        """A breaker, with what this pass has made of it."""
        return self._breakers.get(scope) or self.world.breakers.get(scope)

    def sightings(self, id_: OfferId) -> Sightings:
        """What has been seen of an offer, with what this pass has seen."""
        known = self._sightings.get(id_) or self.world.sightings.get(id_)
        return known or Sightings(offer_id=id_)

    def runs(self) -> Iterator[Run]:
        """All runs, live or ended in this pass."""
        return _through(self.world.runs, self._runs)

    def claims(self) -> Iterator[Claim]:
        """All claims."""
        return _through(self.world.claims, self._claims)

    def nodes(self) -> Iterator[Node]:
        """All nodes."""
        return _through(self.world.nodes, self._nodes)

    def bundles(self) -> tuple[Bundle, ...]:
        """What is to be committed, in the order the drafts were begun."""
        made = (draft.bundle(self.world) for draft in self._drafts.values())
        return tuple(bundle for bundle in made if bundle is not None)


def _through(base: Mapping[K, V], over: Mapping[K, V]) -> Iterator[V]:
    for key, value in list(base.items()):
        yield over.get(key, value)
    for key, value in list(over.items()):
        if key not in base:
            yield value


def row_key(entity: Entity) -> tuple[str, str]:
    """The kind and id of an entity's row."""
    match entity:
        case Job() | Run() | Claim() | Node():
            return type(entity).__name__.lower(), entity.id
        case Sightings():
            return "sightings", entity.offer_id
        case _:
            name = getattr(entity, "name", None) or getattr(entity, "scope", "")
            return type(entity).__name__.lower(), str(name)


def _events(entity: Entity, world: World) -> Iterator[Event]:
    match entity:
        case Job():
            before: tuple[Step, ...] = _history(world.jobs.get(entity.id))
            kind, job_id = EventKind.JOB, str(entity.id)
        case Run():
            before = _history(world.runs.get(entity.id))
            kind, job_id = EventKind.RUN, str(entity.job_id)
        case Claim():
            before = _history(world.claims.get(entity.id))
            kind, job_id = EventKind.CLAIM, str(entity.job_id)
        case Node():
            before = _history(world.nodes.get(entity.id))
            kind, job_id = EventKind.NODE, ""
        case _:
            return
    known = set(before)
    for step in entity.history:
        if step not in known:
            yield Event(
                kind=kind,
                subject=entity.id,
                what=step.state,
                at=step.at,
                words=step.cause,
                job_id=job_id,
            )


def _history(entity: Job | Run | Claim | Node | None) -> tuple[Step, ...]:
    return () if entity is None else entity.history
