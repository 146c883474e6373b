"""The node protocol over HTTP: thin routes around :class:`hybrid.agent.desk.NodeDesk`.

Mount it under ``/v1``. A long poll holds no thread while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from api import problems
from hybrid.agent.desk import NodeDesk, ProtocolRefusal
from hybrid.agent.protocol import (
    MAX_LOG_CHUNK_BYTES,
    MAX_WAIT_S,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LogAnswer,
    WorkAnswer,
)
from hybrid.ports.mailbox import NodeToken

LOOK_AGAIN_S = 1.0
"""Orders written by another process do not ring this one's bell: look this often."""

NodePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
RunPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


def _refused(request: Request, refusal: ProtocolRefusal) -> JSONResponse:
    headers = {"WWW-Authenticate": 'Bearer realm="hybrid"'} if refusal.status == 401 else None
    return problems.response(
        refusal.status,
        refusal.code,
        refusal.words,
        request_id=problems.request_id(request),
        headers=headers,
    )


def _bearer(authorization: Annotated[str, Header(max_length=1024)] = "") -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


Token = Annotated[str, Depends(_bearer)]


def node_router(desk: NodeDesk, *, look_again_s: float = LOOK_AGAIN_S) -> APIRouter:
    """The routes over one desk."""
    router = APIRouter(tags=["node protocol"])

    def answered(request: Request, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ProtocolRefusal as refusal:
            return _refused(request, refusal)

    @router.post("/nodes:join", responses=problems.documented(401, 403, 409, 413))
    def join(request: Request, joining: JoinRequest, token: Token) -> JoinAnswer:
        """Register a machine as a node, authorized by a join token."""
        return answered(request, lambda: desk.join(joining, token))  # type: ignore[no-any-return]

    @router.post("/nodes/{node_id}:heartbeat", responses=problems.documented(401, 403, 413))
    def heartbeat(
        request: Request, node_id: NodePath, beat: HeartbeatRequest, token: Token
    ) -> HeartbeatAnswer:
        """Everything that a node has to say; renews the run lease of its runs."""
        return answered(  # type: ignore[no-any-return]
            request, lambda: desk.heartbeat(desk.authenticate(token, node_id), beat)
        )

    @router.post("/nodes/{node_id}:leave", status_code=204, responses=problems.documented(401, 403))
    def leave(request: Request, node_id: NodePath, token: Token) -> None:
        """The node has ended its runs and goes."""
        return answered(  # type: ignore[no-any-return]
            request, lambda: desk.leave(desk.authenticate(token, node_id))
        )

    @router.get("/nodes/{node_id}/work", responses=problems.documented(401, 403))
    async def work(
        request: Request,
        node_id: NodePath,
        token: Token,
        revision: Annotated[int, Query(ge=-1)] = -1,
        wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
    ) -> WorkAnswer:
        """What the node should be doing: at once when the revision differs, else after a wait."""
        try:
            who = await run_in_threadpool(desk.authenticate, token, node_id)
            return await _long_poll(desk, who, request, revision, wait_s, look_again_s)
        except ProtocolRefusal as refusal:
            return _refused(request, refusal)  # type: ignore[return-value]

    @router.post(
        "/nodes/{node_id}/runs/{run_id}/{rank}/logs",
        responses=problems.documented(400, 401, 403, 404, 413, 422, 507),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
    )
    async def logs(
        request: Request,
        node_id: NodePath,
        run_id: RunPath,
        rank: Annotated[int, Path(ge=0, le=4095)],
        token: Token,
        offset: Annotated[int, Query(ge=0, le=2**62)],
        gap: Annotated[bool, Query(description="What is missing before is gone")] = False,
    ) -> LogAnswer:
        """A piece of a run's output. Answers where the server's copy ends: send from there."""
        try:
            who = await run_in_threadpool(desk.authenticate, token, node_id)
            data = await _bounded_body(request)
            return await run_in_threadpool(desk.take_log, who, run_id, rank, offset, data, gap=gap)
        except ProtocolRefusal as refusal:
            return _refused(request, refusal)  # type: ignore[return-value]

    return router


async def _long_poll(
    desk: NodeDesk,
    who: NodeToken,
    request: Request,
    revision: int,
    wait_s: float,
    look_again_s: float,
) -> WorkAnswer:
    end = time.monotonic() + wait_s
    with desk.bell.listen(f"node:{who.node_id}") as listening:
        while True:
            answer = await run_in_threadpool(desk.work, who)
            left_s = end - time.monotonic()
            if answer.revision != revision or left_s <= 0 or desk.bell.closed:
                return answer
            if await request.is_disconnected():
                return answer
            await listening.wait(min(look_again_s, left_s))


async def _bounded_body(request: Request) -> bytes:
    """The raw body; ProtocolRefusal (413) as soon as it is longer than a log chunk may be."""
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > MAX_LOG_CHUNK_BYTES:
                raise ProtocolRefusal(
                    413, "log_chunk_too_large", f"at most {MAX_LOG_CHUNK_BYTES} bytes at a time"
                )
    except ClientDisconnect as error:
        raise ProtocolRefusal(400, "body_cut_off", "the body ended too early") from error
    return bytes(data)
