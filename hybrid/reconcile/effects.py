"""The port calls that rows ask for and no receipt has answered yet.

Calls are never queued. What a crash left without a receipt is derived here again, the same; every
call is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId, MachineId, NodeId, RunId
from hybrid.domain.job import Job, StopCause
from hybrid.domain.node import Node, NodeState
from hybrid.domain.run import Run, RunState
from hybrid.ports.capacity import MachineState
from hybrid.ports.engine import RankPhase, RankReport, RunOrder
from hybrid.ports.observation import Known, Observation
from hybrid.ports.store import World
from hybrid.reconcile.leftovers import RemoveLeftover, removals
from hybrid.reconcile.machines import orphans
from hybrid.reconcile.nodes import OWN_CAUSES, lease_over, silence_s
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.run_ends import Ranks
from hybrid.reconcile.runs import ranks_by_run

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMachine:
    """Make (or find) the machine of a claim."""

    claim: Claim

    @property
    def key(self) -> str:
        """Names the call: one of a name is under way at a time."""
        return f"launch:{self.claim.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateMachine:
    """End a machine: a claim's, or an orphan's (``claim`` None)."""

    provider: str
    machine_id: MachineId
    claim: Claim | None
    with_console: bool = False

    @property
    def key(self) -> str:
        """Names the call."""
        return f"terminate:{self.machine_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """Bring a run to its nodes."""

    order: RunOrder

    @property
    def key(self) -> str:
        """Names the call."""
        return f"start:{self.order.run.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Stop a run on its nodes.

    ``order`` is given when no receipt says that the nodes know of the run: bringing it first makes
    sure that somebody reports its end.
    """

    run_id: RunId
    engine: str
    cause: StopCause
    grace_s: float
    order: RunOrder | None = None

    @property
    def key(self) -> str:
        """Names the call."""
        return f"stop:{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeRun:
    """Let the nodes forget a run whose end has been applied."""

    run_id: RunId
    engine: str

    @property
    def key(self) -> str:
        """Names the call."""
        return f"acknowledge:{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode:
    """Drop what an engine keeps of a machine that is gone."""

    node_id: NodeId
    engine: str

    @property
    def key(self) -> str:
        """Names the call."""
        return f"forget:{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCordon:
    """Tell the engine whether a node may take new runs."""

    node: Node
    cordoned: bool

    @property
    def key(self) -> str:
        """Names the call."""
        return f"cordon:{self.node.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    """Tell a machine for how long it is paid."""

    node_id: NodeId
    engine: str
    claim_id: ClaimId
    until: float

    @property
    def key(self) -> str:
        """Names the call."""
        return f"lease:{self.node_id}"


Effect = (
    LaunchMachine
    | TerminateMachine
    | StartRun
    | StopRun
    | AcknowledgeRun
    | ForgetNode
    | SetCordon
    | ExtendLease
    | RemoveLeftover
)


def due(
    world: World, observation: Observation, *, now: float, epoch: int, rules: SyncRules
) -> tuple[Effect, ...]:
    """Every call that is due now, in a fixed order."""
    ranks = ranks_by_run(observation)
    listeners = _Listeners(observation, rules)
    return (
        *_launches(world, now),
        *_terminations(world, observation, now, rules),
        *_run_calls(world, observation, ranks, now, epoch, listeners),
        *_acknowledgements(world, observation, ranks, listeners),
        *_forgettings(world, observation),
        *_cordons(world),
        *_leases(world),
        *removals(world, observation),
    )


def retry_at(last: float | None, attempts: int) -> float:
    """When a call that had no clear answer is made again: doubling, up to a minute."""
    if last is None or attempts == 0:
        return 0.0
    return last + min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempts - 1, 10))


def _launches(world: World, now: float) -> Iterator[LaunchMachine]:
    for claim in sorted(world.claims.values(), key=lambda c: (c.requested_at, c.id)):
        if claim.state is not ClaimState.REQUESTED or not claim.request:
            continue
        if now >= retry_at(claim.last_attempt_at, claim.launch_attempts):
            yield LaunchMachine(claim=claim)


def _terminations(
    world: World, observation: Observation, now: float, rules: SyncRules
) -> Iterator[TerminateMachine]:
    ending = _machines_in(observation, (MachineState.ENDING, MachineState.ENDED))
    for claim in sorted(world.claims.values(), key=lambda c: c.id):
        if claim.state not in _TO_END or claim.machine_id is None:
            continue
        if claim.machine_id in ending:
            continue
        if now >= retry_at(claim.last_attempt_at, claim.terminate_attempts):
            yield TerminateMachine(
                provider=claim.offer.provider,
                machine_id=claim.machine_id,
                claim=claim,
                with_console=claim.node_id is None and not claim.console,
            )
    for provider, source in sorted(observation.machines.items()):
        if isinstance(source, Known):
            for machine in orphans(source.value, world.claims, now, rules):
                yield TerminateMachine(provider=provider, machine_id=machine.id, claim=None)


# a lost claim whose machine is listed all the same (halted by hand) has it ended too
_TO_END = (ClaimState.TERMINATING, ClaimState.LOST)


def _machines_in(observation: Observation, states: tuple[MachineState, ...]) -> set[MachineId]:
    return {
        machine.id
        for source in observation.machines.values()
        if isinstance(source, Known)
        for machine in source.value.machines
        if machine.state in states
    }


_CALLED = (RunState.ASSIGNED, RunState.STOPPING)


def _run_calls(
    world: World,
    observation: Observation,
    ranks: dict[RunId, dict[int, RankReport]],
    now: float,
    epoch: int,
    listeners: _Listeners,
) -> Iterator[StartRun | StopRun]:
    # most runs simply go on: nothing is built for them
    called = [r for r in world.runs.values() if r.state in _CALLED]
    for run in sorted(called, key=lambda r: (r.assigned_at, r.id)):
        job = world.jobs.get(run.job_id)
        if job is None:
            continue
        order = _order(world, run, job, epoch)
        reports = ranks.get(run.id, {})
        if run.state is RunState.ASSIGNED and order is not None:
            if now >= retry_at(run.assigned_at, run.start_attempts):
                yield StartRun(order=order)
        elif run.state is RunState.STOPPING and run.stop_cause is not None:
            engine = observation.engines.get(run.engine)
            if isinstance(engine, Known) and not _stopping_everywhere(run, reports, listeners):
                known = bool(reports) or any(s.state == RunState.STARTING for s in run.history)
                yield StopRun(
                    run_id=run.id,
                    engine=run.engine,
                    cause=run.stop_cause,
                    grace_s=_grace_s(run, job, now),
                    order=None if known else order,
                )
    yield from _strays(world, observation, ranks, listeners)


def _order(world: World, run: Run, job: Job, epoch: int) -> RunOrder | None:
    nodes = [world.nodes.get(node_id) for node_id in run.node_ids]
    if any(node is None for node in nodes):
        return None
    return RunOrder(
        run=run, job=job, nodes=tuple(node for node in nodes if node is not None), epoch=epoch
    )


def _stopping_everywhere(run: Run, reports: Ranks, listeners: _Listeners) -> bool:
    """Whether every rank that has not ended is already stopping for this cause or a harder one."""
    if run.stop_cause is None or len(reports) < len(run.slots):
        return False
    return all(
        listeners.is_over(report)
        or (
            report.phase is RankPhase.STOPPING
            and report.cause is not None
            and report.cause.hardness >= run.stop_cause.hardness
        )
        for report in reports.values()
    )


def _grace_s(run: Run, job: Job, now: float) -> float:
    """The job's own grace, or what is left until the stop must be over."""
    grace = job.spec.stop.grace
    return grace if run.stop_by is None else max(0.0, min(grace, run.stop_by - now))


def _strays(
    world: World,
    observation: Observation,
    ranks: dict[RunId, dict[int, RankReport]],
    listeners: _Listeners,
) -> Iterator[StopRun]:
    """Ranks that go on although their run is over in the store: a node that was given up and came
    back. They are stopped at once; their job may be running elsewhere."""
    strays = sorted(ranks.keys() - world.runs.keys())
    engines = _engine_of_runs(observation) if strays else {}
    for run_id in strays:
        if any(listeners.could_stop(rank) for rank in ranks[run_id].values()):
            yield StopRun(
                run_id=run_id, engine=engines[run_id], cause=StopCause.NODE_LOST, grace_s=0.0
            )


class _Listeners:
    """Who can still be told anything, and whose ranks are surely over."""

    def __init__(self, observation: Observation, rules: SyncRules) -> None:
        self._observation, self._rules = observation, rules
        self._ended = _machines_in(observation, (MachineState.ENDED,))
        self._nodes = {
            node.id: node
            for source in observation.engines.values()
            if isinstance(source, Known)
            for node in source.value.nodes
        }

    def could_stop(self, rank: RankReport) -> bool:
        """Whether the rank goes on where somebody listens: a silent node is told when it is
        back."""
        if self.is_over(rank):
            return False
        node = self._nodes.get(rank.node_id)
        return node is None or silence_s(node, self._observation) <= self._rules.silent_after_s

    def is_over(self, rank: RankReport) -> bool:
        """Whether the rank has surely ended. A node that is beyond its run lease has killed what it
        had, and a machine that is gone will never say so."""
        if rank.phase is RankPhase.ENDED:
            return True
        node = self._nodes.get(rank.node_id)
        return node is not None and (
            node.machine_id in self._ended or lease_over(node, self._observation, self._rules)
        )


def _engine_of_runs(observation: Observation) -> dict[RunId, str]:
    return {
        rank.run_id: engine
        for engine, source in observation.engines.items()
        if isinstance(source, Known)
        for rank in source.value.ranks
    }


def _acknowledgements(
    world: World,
    observation: Observation,
    ranks: dict[RunId, dict[int, RankReport]],
    listeners: _Listeners,
) -> Iterator[AcknowledgeRun]:
    ended = sorted(ranks.keys() - world.runs.keys())
    if not ended:
        return
    engines = _engine_of_runs(observation)
    for run_id in ended:
        if all(listeners.is_over(rank) for rank in ranks[run_id].values()):
            yield AcknowledgeRun(run_id=run_id, engine=engines[run_id])


def _forgettings(world: World, observation: Observation) -> Iterator[ForgetNode]:
    """Machines of claims that are over, once no live run names them: a server that lives for years
    must not list every machine it ever had."""
    over = {
        report.claim_id
        for source in observation.engines.values()
        if isinstance(source, Known)
        for report in source.value.nodes
        if report.claim_id is not None and report.claim_id not in world.claims
    }
    if not over:
        return
    busy = {node_id for run in world.runs.values() for node_id in run.node_ids}
    for engine, source in sorted(observation.engines.items()):
        if not isinstance(source, Known):
            continue
        for report in source.value.nodes:
            if report.claim_id in over and report.id not in world.nodes and report.id not in busy:
                yield ForgetNode(node_id=report.id, engine=engine)


def _cordons(world: World) -> Iterator[SetCordon]:
    for node in sorted(world.nodes.values(), key=lambda n: n.id):
        wanted = node.state is NodeState.CORDONED and node.cordon_cause not in OWN_CAUSES
        if wanted != node.cordon_sent and node.state in (NodeState.READY, NodeState.CORDONED):
            yield SetCordon(node=node, cordoned=wanted)


def _leases(world: World) -> Iterator[ExtendLease]:
    for claim in sorted(world.claims.values(), key=lambda c: c.id):
        node = world.nodes.get(claim.node_id) if claim.node_id is not None else None
        if node is not None and claim.lease_until > claim.lease_sent_until:
            yield ExtendLease(
                node_id=node.id, engine=node.engine, claim_id=claim.id, until=claim.lease_until
            )
