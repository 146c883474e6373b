"""A small server that speaks the node protocol over the product's own router and desk, with an
in-memory mailbox behind it. It can be switched off and on again on the same port."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response

from api.routers.node_protocol import node_router
from hybrid.agent.bell import Bell
from hybrid.agent.desk import DeskTerms, NodeDesk
from hybrid.agent.engine import AgentEngine
from hybrid.agent.log_store import LogStore
from hybrid.domain.ids import ClaimId, GpuId, JobId, NodeId, PoolName, RunId, run_id
from hybrid.domain.job import Checkpoint, Job, JobState
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.node import Node, NodeState, Slot
from hybrid.domain.run import Run, RunState
from hybrid.ports.engine import NodeReport, RankPhase, RankReport, RunOrder
from hybrid.ports.join import JoinDecision, JoinRefusal
from hybrid.ports.mailbox import NodeMailbox
from tests.doubles.memory_mailbox import MemoryMailbox

POOL = PoolName("rack")


class WallClock:
    """The system's time."""

    def now(self) -> float:
        return time.time()


class Tokens:
    """A JoinGate that knows its tokens: token → (pool, claim)."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[PoolName, ClaimId | None]] = {"join-1": (POOL, None)}

    def check(self, token: str, pool: PoolName, claim_id: ClaimId | None) -> JoinDecision:
        found = self.known.get(token)
        if found is None:
            return JoinDecision(pool=pool, refusal=JoinRefusal.UNKNOWN_TOKEN)
        if found[0] != pool:
            return JoinDecision(pool=found[0], refusal=JoinRefusal.WRONG_POOL)
        if found[1] != claim_id:
            return JoinDecision(pool=pool, refusal=JoinRefusal.CLAIM_NOT_WAITING)
        return JoinDecision(pool=found[0], claim_id=found[1])


class NodeServer:
    """The server half, running in a thread. ``mailbox``, ``logs`` and ``artifacts`` outlive a
    stop, as a database would."""

    def __init__(
        self, folder: Path, *, run_lease_s: float = 600.0, mailbox: NodeMailbox | None = None
    ) -> None:
        self.memory = MemoryMailbox()
        self.mailbox: NodeMailbox = mailbox or self.memory
        self.gate = Tokens()
        self.logs = LogStore(folder / "logs")
        self.checkpoints = folder / "checkpoints"
        self.artifacts: dict[str, bytes] = {}
        self.bell = Bell()
        self.engine = AgentEngine(
            self.mailbox, self.logs, checkpoint_url=str(self.checkpoints), bell=self.bell
        )
        self.run_lease_s = run_lease_s
        self.epoch = 1
        self.pokes = 0
        self.failing: int = 0
        self._jobs = 0
        self.port = _free_port()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- power --------------------------------------------------------------------------------

    def start(self) -> None:
        self.bell.__init__()  # type: ignore[misc]  # a new process has a new one
        server = uvicorn.Server(
            uvicorn.Config(
                self._app(), host="127.0.0.1", port=self.port, log_level="error", lifespan="off"
            )
        )
        thread = threading.Thread(target=server.run, name="node-server", daemon=True)
        thread.start()
        wait_until(lambda: server.started, 10)
        self._server, self._thread = server, thread

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self.bell.close()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)
        self._server = self._thread = None

    def _app(self) -> FastAPI:
        app = FastAPI()
        desk = NodeDesk(
            self.mailbox,
            self.gate,
            self.logs,
            WallClock(),
            bell=self.bell,
            terms=DeskTerms(run_lease_s=self.run_lease_s),
            changed=self._poked,
        )
        app.include_router(node_router(desk, look_again_s=0.2), prefix="/v1")

        @app.middleware("http")
        async def broken(request: Request, call_next: Any) -> Any:
            if self.failing:
                return Response(status_code=self.failing)
            return await call_next(request)

        @app.get("/v1/artifacts/{digest}")
        def get(digest: str) -> Response:
            if digest not in self.artifacts:
                return Response(status_code=404)
            return Response(self.artifacts[digest], media_type="application/octet-stream")

        @app.put("/v1/artifacts/{digest}", status_code=201)
        async def put(digest: str, request: Request) -> Response:
            body = await request.body()
            if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
                return Response(status_code=422)
            self.artifacts[digest] = body
            return Response(status_code=201)

        return app

    def _poked(self) -> None:
        self.pokes += 1

    # --- what a loop would do -----------------------------------------------------------------

    def only_node(self, timeout_s: float = 15.0) -> NodeReport:
        wait_until(lambda: len(self.mailbox.nodes()) == 1, timeout_s)
        return self.mailbox.nodes()[0]

    def run(
        self,
        spec: JobSpec,
        *,
        job: str | None = None,
        attempt: int = 1,
        checkpoint: Checkpoint | None = None,
        nodes: tuple[NodeReport, ...] = (),
        gpus: tuple[str, ...] = (),
        part: tuple[float, float | None, int] = (1.0, None, 1),
    ) -> RunId:
        """Order a run of a job (default: a new one) on the given nodes (default: the only one)."""
        nodes = nodes or (self.only_node(),)
        self._jobs += job is None
        order = an_order(
            spec,
            job=job or f"job{self._jobs}",
            attempt=attempt,
            checkpoint=checkpoint,
            nodes=nodes,
            gpus=gpus,
            part=part,
            epoch=self.epoch,
        )
        self.engine.start(order)
        return order.run.id

    def rank(self, run: RunId, rank: int = 0) -> RankReport | None:
        return next(
            (each for each in self.engine.list_runs() if (each.run_id, each.rank) == (run, rank)),
            None,
        )

    def wait_for(
        self,
        run: RunId,
        true: Callable[[RankReport], bool],
        *,
        rank: int = 0,
        timeout_s: float = 30.0,
    ) -> RankReport:
        """The first report of a rank for which ``true`` holds."""
        found: list[RankReport] = []

        def look() -> bool:
            report = self.rank(run, rank)
            if report is not None and true(report):
                found.append(report)
            return bool(found)

        try:
            wait_until(look, timeout_s)
        except AssertionError:
            raise AssertionError(f"last report of {run}: {self.rank(run, rank)}") from None
        return found[0]

    def wait_running(self, run: RunId, **more: Any) -> RankReport:
        return self.wait_for(run, lambda r: r.phase is RankPhase.RUNNING, **more)

    def wait_ended(self, run: RunId, **more: Any) -> RankReport:
        return self.wait_for(run, lambda r: r.phase is RankPhase.ENDED, **more)

    def printed(self, run: RunId, rank: int = 0) -> str:
        job = JobId(run.rpartition(".")[0])
        return b"".join(self.engine.logs(job, run, rank)).decode()


def an_order(
    spec: JobSpec,
    *,
    job: str = "job",
    attempt: int = 1,
    checkpoint: Checkpoint | None = None,
    nodes: tuple[NodeReport, ...],
    gpus: tuple[str, ...] = (),
    part: tuple[float, float | None, int] = (1.0, None, 1),
    epoch: int = 1,
) -> RunOrder:
    """What the loop would give to an engine. ``part`` is the share and the memory in GiB of one
    GPU, and into how many replicas that is time-sliced."""
    share, gpu_memory_gib, replicas = part
    slots = tuple(
        Slot(
            node_id=node.id,
            gpu_ids=tuple(GpuId(gpu) for gpu in gpus),
            share=share,
            gpu_memory_gib=gpu_memory_gib,
            replicas=replicas,
        )
        for node in nodes
    )
    return RunOrder(
        run=Run(
            id=run_id(JobId(job), attempt),
            job_id=JobId(job),
            attempt=attempt,
            state=RunState.ASSIGNED,
            pool=POOL,
            engine="agent",
            slots=slots,
            assigned_at=time.time(),
            epoch=epoch,
            resume_seq=None if checkpoint is None else checkpoint.seq,
        ),
        job=Job(
            id=JobId(job),
            spec=spec,
            team="red",
            user="ann",
            state=JobState.PLACED,
            submitted_at=time.time(),
            queued_at=time.time(),
            checkpoint=checkpoint,
        ),
        nodes=tuple(
            Node(
                id=NodeId(node.id),
                pool=node.pool,
                engine="agent",
                state=NodeState.READY,
                joined_at=time.time(),
                hostname=node.hostname,
                address=node.address,
            )
            for node in nodes
        ),
        epoch=epoch,
    )


def wait_until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll; AssertionError when it does not come true in time."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
