"""The FastAPI application over a built product."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from api import problems
from api.metrics import registry_of
from api.middleware import Attend, BodyLimit
from api.routers import (
    artifacts,
    events,
    health,
    jobs,
    ledger,
    logs,
    machines,
    money,
    plan,
    tokens,
)
from api.routers.node_protocol import node_router
from hybrid.bootstrap import App
from hybrid.services.errors import ServiceError
from hybrid.store import StoreError

THREADS = 128
"""For calls of the store; long polls and streams hold none while they wait."""

_ABOUT = """Submit jobs, ask when, where, how much and why, and run the place.

Send a token with every request: `Authorization: Bearer …`. Instants are RFC 3339 strings in UTC,
durations seconds in fields named `…_s`, money decimal strings of US dollars in fields named
`…_usd`. Errors are RFC 9457 problem+json with a stable `code`."""


_FACES = (jobs, logs, plan, machines, money, ledger, tokens, events, artifacts)


def create_app(product: App) -> FastAPI:
    """The application. Starting and stopping the product is its caller's business."""
    app = FastAPI(
        title="hybrid",
        version=version("hybrid"),
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
    )
    app.state.product = product
    app.state.metrics = registry_of(product)
    app.include_router(health.router)
    v1 = APIRouter(prefix="/v1", responses=problems.documented(400, 401, 403, 422))
    for each in _FACES:
        v1.include_router(each.router)
    v1.include_router(node_router(product.desk))
    app.include_router(v1)
    app.add_exception_handler(ServiceError, problems.of_service)
    app.add_exception_handler(RequestValidationError, problems.of_validation)
    app.add_exception_handler(HTTPException, problems.of_http)
    app.add_exception_handler(StoreError, _store_away)
    app.add_middleware(BodyLimit, streamed=("/v1/artifacts/",))
    app.add_middleware(Attend)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001  the framework's
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


async def _store_away(request: Request, problem: Exception) -> JSONResponse:  # noqa: ARG001
    return problems.response(
        503,
        "store_unavailable",
        "the database cannot be reached now; try again",
        request_id=problems.request_id(request),
        headers={"Retry-After": "2"},
    )


def _operation_id(route: APIRoute) -> str:
    return route.name


def _roles() -> dict[str, str]:
    """By operation, the least role that its dependencies ask for."""
    found = {}
    for face in _FACES:
        for route in face.router.routes:
            if isinstance(route, APIRoute):
                for needed in route.dependant.dependencies:
                    role = getattr(needed.call, "least_role", None)
                    if role is not None:
                        found[_operation_id(route)] = str(role)
    return found


_LEAST_ROLES = _roles()


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The document, with what the framework cannot know: errors are problem+json, and each
    operation says the least role it takes."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for path in document["paths"].values():
        for operation in path.values():
            if (role := _LEAST_ROLES.get(operation["operationId"])) is not None:
                operation["x-least-role"] = role
                operation["description"] += f"\n\nLeast role: {role}."
            for status, answer in operation.get("responses", {}).items():
                content = answer.get("content", {})
                if status[0] in "45" and "application/json" in content and status != "503":
                    content[problems.MEDIA_TYPE] = content.pop("application/json")
    app.openapi_schema = document
    return document
