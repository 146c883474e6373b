"""The event log as server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.deps import Product, Viewer
from api.problems import documented
from api.schemas.jobs import ShownEvent
from hybrid.bootstrap import App
from hybrid.services.access import Principal

router = APIRouter(tags=["events"])

LOOK_AGAIN_S = 0.5
COMMENT_EVERY_S = 15.0
"""Something is sent this often: proxies keep the connection, and a gone reader is noticed."""
_MESSAGE = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The event's number"},
        "event": {"type": "string", "description": "Its kind"},
        "data": {"type": "string", "description": "The event as JSON, as in a timeline"},
        "retry": {"type": "integer"},
    },
}


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": _MESSAGE}},
            "description": "One event per message: `id` is its number, `event` its kind, `data`"
            " a JSON object as in a timeline",
        },
        **documented(404),
    },
)
async def stream_events(
    request: Request,
    app: Product,
    who: Viewer,
    after: Annotated[
        int | None, Query(ge=0, le=2**62, description="Begin after this number; now if omitted")
    ] = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^\d{1,18}$")] = None,
    follow: Annotated[bool, Query(description="false: what there is, then end")] = True,
) -> StreamingResponse:
    """What happens, as it happens: events of your teams' jobs, and all that are about no job.
    A client that reconnects with Last-Event-ID misses nothing."""
    begin = int(last_event_id) if last_event_id is not None else after
    if begin is None:
        begin = await run_in_threadpool(app.happenings.last) if follow else 0
    return StreamingResponse(
        _messages(request, app, who, begin, follow=follow),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _messages(
    request: Request, app: App, who: Principal, after: int, *, follow: bool
) -> AsyncIterator[bytes]:
    spoke = time.monotonic()
    yield b"retry: 2000\n\n"
    while not app.bell.closed and not await request.is_disconnected():
        seen, events = await run_in_threadpool(app.happenings.after, who, after)
        for seq, event in events:
            data = ShownEvent.of(seq, event).model_dump(mode="json")
            yield f"id: {seq}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n".encode()
            spoke = time.monotonic()
        if seen != after:
            after = seen
            continue
        if not follow:
            return
        if time.monotonic() - spoke > COMMENT_EVERY_S:
            yield b": still here\n\n"
            spoke = time.monotonic()
        with app.bell.listen("events") as listening:
            await listening.wait(LOOK_AGAIN_S)
