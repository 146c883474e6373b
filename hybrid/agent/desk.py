"""The server's side of the node protocol: who speaks, what of it is theirs, what is answered.

Plain calls over the mailbox; HTTP is put around it elsewhere.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from hybrid.agent.bell import Bell
from hybrid.agent.log_store import BadName, LogStore
from hybrid.agent.protocol import (
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LogAnswer,
    RunDocument,
    StopOrder,
    WireOrder,
    WorkAnswer,
)
from hybrid.domain.ids import ClaimId, JobId, NodeId, PoolName, RunId
from hybrid.ports.clock import Clock
from hybrid.ports.engine import ORDER_KEPT_PART, NodeReport, RankPhase
from hybrid.ports.errors import Gone
from hybrid.ports.gpus import GpuReading
from hybrid.ports.join import JoinGate
from hybrid.ports.mailbox import NodeMailbox, NodeOrder, NodeToken, NodeWork

_log = structlog.get_logger(__name__)

DEFAULT_RUN_LEASE_S = 600.0
_NODE_ID_OF_CLAIM = "n-"


def sha256_of(token: str) -> str:
    """How tokens are kept: hex digest. They are long and random, so no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def node_id_of_claim(claim_id: str) -> NodeId:
    """The only node id that the machine of a claim may have: one claim, one node."""
    return NodeId(f"{_NODE_ID_OF_CLAIM}{claim_id}")


class ProtocolRefusal(Exception):
    """The server will not do it. ``code`` is stable; ``status`` is HTTP's."""

    def __init__(self, status: int, code: str, words: str):
        self.status, self.code, self.words = status, code, words
        super().__init__(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskTerms:
    """How long nodes go on with their runs without hearing from us."""

    run_lease_s: float = DEFAULT_RUN_LEASE_S


class NodeDesk:
    """Answers agents. ``changed`` is called when something came in that the loop should see."""

    def __init__(
        self,
        mailbox: NodeMailbox,
        gate: JoinGate,
        logs: LogStore,
        clock: Clock,
        *,
        bell: Bell,
        terms: DeskTerms = DeskTerms(),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._mailbox = mailbox
        self._gate = gate
        self._logs = logs
        self._clock = clock
        self._terms = terms
        self._changed = changed
        self.bell = bell
        self._lock = threading.Lock()
        self._last_said: dict[NodeId, object] = {}
        self._telemetry: dict[NodeId, tuple[float, tuple[GpuReading, ...]]] = {}

    # --- who speaks ---------------------------------------------------------------------------

    def authenticate(self, token: str, node_id: str) -> NodeToken:
        """The node whose token it is; raises ProtocolRefusal (401, or 403 for another's rows)."""
        owner = self._mailbox.node_of(sha256_of(token)) if token else None
        if owner is None:
            raise ProtocolRefusal(401, "unknown_node_token", "no node has this token")
        if owner.node_id != node_id:
            raise ProtocolRefusal(403, "not_your_node", "a node speaks for itself only")
        return owner

    def join(self, request: JoinRequest, join_token: str) -> JoinAnswer:
        """Let a machine in; raises ProtocolRefusal (401, 403, 409)."""
        if not join_token:
            raise ProtocolRefusal(401, "join_token_missing", "a join token authorizes joining")
        decision = self._gate.check(
            join_token,
            PoolName(request.pool),
            None if request.claim_id is None else ClaimId(request.claim_id),
        )
        if decision.refusal is not None:
            raise ProtocolRefusal(
                401, f"join_{decision.refusal}", f"the join token is refused: {decision.refusal}"
            )
        node_id = NodeId(request.node_id)
        if decision.claim_id is not None:
            node_id = node_id_of_claim(decision.claim_id)
        elif request.node_id.startswith(f"{_NODE_ID_OF_CLAIM}c-"):
            raise ProtocolRefusal(403, "node_id_reserved", "such ids are given to claims' machines")
        now = self._clock.now()
        report = request.inventory.to_report(
            node_id=node_id,
            pool=decision.pool,
            claim_id=decision.claim_id,
            heard_at=now,
            run_lease_s=self._terms.run_lease_s,
        )
        if not self._mailbox.join(
            report, request.token_sha256, join_sha256=sha256_of(join_token), at=now
        ):
            raise ProtocolRefusal(
                409, "join_token_used", "the join token or the node id is another node's already"
            )
        _log.info("node joined", node=node_id, pool=decision.pool, claim=decision.claim_id)
        self._changed()
        return JoinAnswer(
            node_id=node_id,
            pool=decision.pool,
            claim_id=decision.claim_id,
            run_lease_s=self._terms.run_lease_s,
            server_at=now,
        )

    # --- what it says -------------------------------------------------------------------------

    def heartbeat(self, who: NodeToken, beat: HeartbeatRequest) -> HeartbeatAnswer:
        """Keep what a node says of its own ranks."""
        now = self._clock.now()
        report = beat.inventory.to_report(
            node_id=who.node_id,
            pool=who.pool,
            claim_id=who.claim_id,
            heard_at=now,
            run_lease_s=max(beat.run_lease_s, self._terms.run_lease_s),
            notice_at=beat.notice_at,
            rebalance_at=beat.rebalance_at,
            closing=beat.closing,
        )
        work = self._mailbox.work(who.node_id)
        own = {(order.run_id, order.rank) for order in work.orders}
        known = {run_id for run_id, _ in own} | set(work.acknowledged)
        ranks = tuple(rank.to_report(who.node_id) for rank in beat.ranks)
        try:
            over = self._mailbox.heard(
                report, tuple(rank for rank in ranks if (rank.run_id, rank.rank) in own), at=now
            )
        except Gone as error:
            raise ProtocolRefusal(401, "node_forgotten", "this node was forgotten") from error
        acknowledged = set(over)
        # What nobody here has heard of (any more) will never be applied: it may be forgotten too.
        acknowledged |= {rank.run_id for rank in ranks if rank.run_id not in known}
        acknowledged |= {rank.run_id for rank in ranks} & set(work.acknowledged)
        with self._lock:
            readings = tuple(reading.to_reading() for reading in beat.telemetry)
            self._telemetry[who.node_id] = (now, readings)
        self._tell_if_new(replace(report, heard_at=0.0), beat)
        return HeartbeatAnswer(
            sent_boottime_s=beat.sent_boottime_s,
            acknowledged=tuple(sorted(acknowledged)),
            run_lease_s=self._terms.run_lease_s,
            lease_remaining_s=self._remaining(work, now),
            epoch=work.epoch,
            server_at=now,
        )

    def _tell_if_new(self, report: NodeReport, beat: HeartbeatRequest) -> None:
        """Poke the loop when a heartbeat says more than "still here"."""
        said = (
            report,
            tuple(
                (
                    rank.run_id,
                    rank.rank,
                    rank.phase,
                    rank.checkpoint and rank.checkpoint.seq,
                    rank.checkpoint_problem,
                    rank.first_step,
                )
                for rank in beat.ranks
            ),
        )
        with self._lock:
            before = self._last_said.get(report.id)
            self._last_said[report.id] = said
        ended = any(rank.phase is RankPhase.ENDED for rank in beat.ranks)
        if said != before or ended:
            self._changed()

    def leave(self, who: NodeToken) -> None:
        """The node says goodbye. It stays listed, as one that has left."""
        now = self._clock.now()
        last = next((one for one in self._mailbox.nodes() if one.id == who.node_id), None)
        if last is not None:
            self._mailbox.heard(replace(last, left=True, heard_at=now), (), at=now)
        with self._lock:
            self._telemetry.pop(who.node_id, None)
            self._last_said.pop(who.node_id, None)
        _log.info("node left", node=who.node_id)
        self._changed()

    def take_log(
        self, who: NodeToken, run_id: str, rank: int, offset: int, data: bytes, *, gap: bool
    ) -> LogAnswer:
        """Keep a piece of a run's log; raises ProtocolRefusal (404, 422, 507)."""
        orders = self._mailbox.work(who.node_id).orders
        if not any(order.run_id == run_id and order.rank == rank for order in orders):
            raise ProtocolRefusal(404, "no_such_run", f"this node has no rank {rank} of {run_id}")
        try:
            end = self._logs.append(job_of_run(run_id), RunId(run_id), rank, offset, data, gap=gap)
        except BadName as error:
            raise ProtocolRefusal(422, "bad_name", str(error)) from error
        except OSError as error:
            _log.error("log not kept", run=run_id, rank=rank, error=error.strerror)
            raise ProtocolRefusal(
                507, "log_not_kept", "the server cannot store logs now"
            ) from error
        self.bell.ring(f"log:{run_id}")
        return LogAnswer(offset=end)

    # --- what it is told ----------------------------------------------------------------------

    def work(self, who: NodeToken) -> WorkAnswer:
        """What the node should be doing now."""
        work = self._mailbox.work(who.node_id)
        now = self._clock.now()
        return WorkAnswer(
            revision=work.revision,
            epoch=work.epoch,
            orders=tuple(self._order(order, now) for order in work.orders),
            acknowledged=work.acknowledged,
            cordoned=work.cordoned,
            lease_remaining_s=self._remaining(work, now),
        )

    def _order(self, order: NodeOrder, now: float) -> WireOrder:
        document = RunDocument.model_validate_json(order.document)
        kept_s = ORDER_KEPT_PART * self._terms.run_lease_s
        return WireOrder(
            run_id=order.run_id,
            rank=order.rank,
            epoch=order.epoch,
            document=document,
            stop=StopOrder.model_validate_json(order.stop) if order.stop else None,
            begin=now - document.assigned_at <= kept_s,
        )

    def _remaining(self, work: NodeWork, now: float) -> float | None:
        return None if work.lease_until is None else work.lease_until - now

    # --- for the faces ------------------------------------------------------------------------

    def telemetry(self) -> Mapping[NodeId, tuple[float, tuple[GpuReading, ...]]]:
        """The last readings that each node sent to this process, and when."""
        with self._lock:
            return dict(self._telemetry)


_RUN = re.compile(r"(.+)\.(\d+)\Z")


def job_of_run(run_id: str) -> JobId:
    """The job a run is an attempt of (see :func:`hybrid.domain.ids.run_id`); raises BadName."""
    match = _RUN.match(run_id)
    if match is None:
        raise BadName(f"{run_id!r} is not the id of a run")
    return JobId(match[1])
