"""Pools: apply a document, list them with what is in them, remove one that nobody uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from urllib.parse import urlsplit

from hybrid.domain.breaker import BOOTS
from hybrid.domain.event import Event, EventKind
from hybrid.domain.ids import PoolName
from hybrid.domain.pool_spec import BurstPool, LocalPool
from hybrid.domain.snapshot import Pool
from hybrid.ports.clock import Clock
from hybrid.ports.store import Bundle, Note, Put, Remove, Store, World
from hybrid.services.errors import Conflict, Fault, NotFound, NotNow, Refused, Stale
from hybrid.services.live import Live

TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """A pool and what of it is there now. ``machines`` counts claims that are not over."""

    pool: Pool
    nodes: int
    gpus: int
    machines: int
    runs: int
    warnings: tuple[str, ...] = ()
    """What will not work as it stands, for whoever applies or lists it."""

    @property
    def used(self) -> bool:
        """Whether removing it would leave something behind."""
        return bool(self.nodes or self.machines or self.runs)


@dataclass(frozen=True, slots=True)
class Pools:
    """Reads and writes pools. ``providers`` and ``engines`` are those this server has."""

    store: Store
    live: Live
    clock: Clock
    poke: Callable[[], None]
    providers: tuple[str, ...]
    engines: tuple[str, ...]
    checkpoint_url: str = ""

    def listing(self) -> tuple[PoolUse, ...]:
        """All pools by name."""
        world = self.live.world()
        return tuple(self._use(world, pool) for _, pool in sorted(world.pools.items()))

    def get(self, name: PoolName) -> PoolUse:
        """One pool; NotFound."""
        world = self.live.world()
        pool = world.pools.get(name)
        if pool is None:
            raise NotFound("no_such_pool", f"there is no pool {name}")
        return self._use(world, pool)

    def apply(
        self, name: PoolName, spec: LocalPool | BurstPool, *, over: int | None, by: str
    ) -> tuple[PoolUse, bool]:
        """Make the pool be as ``spec`` says; True if it is new.

        With ``over``, only if that is its version (0: only if it is new), else Stale. Refused when
        the document names a provider or engine that this server does not have; Conflict when it
        would turn a pool in use into one of another kind.
        """
        if spec.name != name:
            said = f"the document names pool {spec.name}, the path {name}"
            raise Refused("wrong_name", said, errors=[Fault("name", said)])
        self._refuse_unknown(spec)
        for _ in range(TRIES):
            world = self.live.world()
            held = world.pools.get(name)
            version = 0 if held is None else held.version
            if over is not None and over != version:
                raise _stale(name, version, over)
            if held is not None and _moves(held.spec, spec) and _use(world, held).used:
                raise Conflict(
                    "pool_in_use",
                    f"pool {name} is in use: its kind, engine, provider and region stay",
                )
            if held is not None and held.spec == spec:
                return self._use(world, held), False
            removals = () if held is None else _closed(world, held.spec, spec)
            if self._commit(Pool(spec=spec, version=version), "applied", by, *removals):
                self.poke()
                return self.get(name), held is None
        raise NotNow("busy", f"pool {name} changes all the time; try again")

    def remove(self, name: PoolName, *, over: int | None, by: str) -> None:
        """Remove a pool; Conflict while it has nodes, machines or runs."""
        for _ in range(TRIES):
            use = self.get(name)
            if over is not None and over != use.pool.version:
                raise _stale(name, use.pool.version, over)
            if use.used:
                raise Conflict(
                    "pool_in_use",
                    f"pool {name} has {use.nodes} node(s), {use.machines} machine(s) and"
                    f" {use.runs} run(s): let them end first",
                )
            if self._commit(replace(use.pool, removed=True), "removed", by):
                self.poke()
                return
        raise NotNow("busy", f"pool {name} changes all the time; try again")

    def _use(self, world: World, pool: Pool) -> PoolUse:
        return replace(_use(world, pool), warnings=self._warnings(pool))

    def _warnings(self, pool: Pool) -> tuple[str, ...]:
        """A checkpoint in a folder of this server is out of reach for a machine in a cloud."""
        scheme = urlsplit(self.checkpoint_url).scheme
        if not isinstance(pool.spec, BurstPool) or scheme not in ("", "file"):
            return ()
        words = (
            f"checkpoints go to {self.checkpoint_url or 'a folder of the server'}, which a cloud's"
            " machines cannot reach unless it is a shared file system: set checkpoint_url to a"
            " bucket"
        )
        return (words,)

    def _commit(self, pool: Pool, what: str, by: str, *more: Remove) -> bool:
        now = self.clock.now()
        event = Event(kind=EventKind.POOL, subject=pool.name, what=what, at=now, actor=by)
        bundle = Bundle(id=f"pool:{pool.name}", changes=(Put(pool), Note(event), *more))
        return not self.store.commit([bundle], at=now).dropped

    def _refuse_unknown(self, spec: LocalPool | BurstPool) -> None:
        if spec.engine not in self.engines:
            raise _unknown("engine", spec.engine, self.engines)
        if isinstance(spec, BurstPool) and spec.provider not in self.providers:
            raise _unknown("provider", spec.provider, self.providers)


def _use(world: World, pool: Pool) -> PoolUse:
    nodes = [node for node in world.nodes.values() if node.pool == pool.name]
    return PoolUse(
        pool=pool,
        nodes=len(nodes),
        gpus=sum(len(node.gpus) for node in nodes),
        machines=sum(claim.pool == pool.name for claim in world.claims.values()),
        runs=sum(run.pool == pool.name for run in world.runs.values()),
    )


def _closed(
    world: World, before: LocalPool | BurstPool, after: LocalPool | BurstPool
) -> tuple[Remove, ...]:
    """Breakers about machines that never joined, where that may have been mended."""
    if not isinstance(before, BurstPool) or not isinstance(after, BurstPool):
        return ()
    if (before.template, before.boot, before.zones) == (after.template, after.boot, after.zones):
        return ()
    mine = (f"{BOOTS}:{after.name}", f"{BOOTS}:{after.name}/")
    return tuple(
        Remove("breaker", scope)
        for scope in sorted(world.breakers)
        if scope == mine[0] or scope.startswith(mine[1])
    )


def _moves(before: LocalPool | BurstPool, after: LocalPool | BurstPool) -> bool:
    """Whether what runs in the pool would be looked for elsewhere."""
    if before.kind != after.kind or before.engine != after.engine:
        return True
    return (
        isinstance(before, BurstPool)
        and isinstance(after, BurstPool)
        and (before.provider, before.region) != (after.provider, after.region)
    )


def _stale(name: str, found: int, expected: int) -> Stale:
    there = f"is at version {found}" if found else "does not exist"
    return Stale("pool_changed", f"pool {name} {there}, not at version {expected}")


def _unknown(what: str, name: str, known: tuple[str, ...]) -> Refused:
    near = get_close_matches(name, known, n=1)
    there = ", ".join(known) or "none"
    hint = f"did you mean {near[0]}?" if near else f"this server has: {there}"
    said = f"this server has no {what} {name!r}; it has: {there}"
    return Refused(f"unknown_{what}", said, errors=[Fault(what, said, hint)])
