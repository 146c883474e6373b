"""One tick: observe → sync → plan → lint → commit → act."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from hybrid.domain.claim import Claim
from hybrid.domain.plan import Plan
from hybrid.domain.pool_spec import BurstPool
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import Finding, lint
from hybrid.ports.capacity import BootInfo, CapacityProvider, Queued
from hybrid.ports.clock import Clock
from hybrid.ports.observation import Observation
from hybrid.ports.store import Bundle, Committed, Dropped, Store, World
from hybrid.reconcile.effects import due
from hybrid.reconcile.enact import enact
from hybrid.reconcile.heard import recorded
from hybrid.reconcile.receipts import apply_receipts
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from hybrid.reconcile.thresholds import thresholds_reached
from hybrid.reconcile.views import merged, snapshot_of
from hybrid.runtime.act import Actor
from hybrid.runtime.observe import Observer
from hybrid.runtime.pace import Pace
from hybrid.runtime.planning import Planning
from hybrid.runtime.policy_source import PolicySource
from hybrid.runtime.rule_judge import RuleJudge
from policies.rules import Rule

log = structlog.get_logger(__name__)


def _no_rules(name: str) -> Rule:
    raise LookupError(f"no rules are installed here, and none is called {name}")


CrashPoint = Callable[[str], None]
"""Called between any two effects with the name of what comes next; tests end the world there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What a tick did, for metrics and for people."""

    at: float
    seconds: float
    planned: bool
    synced: int
    actions: int
    calls: int
    dropped: tuple[Dropped, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def quiet(self) -> bool:
        """Whether nothing was changed and nothing was called."""
        return self.synced == 0 and self.actions == 0 and self.calls == 0


@dataclass(slots=True)
class Tick:
    """The loop's body, with what it keeps from one tick to the next."""

    store: Store
    observer: Observer
    actor: Actor
    policies: PolicySource
    providers: dict[str, CapacityProvider]
    boot: BootInfo
    clock: Clock
    pace: Pace
    rules: RuleJudge = field(default_factory=lambda: RuleJudge(_no_rules))
    crash_point: CrashPoint = lambda _name: None
    world: World | None = None
    observation: Observation | None = None
    snapshot: Snapshot | None = None
    last_plan: Plan | None = None
    _planning: Planning = field(default_factory=Planning)
    _planned_for: object = None
    _told: set[str] = field(default_factory=set)

    def run(self, epoch: int) -> TickReport:
        """Do it once. Raises EpochPassed when another process leads the loop."""
        begun = time.monotonic()
        world = self._refreshed()
        observation = self.observer.observe(world)
        self.crash_point("sync")
        # the clouds first, the store after: a claim committed meanwhile must not look orphaned
        world = self._refreshed()
        now = observation.at
        rules = self._rules(world)
        synced = self._commit(sync(world, observation, rules), epoch)
        world = self._refreshed()
        self._tell_recorded(world, observation)
        self._tell_thresholds(world, now, epoch)
        planned, committed, findings = self._plan(world, observation, now, epoch)
        world = self._refreshed()
        effects = due(world, observation, now=now, epoch=epoch, rules=rules)
        self.crash_point("act")
        receipts = self.actor.act(effects, epoch) if effects else ()
        self.crash_point("receipts")
        answered = self._commit(apply_receipts(world, receipts), epoch)
        if answered.applied:
            self._refreshed()
        self.observation = observation
        return TickReport(
            at=now,
            seconds=time.monotonic() - begun,
            planned=planned,
            synced=len(synced.applied),
            actions=len(committed.applied),
            calls=len(effects),
            dropped=(*synced.dropped, *committed.dropped, *answered.dropped),
            findings=findings,
        )

    def forget(self) -> None:
        """Read everything anew at the next tick: after doubt, or when leading anew."""
        self.world = None
        self._planned_for = None

    def _refreshed(self) -> World:
        now = self.clock.now()
        if self.world is None:
            self.world = self.store.load(now=now)
        else:
            self.world = merged(self.world, self.store.load(now=now, since=self.world.revision))
        return self.world

    def _commit(
        self,
        bundles: tuple[Bundle, ...],
        epoch: int,
        accept: Callable[[frozenset[str]], bool] | None = None,
    ) -> Committed:
        if not bundles:
            return Committed((), (), self.world.revision if self.world else 0)
        self.crash_point("commit")
        done = self.store.commit(bundles, at=self.clock.now(), epoch=epoch, accept=accept)
        for drop in done.dropped:
            log.info("bundle dropped", bundle=drop.bundle_id, cause=drop.cause, words=drop.words)
        return done

    def _plan(
        self, world: World, observation: Observation, now: float, epoch: int
    ) -> tuple[bool, Committed, tuple[Finding, ...]]:
        nothing = Committed((), (), world.revision)
        facts = (world.revision, tuple(observation.offers.items()), _gaps(observation))
        last = self.last_plan
        if facts == self._planned_for and last and now - last.at < self.pace.replan_s:
            return False, nothing, ()
        policy = self.policies.current(world.policy_version)
        snapshot = snapshot_of(
            world,
            observation,
            now=now,
            epoch=epoch,
            evaluation_budget=self._planning.budget(self.pace.planning_s),
            usage_half_life_s=policy.document.fair_share.half_life,
        )
        snapshot = replace(snapshot, held_back=self.rules.judged(snapshot, policy.document))
        made = self._planning.plan(snapshot, policy.document, policy.version)
        self.snapshot, self.last_plan, self._planned_for = snapshot, made, facts
        findings = lint(snapshot, made.bundles)
        if findings:
            # a plan that breaks an invariant is a bug: say so, and do nothing of it
            log.error("plan is not clean", findings=[str(finding) for finding in findings])
            return True, nothing, findings

        def accept(dropped: frozenset[str]) -> bool:
            return not lint(snapshot, made.without(dropped))

        done = self._commit(enact(made, world, self._prepare), epoch, accept)
        if done.dropped:
            self._planned_for = None
        return True, done, ()

    def _tell_thresholds(self, world: World, now: float, epoch: int) -> None:
        bundles = thresholds_reached(world.balances, now, self._told)
        self._commit(bundles, epoch)
        # dropped ones were told before: by a former leader, or before a restart
        self._told.update(bundle.id for bundle in bundles)

    def _tell_recorded(self, world: World, observation: Observation) -> None:
        """Let queues forget the notices that the store holds now."""
        found = recorded(world, observation)
        if not found:
            return
        for name, provider in self.providers.items():
            if name in found and isinstance(provider, Queued):
                provider.recorded(found[name])

    def _rules(self, world: World) -> SyncRules:
        policy = self.policies.current(world.policy_version).document
        return replace(self.pace.rules, usage_half_life_s=policy.fair_share.half_life)

    def _prepare(self, claim: Claim) -> str:
        if self.world is None:
            raise RuntimeError("a claim is prepared within a tick")
        pool = self.world.pools[claim.pool].spec
        if not isinstance(pool, BurstPool):
            raise TypeError(f"pool {claim.pool} is not a burst pool")
        return self.providers[claim.offer.provider].prepare(claim, pool, self.boot)


def _gaps(observation: Observation) -> tuple[str, ...]:
    sources = (*observation.engines.items(), *observation.machines.items())
    return tuple(f"{name}:{type(source).__name__}" for name, source in sources)
