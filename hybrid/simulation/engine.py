"""Nodes that are objects: they work at a speed, checkpoint, stop when asked and fall silent.

A run's true work is asked of ``work_of`` in seconds on the reference GPU; nothing that plans ever
sees it. Every run that a node has begun is kept in :attr:`SimEngine.lives`, so that a test can see
in the world itself whether a job ever ran twice at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hybrid.domain.ids import JobId, NodeId, RunId
from hybrid.domain.job import Checkpoint, Job, Progress, StopCause
from hybrid.ports.clock import Clock
from hybrid.ports.engine import NodeReport, RankPhase, RankReport, RunOrder
from hybrid.ports.errors import OutcomeUnknown
from hybrid.ports.store import EpochPassed

EXIT_CHECKPOINTED = 85
KILLED = -9


@dataclass(slots=True)
class SimRun:
    """A run as it goes on in the world. ``done_s`` counts from the job's very beginning."""

    order: RunOrder
    work_s: float
    started_at: float
    base_s: float
    cause: StopCause | None = None
    stop_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    checkpoint: Checkpoint | None = None
    acknowledged: bool = False

    def done_s(self, now: float) -> float:
        """Work done by ``now``, on the reference GPU."""
        until = now if self.ended_at is None else min(now, self.ended_at)
        worked = max(0.0, until - self.started_at) * self.order.run.speed
        return min(self.work_s, self.base_s + worked)

    @property
    def finishes_at(self) -> float:
        """When it is through if nobody stops it."""
        return self.started_at + (self.work_s - self.base_s) / self.order.run.speed


@dataclass(slots=True)
class SimNode:
    """A node: what it reports, and whether it can be heard."""

    report: NodeReport
    silent: bool = False
    dead: bool = False
    epoch: int = 0
    heard_at: float = 0.0
    lease_until: float | None = None
    runs: dict[RunId, SimRun] = field(default_factory=dict)


class SimEngine:
    """A WorkloadRuntime in memory."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        work_of: Callable[[Job], float],
        *,
        stop_s: float = 1.0,
    ) -> None:
        self._name, self._clock, self._work_of = name, clock, work_of
        self._stop_s = stop_s
        self.nodes: dict[NodeId, SimNode] = {}
        self.lives: list[SimRun] = []
        self.deaf = False
        self._seen: set[RunId] = set()

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    # --- the port -------------------------------------------------------------------------------

    def inventory(self) -> tuple[NodeReport, ...]:
        """Every node that was ever heard, as it was heard last."""
        self._hear()
        return tuple(replace(node.report, heard_at=node.heard_at) for node in self.nodes.values())

    def list_runs(self) -> tuple[RankReport, ...]:
        """Every rank of every run whose end has not been acknowledged."""
        self._hear()
        now = self._clock.now()
        reports: list[RankReport] = []
        for node in self.nodes.values():
            at = now if not (node.silent or node.dead) else node.heard_at
            for run in node.runs.values():
                reports.extend(self._reports(node, run, at))
        return tuple(reports)

    def start(self, order: RunOrder) -> None:
        """Begin a run on its nodes, once."""
        self._hear()
        home = self._node(order.run.node_ids[0], order.epoch)
        if order.run.id in self._seen or home.dead or home.silent:
            return
        self._seen.add(order.run.id)
        saved = order.job.checkpoint
        run = SimRun(
            order=order,
            work_s=self._work_of(order.job),
            started_at=self._clock.now(),
            base_s=saved.work_s if saved is not None else 0.0,
        )
        self.lives.append(run)
        home.runs[order.run.id] = run

    def stop(self, run_id: RunId, cause: StopCause, grace_s: float, epoch: int) -> None:
        """Ask a run to stop: it saves its work if it can and ends within its grace."""
        self._hear()
        for node in self.nodes.values():
            run = node.runs.get(run_id)
            if run is None or run.ended_at is not None or node.silent or node.dead:
                continue
            self._check(node, epoch)
            stop_at = self._clock.now() + min(grace_s, self._stop_s)
            if run.stop_at is None or stop_at < run.stop_at:
                run.stop_at = stop_at
            if run.cause is None or cause.hardness > run.cause.hardness:
                run.cause = cause

    def acknowledge(self, run_id: RunId) -> None:
        """Forget an ended run."""
        self._hear()
        for node in self.nodes.values():
            node.runs.pop(run_id, None)

    def cordon(self, node_id: NodeId, words: str, epoch: int) -> None:  # noqa: ARG002
        """Only we place runs here: nothing to tell anybody."""
        self._node(node_id, epoch)

    def uncordon(self, node_id: NodeId, epoch: int) -> None:
        """Likewise."""
        self._node(node_id, epoch)

    def extend_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """The machine is paid for until then."""
        self._hear()
        self._node(node_id, epoch).lease_until = until

    def logs(self, job_id: JobId, run_id: RunId, rank: int, *, offset: int = 0) -> Iterator[bytes]:
        """Simulated jobs print nothing."""
        del job_id, run_id, rank, offset
        return iter(())

    # --- what the world does --------------------------------------------------------------------

    def join(self, report: NodeReport) -> None:
        """A node is there."""
        now = self._clock.now()
        self.nodes[report.id] = SimNode(report=replace(report, heard_at=now), heard_at=now)

    def lose(self, node_id: NodeId) -> None:
        """A node's machine is gone: what ran there is over, and nobody will say so."""
        node = self.nodes.get(node_id)
        if node is None or node.dead:
            return
        self.work(self._clock.now())
        node.dead = True
        for run in node.runs.values():
            if run.ended_at is None:
                run.ended_at = self._clock.now()

    def work(self, now: float) -> None:
        """Let every node go on until ``now``: runs finish, stop, save, or lose their lease."""
        for node in self.nodes.values():
            if node.dead:
                continue
            if not node.silent:
                node.heard_at = now
            for run in node.runs.values():
                self._go_on(node, run, now)

    # --- inside ---------------------------------------------------------------------------------

    def _go_on(self, node: SimNode, run: SimRun, now: float) -> None:
        if run.ended_at is not None:
            return
        spec = run.order.job.spec
        lease_end = node.heard_at + node.report.run_lease_s
        ends = [
            (run.finishes_at, 0, None),
            (run.started_at + spec.walltime, KILLED, StopCause.TIMEOUT),
            (lease_end, KILLED, StopCause.LEASE),
        ]
        if run.stop_at is not None:
            code = EXIT_CHECKPOINTED if spec.checkpoint.enabled else KILLED
            ends.append((run.stop_at, code, run.cause))
        at, code, cause = min(ends, key=lambda end: end[0])
        self._checkpoint(run, min(now, at))
        if at > now:
            return
        if code == EXIT_CHECKPOINTED:
            self._save(run, at)
        run.ended_at, run.exit_code = at, code
        run.cause = cause or run.cause

    def _checkpoint(self, run: SimRun, now: float) -> None:
        """The newest of the checkpoints that fell due."""
        terms = run.order.job.spec.checkpoint
        if not terms.enabled:
            return
        count = int((now - run.started_at) // terms.interval)
        if count > 0:
            at = run.started_at + count * terms.interval
            if run.checkpoint is None or at > run.checkpoint.committed_at:
                self._save(run, at)

    def _save(self, run: SimRun, at: float) -> None:
        done = run.done_s(at)
        run.checkpoint = Checkpoint(
            seq=1 if run.checkpoint is None else run.checkpoint.seq + 1,
            step=int(done),
            committed_at=at,
            size_bytes=int(run.order.job.spec.checkpoint.size * 2**30),
            commit_s=self._stop_s,
        )

    def _reports(self, node: SimNode, run: SimRun, now: float) -> Iterator[RankReport]:
        over = run.ended_at is not None and run.ended_at <= now and not node.dead
        step, total = int(run.done_s(now)), max(1, int(run.work_s))
        for rank, node_id in enumerate(run.order.run.node_ids):
            ended = over and not self.nodes[node_id].dead
            phase = RankPhase.STOPPING if run.stop_at is not None else RankPhase.RUNNING
            if ended:
                phase = RankPhase.ENDED
            yield RankReport(
                run_id=run.order.run.id,
                rank=rank,
                node_id=node_id,
                phase=phase,
                started_at=run.started_at,
                ended_at=run.ended_at if ended else None,
                exit_code=run.exit_code if ended else None,
                cause=run.cause,
                progress=Progress(step=step, total=total, at=now),
                checkpoint=run.checkpoint,
            )

    def _node(self, node_id: NodeId, epoch: int) -> SimNode:
        node = self.nodes.get(node_id)
        if node is None:
            raise OutcomeUnknown(f"no node {node_id}")
        self._check(node, epoch)
        return node

    def _check(self, node: SimNode, epoch: int) -> None:
        if epoch < node.epoch:
            raise EpochPassed(f"{node.report.id} obeys epoch {node.epoch}, not {epoch}")
        node.epoch = epoch

    def _hear(self) -> None:
        if self.deaf:
            raise OutcomeUnknown(f"{self._name} does not answer")
