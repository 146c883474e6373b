"""Errors as RFC 9457 problem+json, each with a stable ``code``."""

from __future__ import annotations

import types
from collections.abc import Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from hybrid.services import errors as said
from hybrid.services.errors import Fault

MEDIA_TYPE = "application/problem+json"

_STATUS: tuple[tuple[type[said.ServiceError], int], ...] = (
    (said.NotAuthenticated, 401),
    (said.NotAllowed, 403),
    (said.NotFound, 404),
    (said.Conflict, 409),
    (said.Stale, 412),
    (said.TooLarge, 413),
    (said.Refused, 422),
    (said.NotNow, 503),
)
_CODES = {
    400: "bad_request",
    404: "no_such_path",
    405: "method_not_allowed",
    413: "body_too_large",
    500: "internal_error",
}


class ProblemPart(BaseModel):
    """What is wrong at one place of what was sent."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="Where, for example resources.gpu.models.0")
    message: str
    hint: str = Field(default="", description="What to write instead, where that is known.")


class Problem(BaseModel):
    """An error, as RFC 9457 describes it; programs go by ``code``."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="urn:hybrid:problem: and the code", examples=[""])
    title: str
    status: int
    code: str
    detail: str
    errors: tuple[ProblemPart, ...] = ()
    request_id: str = ""


def response(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[Fault] = (),
    request_id: str = "",
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An error as a response."""
    problem = Problem(
        type=f"urn:hybrid:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        errors=tuple(
            ProblemPart(path=each.path, message=each.message, hint=each.hint) for each in errors
        ),
        request_id=request_id,
    )
    return JSONResponse(
        problem.model_dump(mode="json"), status, headers=headers, media_type=MEDIA_TYPE
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these errors."""
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase} for status in statuses
    }


async def of_service(request: Request, problem: Exception) -> JSONResponse:
    """The response to what a service raised."""
    assert isinstance(problem, said.ServiceError)
    status = next((code for kind, code in _STATUS if isinstance(problem, kind)), 500)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="hybrid"'
    if isinstance(problem, said.NotNow):
        headers["Retry-After"] = str(max(1, round(problem.retry_after_s)))
    return response(
        status,
        problem.code,
        problem.detail,
        errors=problem.errors,
        request_id=request_id(request),
        headers=headers,
    )


async def of_http(request: Request, problem: Exception) -> JSONResponse:
    """The response to what the framework raised."""
    assert isinstance(problem, HTTPException)
    code = _CODES.get(problem.status_code, "refused")
    detail = str(problem.detail)
    if problem.status_code == 400:
        code, detail = "malformed_json", "the body is not JSON in UTF-8"
    elif problem.status_code == 404:
        detail = f"there is nothing at {request.url.path}"
    return response(
        problem.status_code,
        code,
        detail,
        request_id=request_id(request),
        headers=dict(problem.headers or {}),
    )


async def of_validation(request: Request, problem: Exception) -> JSONResponse:
    """The response to a request that does not fit its schema: 400 if it is not JSON at all, 415
    if it does not claim to be, else 422."""
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()
    if any(each["type"] == "json_invalid" for each in found):
        each = found[0]
        where = f" at character {each['loc'][-1]}" if len(each["loc"]) > 1 else ""
        detail = f"the body is not JSON: {each['ctx']['error']}{where}"
        return response(400, "malformed_json", detail, request_id=request_id(request))
    if isinstance(problem.body, bytes):
        detail = "the body is taken for JSON only with Content-Type: application/json"
        return response(415, "not_json", detail, request_id=request_id(request))
    route = request.scope.get("route")
    body = route.body_field if isinstance(route, APIRoute) else None
    faults = [_fault(each, None if body is None else body.field_info.annotation) for each in found]
    first = faults[0]
    rest = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return response(
        422,
        "invalid_request",
        f"{first.path}: {first.message}{rest}",
        errors=faults,
        request_id=request_id(request),
    )


def request_id(request: Request) -> str:
    """What the log calls this request."""
    return str(getattr(request.state, "request_id", ""))


# --- where in the document ---------------------------------------------------------------------


def _fault(error: Any, body: Any) -> Fault:
    place, *loc = error["loc"]
    if place != "body":
        return Fault(".".join(str(part) for part in error["loc"]), _words(error))
    return fault_at(loc, error, body)


def fault_at(loc: Sequence[str | int], error: Any, model: Any) -> Fault:
    """What pydantic says of ``loc`` in a document of type ``model``, in our words: the path is the
    document's own (no union tags), and an unknown field gets the nearest names as a hint."""
    path: list[str] = []
    around: Any = model
    for part in loc:
        around = _plain(around)
        if (member := _tagged(around, part)) is not None:
            around = member
            continue
        path.append(str(part))
        if part == loc[-1] and error["type"] == "extra_forbidden":
            break
        around = _within(around, part)
    hint = ""
    if error["type"] == "extra_forbidden" and isinstance(around, type):
        fields = list(getattr(around, "model_fields", ()))
        near = get_close_matches(str(loc[-1]), fields, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"fields: {', '.join(fields)}"
    return Fault(".".join(path) or "body", _words(error), hint)


def _words(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "missing":
        return "is missing"
    message: str = error["msg"]
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _plain(annotation: Any) -> Any:
    """The type without Annotated and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        if len(members) == 1:
            return _plain(members[0])
    return annotation


def _tagged(annotation: Any, tag: str | int) -> Any:
    """The member of a discriminated union whose tag it is."""
    if get_origin(annotation) in (Union, types.UnionType):
        for member in map(_plain, get_args(annotation)):
            for field in getattr(member, "model_fields", {}).values():
                if get_origin(field.annotation) is Literal and tag in get_args(field.annotation):
                    return member
    return None


def _within(annotation: Any, part: str | int) -> Any:
    fields = getattr(annotation, "model_fields", None)
    if fields is not None:
        field = fields.get(part)
        return None if field is None else field.annotation
    inner = get_args(annotation)
    if get_origin(annotation) is dict:
        return inner[1]
    return inner[0] if inner else None
