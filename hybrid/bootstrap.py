"""Puts the product together: store, engines, providers, loop and services, in the order in which
they need each other, and takes it apart in the reverse.

The faces are put on top elsewhere (:mod:`api.server`).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import structlog

from hybrid import registry
from hybrid.agent.bell import Bell
from hybrid.agent.checkpoints import CheckpointStore
from hybrid.agent.desk import DeskTerms, NodeDesk
from hybrid.agent.log_store import LogStore
from hybrid.config import ProviderSettings, Settings
from hybrid.domain.ids import ClaimId, NodeId, PoolName, RunId
from hybrid.domain.job import Progress
from hybrid.domain.pool_spec import LocalPool
from hybrid.ports.access import Role
from hybrid.ports.capacity import BootInfo, CapacityProvider, Closing
from hybrid.ports.clock import Clock
from hybrid.ports.engine import WorkloadRuntime
from hybrid.reconcile.rules import SyncRules
from hybrid.runtime.act import Actor
from hybrid.runtime.loop import Loop
from hybrid.runtime.observe import Observer
from hybrid.runtime.pace import Pace
from hybrid.runtime.policy_source import PolicySource
from hybrid.runtime.rule_judge import RuleJudge
from hybrid.runtime.system_clock import SystemClock
from hybrid.runtime.tick import Tick
from hybrid.services.access import Access
from hybrid.services.artifacts import Artifacts
from hybrid.services.bills import Bills
from hybrid.services.budgets import Budgets
from hybrid.services.checkpoint_keeping import CheckpointKeeping
from hybrid.services.claims import Claims
from hybrid.services.draining import Draining
from hybrid.services.errors import ServiceError, StartupError
from hybrid.services.explaining import Explaining
from hybrid.services.foresight import Foresight
from hybrid.services.happenings import Happenings
from hybrid.services.jobs import Jobs
from hybrid.services.joining import Gate, claim_join_token
from hybrid.services.live import Live
from hybrid.services.logs import Logs
from hybrid.services.nodes import Nodes
from hybrid.services.notifying import Notifier
from hybrid.services.offers import Offered, OffersSeen
from hybrid.services.policy import Policies
from hybrid.services.policy_trial import PolicyTrials
from hybrid.services.pools import Pools
from hybrid.services.quoting import Quoting
from hybrid.services.sight import Sight
from hybrid.services.spending import Spending
from hybrid.services.state_dir import StateDir
from hybrid.services.submission import Submission
from hybrid.services.uploads import Uploads
from hybrid.store import SqlStore, StoreError
from policies.rules import Rule

__all__ = ["App", "StartupError", "build"]

ADMIN = "admin"
LOCAL_POOL = PoolName("local")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class App:
    """The running product without its faces. ``start`` begins the loop, ``stop`` ends everything.

    ``admin_token`` is the first admin token's secret when this start made it, else None.
    """

    settings: Settings
    url: str
    state: StateDir
    store: SqlStore
    clock: Clock
    bell: Bell
    desk: NodeDesk
    loop: Loop
    engines: Mapping[str, WorkloadRuntime]
    providers: Mapping[str, CapacityProvider]
    access: Access
    live: Live
    jobs: Jobs
    submission: Submission
    quoting: Quoting
    explaining: Explaining
    logs: Logs
    nodes: Nodes
    draining: Draining
    pools: Pools
    claims: Claims
    offered: Offered
    policies: Policies
    trials: PolicyTrials
    budgets: Budgets
    spending: Spending
    bills: Bills
    happenings: Happenings
    notifier: Notifier
    checkpoint_keeping: CheckpointKeeping
    uploads: Uploads
    admin_token: str | None = field(repr=False)
    holder: str
    alone: bool
    _held: ExitStack = field(repr=False)

    def start(self) -> None:
        """Begin to lead, or to stand by."""
        self.loop.start()
        self.notifier.start()
        self.checkpoint_keeping.start()

    def stop(self) -> None:
        """End the loop after the tick under way, let waiting readers go, close the store. Twice is
        as once."""
        self.bell.close()
        if self.alone:
            self.state.withdraw()
        self._held.close()

    def announce(self, url: str) -> None:
        """Say where this server is to the command line here, unless another has said so."""
        if self.alone:
            self.state.announce(
                url=url,
                pid=os.getpid(),
                holder=self.holder,
                started_at=time.time(),
                version=version("hybrid"),
            )

    def progress(self) -> Mapping[RunId, Progress]:
        """What live runs last said of themselves, as far as this process has heard."""
        snapshot = self.loop.snapshot
        return {} if snapshot is None else snapshot.progress

    def offers(self) -> OffersSeen:
        """What the clouds last offered."""
        return self.offered.seen()


def build(settings: Settings, *, url: str) -> App:
    """Everything, wired and not started. ``url`` is where nodes and users reach the server.

    Raises StartupError with one line that says why not.
    """
    held = ExitStack()
    try:
        return _built(settings, url, held)
    except BaseException:
        held.close()
        raise


def _built(settings: Settings, url: str, held: ExitStack) -> App:
    state = StateDir.opened(settings.state_dir)
    alone = held.enter_context(state.locked())
    clock = SystemClock()
    bell = Bell()
    store = _opened(settings, bell)
    held.callback(store.close)
    holder = _holder(state, store, alone=alone)
    secret = state.secret()
    log_store = LogStore(state.path / "logs", limit_bytes=int(settings.log_limit_mib * 1024 * 1024))
    engines = _engines(settings, store, log_store, bell)
    world = store.load(now=clock.now())
    providers = {each.name: _provider(each, world.installation) for each in settings.providers}
    for provider in providers.values():
        if isinstance(provider, Closing):
            held.callback(provider.close)
    loop = _loop(settings, url, store, clock, engines, providers, secret, holder)
    held.callback(loop.stop)
    poke = loop.poke
    live = Live(store, clock)
    policies = Policies(store, clock, poke, RuleJudge(_rule))
    sight = Sight(
        live,
        clock,
        lambda: loop.tick.observation,
        engines=tuple(engines),
        providers=tuple(providers),
        rules=RuleJudge(_rule),
    )
    jobs = Jobs(store, clock, poke)
    submission = Submission(store, store, policies, sight, clock, poke)
    access = Access(store, store, store, clock)
    pools = Pools(
        store,
        live,
        clock,
        poke,
        tuple(sorted(providers)),
        tuple(sorted(engines)),
        checkpoint_url=settings.checkpoints,
    )
    artifacts = Artifacts.opened(
        settings.artifacts,
        drafts=state.path / "arriving",
        limit_bytes=int(settings.artifact_limit_gib * 1024**3),
    )
    _seed(settings, pools, policies)
    in_force = PolicySource(store)
    notifier = Notifier(
        store,
        clock,
        world.installation,
        webhooks=lambda: in_force.current(store.policy().version).document.notifications.webhooks,
        leads=lambda: loop.status().leads,
    )
    held.callback(notifier.stop)
    keeping = CheckpointKeeping(
        store,
        clock,
        lambda: CheckpointStore.open(settings.checkpoints),
        kept_s=settings.checkpoints_kept_s,
        leads=lambda: loop.status().leads,
    )
    held.callback(keeping.stop)
    nodes = Nodes(store, live, clock, poke)
    return App(
        settings=settings,
        url=url,
        state=state,
        store=store,
        clock=clock,
        bell=bell,
        desk=NodeDesk(
            store,
            Gate(store, store, secret, clock),
            log_store,
            clock,
            bell=bell,
            terms=DeskTerms(run_lease_s=settings.run_lease_s),
            changed=poke,
        ),
        loop=loop,
        engines=engines,
        providers=providers,
        access=access,
        live=live,
        jobs=jobs,
        submission=submission,
        quoting=Quoting(submission),
        explaining=Explaining(jobs, policies, sight, Foresight(policies, sight)),
        logs=Logs(store, jobs, log_store, engines),
        nodes=nodes,
        draining=Draining(store, live, nodes, clock, poke),
        pools=pools,
        claims=Claims(store),
        offered=Offered(
            lambda: loop.tick.observation,
            loop.tick.observer,
            lambda: live.world().breakers,
            lambda: live.world().learned,
        ),
        policies=policies,
        trials=PolicyTrials(policies, sight),
        budgets=Budgets(store, live, clock),
        spending=Spending(store, live, clock),
        bills=Bills(store, clock, world.installation),
        happenings=Happenings(store),
        notifier=notifier,
        checkpoint_keeping=keeping,
        uploads=Uploads(artifacts, store, live, clock),
        admin_token=_admin_token(state, access),
        holder=holder,
        alone=alone,
        _held=held,
    )


def _opened(settings: Settings, bell: Bell) -> SqlStore:
    def ring(node_id: NodeId) -> None:
        bell.ring(f"node:{node_id}")

    try:
        return SqlStore.open(settings.database, work_changed=ring)
    except StoreError as problem:
        raise StartupError(" ".join(str(problem).split())) from problem


def _holder(state: StateDir, store: SqlStore, *, alone: bool) -> str:
    """A name for this process as a holder of the loop's lease.

    Whoever held the folder's lock before is dead if we hold it now: its lease need not run out
    first.
    """
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    if not alone:
        _log.warning("another server uses this state directory; this one stands by")
        return holder
    before = (state.announced() or {}).get("holder")
    if before:
        store.release_loop(str(before))
    # before anything leads under that name, so that the next start can say the same of us
    state.announce(url="", pid=os.getpid(), holder=holder, started_at=time.time(), version="")
    return holder


def _engines(
    settings: Settings, store: SqlStore, logs: LogStore, bell: Bell
) -> dict[str, WorkloadRuntime]:
    create = registry.load(registry.Group.ENGINES, "agent")
    engine: WorkloadRuntime = create(
        mailbox=store, logs=logs, checkpoint_url=settings.checkpoints, bell=bell, name="agent"
    )
    return {engine.name: engine}


def _provider(settings: ProviderSettings, installation: str) -> CapacityProvider:
    create = registry.load(registry.Group.PROVIDERS, settings.kind)
    try:
        provider: CapacityProvider = create(
            name=settings.name,
            region=settings.region,
            installation=installation,
            endpoint_url=settings.endpoint_url,
            **settings.options,
        )
    except (TypeError, ValueError) as problem:
        said = " ".join(str(problem).split())
        raise StartupError(f"provider {settings.name} cannot be set up: {said}") from problem
    return provider


def _loop(
    settings: Settings,
    url: str,
    store: SqlStore,
    clock: Clock,
    engines: dict[str, WorkloadRuntime],
    providers: dict[str, CapacityProvider],
    secret: bytes,
    holder: str,
) -> Loop:
    pace = Pace(
        tick_s=settings.tick_s,
        replan_s=settings.replan_s,
        source_deadline_s=settings.source_deadline_s,
        call_deadline_s=settings.call_deadline_s,
        list_every_s=settings.list_every_s,
        list_idle_every_s=settings.list_idle_every_s,
        offers_every_s=settings.offers_every_s,
        loop_lease_s=settings.loop_lease_s,
        planning_s=settings.planning_s,
        rules=SyncRules(
            silent_after_s=settings.silent_after_s,
            absent_grace_s=settings.absent_grace_s,
            call_limit_s=2 * settings.call_deadline_s,
        ),
    )

    def join_token(claim_id: str) -> str:
        return claim_join_token(secret, ClaimId(claim_id))

    tick = Tick(
        store=store,
        observer=Observer(engines, providers, clock, pace),
        actor=Actor(
            engines,
            providers,
            clock,
            join_token,
            deadline_s=settings.call_deadline_s,
            loop_epoch=store.loop_epoch,
        ),
        policies=PolicySource(store),
        providers=providers,
        boot=BootInfo(
            installation=store.load(now=clock.now(), since=0).installation,
            server_url=url,
            checkpoint_url=settings.checkpoints,
            server_ca_pem=_pem(settings.tls_ca),
        ),
        clock=clock,
        pace=pace,
        rules=RuleJudge(_rule),
    )
    return Loop(store, tick, clock, pace, holder=holder)


def _rule(name: str) -> Rule:
    rule: Rule = registry.load(registry.Group.RULES, name)
    return rule


def _pem(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise StartupError(f"tls_ca cannot be read: {problem}") from problem


def _seed(settings: Settings, pools: Pools, policies: Policies) -> None:
    """What an empty installation begins with."""
    if settings.local_pool and not pools.listing():
        spec = LocalPool(kind="local", name=LOCAL_POOL, description="The machines that join here.")
        pools.apply(LOCAL_POOL, spec, over=0, by="system")
    if settings.policy_file is not None and policies.store.policy().version == 0:
        try:
            text = settings.policy_file.read_text()
            policies.replace(text, over=0, by="system", why=f"from {settings.policy_file}")
        except (OSError, UnicodeDecodeError) as problem:
            raise StartupError(f"policy_file cannot be read: {problem}") from problem
        except ServiceError as problem:
            raise StartupError(f"policy_file: {problem}") from problem


def _admin_token(state: StateDir, access: Access) -> str | None:
    """Make the first admin token, unless there is one; its secret is kept for the command line."""
    people, _ = access.listing()
    if any(token.role is Role.ADMIN and not token.revoked for token in people):
        return None
    _, secret = access.create(user=ADMIN, role=Role.ADMIN, note="the first one", by="system")
    state.keep_admin_token(secret)
    return secret
