"""Work folders and outputs, by the digest of their bytes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from api.deps import Anyone, Product
from api.problems import documented
from api.schemas.shown import Shown
from hybrid.domain.job_spec import Name
from hybrid.services.artifacts import Receiving
from hybrid.services.errors import TooLarge

router = APIRouter(tags=["artifacts"])

DRAINED_BYTES = 16 << 20

Digest = Annotated[
    str,
    Path(
        pattern=r"^sha256:[0-9a-f]{64}$",
        examples=["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    ),
]
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_SIZE = {"Content-Length": {"schema": {"type": "integer"}, "description": "Bytes"}}


class Stored(Shown):
    """What was stored."""

    digest: str
    size_bytes: int


@router.put(
    "/artifacts/{digest}",
    responses={
        200: {"description": "It was there already"},
        201: {"model": Stored, "description": "Stored"},
        **documented(413),
    },
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
)
async def put_artifact(
    digest: Digest,
    request: Request,
    response: Response,
    app: Product,
    who: Anyone,
    team: Annotated[
        Name | None, Query(description="Whose it is; your only team if omitted")
    ] = None,
) -> Stored:
    """Store bytes under their digest. They are checked while they stream in and are there as soon
    as all of them are, or not at all. Sending them again changes nothing."""
    teams = await run_in_threadpool(app.uploads.teams_for_writing, who, team)
    there = await run_in_threadpool(app.uploads.artifacts.has, digest)
    receiving = app.uploads.artifacts.receive(digest)
    with receiving:
        await _receive(request, receiving)
        # whoever claims bytes that are there already must have them too: a digest is no key
        size = await run_in_threadpool(receiving.finish)
    await run_in_threadpool(app.uploads.note, digest, teams, size)
    response.status_code = status.HTTP_200_OK if there else status.HTTP_201_CREATED
    return Stored(digest=digest, size_bytes=size)


async def _receive(request: Request, receiving: Receiving) -> None:
    too_large: TooLarge | None = None
    drained = 0
    try:
        async for chunk in request.stream():
            if too_large is None:
                try:
                    await run_in_threadpool(receiving.write, chunk)
                except TooLarge as problem:
                    too_large = problem
            else:  # so that the answer reaches who is still sending
                drained += len(chunk)
                if drained > DRAINED_BYTES:
                    break
    except ClientDisconnect:
        return  # what came is not what the digest says, and is thrown away
    if too_large is not None:
        raise too_large


@router.get(
    "/artifacts/{digest}",
    response_class=StreamingResponse,
    responses={
        200: {"content": _BYTES, "headers": _SIZE, "description": "The bytes"},
        307: {"description": "A signed URL of the store behind, valid for 15 minutes"},
        **documented(404),
    },
)
def get_artifact(
    digest: Digest,
    app: Product,
    who: Anyone,
    direct: Annotated[
        bool, Query(description="Redirect to the store behind, where it can sign URLs")
    ] = False,
) -> Response:
    """The bytes of an artifact of your teams. Nodes are redirected where that is possible."""
    size = app.uploads.size(who, digest)
    if direct or who.node is not None:
        link = app.uploads.artifacts.link(digest)
        if link is not None:
            return RedirectResponse(link, status.HTTP_307_TEMPORARY_REDIRECT)
    return StreamingResponse(
        app.uploads.artifacts.read(digest),
        media_type="application/octet-stream",
        headers={"Content-Length": str(size), "ETag": f'"{digest}"'},
    )


@router.head(
    "/artifacts/{digest}",
    response_class=Response,
    responses={200: {"headers": _SIZE, "description": "It is there"}, **documented(404)},
)
def head_artifact(digest: Digest, app: Product, who: Anyone) -> Response:
    """Whether an artifact of your teams is there, and its size."""
    size = app.uploads.size(who, digest)
    return Response(
        headers={"Content-Length": str(size), "ETag": f'"{digest}"'},
        media_type="application/octet-stream",
    )
