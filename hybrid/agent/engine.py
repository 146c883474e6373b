"""The built-in engine, server half: it writes what nodes should do and reads what they say.

Nothing is sent from here. An order is a row; the node's long poll finds it, now or when the node
is back.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator

from hybrid.agent.bell import Bell
from hybrid.agent.log_store import LogStore
from hybrid.agent.protocol import Resume, RunDocument, StopOrder
from hybrid.domain.ids import JobId, NodeId, RunId
from hybrid.domain.job import StopCause
from hybrid.ports.engine import NodeReport, RankReport, RunOrder
from hybrid.ports.errors import InvalidRequest
from hybrid.ports.mailbox import NodeMailbox, NodeOrder

_FIRST_PORT = 20_000
_PORTS = 10_000
_REMEMBERED_RUNS = 10_000


def master_port(run_id: RunId) -> int:
    """The port on which a gang's rank 0 listens, 20000…29999: derived from the run, below the
    ephemeral range of Linux (32768), so that no client socket happens to hold it."""
    digest = hashlib.sha256(run_id.encode()).digest()
    return _FIRST_PORT + int.from_bytes(digest[:4], "big") % _PORTS


def documents(order: RunOrder, checkpoint_url: str) -> tuple[RunDocument, ...]:
    """What each rank's node has to know, in rank order; raises InvalidRequest for an order whose
    nodes and slots do not match."""
    run, job = order.run, order.job
    if tuple(node.id for node in order.nodes) != run.node_ids:
        raise InvalidRequest(f"run:{run.id}", "the order's nodes are not those of its slots")
    resume = None
    if run.resume_seq is not None:
        saved = job.checkpoint
        if saved is None or saved.seq != run.resume_seq:
            raise InvalidRequest(
                f"run:{run.id}", f"the job has no checkpoint {run.resume_seq} to resume from"
            )
        resume = Resume(seq=saved.seq, step=saved.step)
    return tuple(
        RunDocument(
            run_id=run.id,
            job_id=job.id,
            attempt=run.attempt,
            rank=rank,
            nodes=len(run.slots),
            spec=job.spec,
            gpu_ids=slot.gpu_ids,
            share=slot.share,
            gpu_memory_gib=slot.gpu_memory_gib,
            replicas=slot.replicas,
            cpus=slot.cpus,
            memory_gib=slot.memory_gib,
            gpu_model=run.gpu_model,
            resume=resume,
            checkpoint_interval_s=run.checkpoint_interval_s,
            master_addr=order.nodes[0].address or order.nodes[0].hostname,
            master_port=master_port(run.id),
            checkpoint_url=checkpoint_url,
            assigned_at=run.assigned_at,
        )
        for rank, slot in enumerate(run.slots)
    )


class AgentEngine:
    """Implements :class:`~hybrid.ports.engine.WorkloadRuntime` over a mailbox. EpochPassed of the
    mailbox passes through: whoever no longer leads must not command."""

    def __init__(
        self,
        mailbox: NodeMailbox,
        logs: LogStore,
        *,
        checkpoint_url: str,
        bell: Bell | None = None,
        name: str = "agent",
    ) -> None:
        self._mailbox = mailbox
        self._logs = logs
        self._checkpoint_url = checkpoint_url
        self._bell = bell or Bell()
        self._name = name
        self._lock = threading.Lock()
        self._nodes_of: OrderedDict[RunId, tuple[NodeId, ...]] = OrderedDict()

    @property
    def name(self) -> str:
        """What pools call it."""
        return self._name

    def inventory(self) -> tuple[NodeReport, ...]:
        """Every node that has joined and has not been forgotten."""
        return self._mailbox.nodes()

    def list_runs(self) -> tuple[RankReport, ...]:
        """Every rank that has been reported and not acknowledged."""
        return self._mailbox.ranks()

    def start(self, order: RunOrder) -> None:
        """Write the orders of a run, one per rank; repeating it changes nothing."""
        nodes = order.run.node_ids
        self._mailbox.put_orders(
            tuple(
                NodeOrder(
                    run_id=order.run.id,
                    rank=document.rank,
                    node_id=nodes[document.rank],
                    epoch=order.epoch,
                    document=document.model_dump_json(),
                )
                for document in documents(order, self._checkpoint_url)
            )
        )
        with self._lock:
            self._nodes_of[order.run.id] = nodes
            while len(self._nodes_of) > _REMEMBERED_RUNS:
                self._nodes_of.popitem(last=False)
        self._ring(order.run.id)

    def stop(self, run_id: RunId, cause: StopCause, grace_s: float, epoch: int) -> None:
        """Write the stop of a run; its nodes merge it with earlier ones, the harder wins."""
        stop = StopOrder(cause=cause, grace_s=max(0.0, grace_s))
        self._mailbox.put_stop(run_id, stop.model_dump_json(), epoch)
        self._ring(run_id)

    def acknowledge(self, run_id: RunId) -> None:
        """Drop the orders of a run whose end has been applied."""
        self._mailbox.acknowledge(run_id)
        self._ring(run_id)
        with self._lock:
            self._nodes_of.pop(run_id, None)

    def forget(self, node_id: NodeId) -> None:
        """Drop the rows of a node whose machine is gone, and its token."""
        self._mailbox.forget(node_id)

    def cordon(self, node_id: NodeId, words: str, epoch: int) -> None:  # noqa: ARG002 - the port's
        """Let nothing else start there. Why is kept with the node's row, not here."""
        self._mailbox.set_cordon(node_id, True, epoch)
        self._bell.ring(f"node:{node_id}")

    def uncordon(self, node_id: NodeId, epoch: int) -> None:
        """Take new runs again."""
        self._mailbox.set_cordon(node_id, False, epoch)
        self._bell.ring(f"node:{node_id}")

    def extend_lease(self, node_id: NodeId, until: float, epoch: int) -> None:
        """Write until when the machine is paid for."""
        self._mailbox.set_lease(node_id, until, epoch)
        self._bell.ring(f"node:{node_id}")

    def logs(self, job_id: JobId, run_id: RunId, rank: int, *, offset: int = 0) -> Iterator[bytes]:
        """What the server's copy holds from ``offset`` on."""
        return (piece.data for piece in self._logs.pieces(job_id, run_id, rank, offset))

    def _ring(self, run_id: RunId) -> None:
        with self._lock:
            nodes = self._nodes_of.get(run_id)
        # A run that was started before this process was: wake everybody, it is rare.
        self._bell.ring(*(f"node:{node}" for node in nodes or ()))


def create(
    *,
    mailbox: NodeMailbox,
    logs: LogStore,
    checkpoint_url: str,
    bell: Bell | None = None,
    name: str = "agent",
) -> AgentEngine:
    """The factory behind the entry point ``hybrid.engines``.

    ``bell`` is the one that the node routes of this process listen to.
    """
    return AgentEngine(mailbox, logs, checkpoint_url=checkpoint_url, bell=bell, name=name)
