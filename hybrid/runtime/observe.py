"""Reads the engines and the clouds side by side. A source that fails is unknown, never empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import CapacityProvider, Sweeping
from hybrid.ports.clock import Clock
from hybrid.ports.engine import WorkloadRuntime
from hybrid.ports.observation import EngineFacts, Known, MachineFacts, Observation, Unknown
from hybrid.ports.store import World
from hybrid.runtime.deadlines import Answer, Calls, Failure, NoAnswer
from hybrid.runtime.pace import Pace
from hybrid.runtime.sensible import sensible, usable

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Observer:
    """Asks every source, each at its own pace and under the same deadline.

    Between two askings the last answer stands, with the time it was asked for. A cloud is asked for
    its machines at every tick while claims are live, and more rarely otherwise.
    """

    def __init__(
        self,
        engines: Mapping[str, WorkloadRuntime],
        providers: Mapping[str, CapacityProvider],
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._engines, self._providers = engines, providers
        self._clock, self._pace = clock, pace
        self._calls = Calls(workers=3 * len(providers) + len(engines) + 4, name="observe")
        self._heard_since = clock.now()
        self._machines: dict[str, Known[MachineFacts] | Unknown] = {}
        self._offers: dict[str, Known[tuple[Offer, ...]] | Unknown] = {}
        self._ignored: dict[str, tuple[tuple[str, str], ...]] = {}
        self._priced_for: dict[str, tuple[BurstPool, ...]] = {}
        self._swept_at: dict[str, float] = {}

    @property
    def ignored_offers(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """By provider, the offers that cannot be used, each with the reason."""
        return self._ignored

    def observe(self, world: World) -> Observation:
        """What the outside says now."""
        asked_at = self._clock.now()
        calls: dict[str, Callable[[], object]] = {}
        for name, engine in self._engines.items():
            calls[f"engine:{name}"] = _engine_call(engine)
        for name, provider in self._providers.items():
            if self._machines_due(name, world, asked_at):
                calls[f"machines:{name}"] = _machines_call(provider)
            pools = _pools_of(world, name)
            if self._offers_due(name, asked_at) or pools != self._priced_for.get(name):
                calls[f"offers:{name}"] = self._offers_call(name, provider, pools)
            if isinstance(provider, Sweeping) and self._sweep_due(name, asked_at):
                calls[f"leftovers:{name}"] = provider.leftovers
        outcomes = self._calls.run(calls, deadline_s=self._pace.source_deadline_s)
        engines = {
            name: _source(outcomes[f"engine:{name}"], asked_at, EngineFacts, f"engine:{name}")
            for name in self._engines
        }
        for name in self._providers:
            if (outcome := outcomes.get(f"machines:{name}")) is not None:
                self._machines[name] = _source(outcome, asked_at, MachineFacts, f"provider:{name}")
            if (outcome := outcomes.get(f"offers:{name}")) is not None:
                self._offers[name] = _source(outcome, asked_at, tuple, f"offers:{name}")
        return Observation(
            at=self._clock.now(),
            heard_since=self._heard_since,
            engines=engines,
            machines=dict(self._machines),
            offers=dict(self._offers),
            leftovers={
                name: _source(outcome, asked_at, tuple, f"leftovers:{name}")
                for name in self._providers
                if (outcome := outcomes.get(f"leftovers:{name}")) is not None
            },
        )

    def close(self) -> None:
        """Ask nothing more."""
        self._calls.close()

    def _machines_due(self, name: str, world: World, now: float) -> bool:
        last = self._machines.get(name)
        if not isinstance(last, Known):
            return True
        live = any(claim.offer.provider == name for claim in world.claims.values())
        every_s = self._pace.list_every_s if live else self._pace.list_idle_every_s
        return now - last.asked_at >= every_s

    def _offers_due(self, name: str, now: float) -> bool:
        last = self._offers.get(name)
        return not isinstance(last, Known) or now - last.asked_at >= self._pace.offers_every_s

    def _sweep_due(self, name: str, now: float) -> bool:
        if now - self._swept_at.get(name, float("-inf")) < self._pace.sweep_every_s:
            return False
        self._swept_at[name] = now
        return True

    def _offers_call(
        self, name: str, provider: CapacityProvider, pools: tuple[BurstPool, ...]
    ) -> Callable[[], object]:
        def ask() -> tuple[Offer, ...]:
            found = usable(provider.offers(pools), self._clock.now())
            self._ignored[name], self._priced_for[name] = found.ignored, pools
            return found.usable

        return ask


def _engine_call(engine: WorkloadRuntime) -> Callable[[], object]:
    # runs before nodes: a run that is listed after its node has left would look lost
    def ask() -> EngineFacts:
        ranks = engine.list_runs()
        nodes = tuple([sensible(report) for report in engine.inventory()])
        return EngineFacts(nodes=nodes, ranks=ranks)

    return ask


def _machines_call(provider: CapacityProvider) -> Callable[[], object]:
    def ask() -> MachineFacts:
        return MachineFacts(machines=provider.list_machines(), notices=provider.notices())

    return ask


def _pools_of(world: World, provider: str) -> tuple[BurstPool, ...]:
    return tuple(
        pool.spec
        for _, pool in sorted(world.pools.items())
        if isinstance(pool.spec, BurstPool) and pool.spec.provider == provider
    )


def _source(
    outcome: Answer[object] | Failure | NoAnswer, asked_at: float, kind: type[T], name: str
) -> Known[T] | Unknown:
    match outcome:
        case Answer(value=value) if isinstance(value, kind):
            return Known(value, asked_at)
        case Failure(error=error):
            log.warning("source unknown", source=name, error=str(error), kind=type(error).__name__)
            return Unknown(f"{type(error).__name__}: {error}", asked_at)
        case NoAnswer(waited_s=waited_s):
            log.warning("source unknown", source=name, waited_s=round(waited_s, 1))
            return Unknown(f"no answer within {waited_s:.1f} s", asked_at)
        case _:
            raise TypeError(f"{name} answered with {outcome!r}")
