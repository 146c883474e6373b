"""Whether the process lives, whether it can work, and its numbers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, status
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.deps import Product, metrics_reader
from api.problems import documented
from api.schemas.plan import Health, Readiness
from hybrid.bootstrap import App
from hybrid.store import StoreError

router = APIRouter(tags=["health"])

STALLED_TICKS = 5


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health()


@router.get(
    "/readyz",
    responses={503: {"model": Readiness, "description": "Not ready, and why"}},
)
def readyz(app: Product, response: Response) -> Readiness:
    """Whether the store can be reached and the loop leads or stands by."""
    store, loop = _store(app), _loop(app)
    ready = store == "ok" and loop in ("leads", "stands_by")
    if not ready:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return Readiness(ready=ready, store=store, loop=loop)


def _store(app: App) -> str:
    try:
        app.store.policy()
    except StoreError:
        return "cannot be reached"
    return "ok"


def _loop(app: App) -> str:
    standing = app.loop.status()
    if not standing.alive:
        return "dead"
    if standing.failing >= STALLED_TICKS:
        return f"failed {standing.failing} times in a row"
    if standing.leads:
        return "leads" if standing.last_tick_at is not None else "starting"
    return "stands_by"


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "In the text format of Prometheus",
        },
        **documented(401, 403),
    },
)
def metrics(request: Request, reader: Annotated[None, Depends(metrics_reader)]) -> Response:  # noqa: ARG001
    """The numbers of this process and of all that is stored."""
    return Response(
        generate_latest(request.app.state.metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )
