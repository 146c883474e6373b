"""What every request goes through, as plain ASGI: its name, its log line, its size, its headers."""

from __future__ import annotations

import logging
import re
import secrets
import time
import traceback
from collections.abc import Iterable
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems

BODY_LIMIT_BYTES = 1 << 20
"""Of anything that is read whole."""
DRAINED_BYTES = 16 << 20
"""Of a body that is too large: read and thrown away, so that the answer reaches who sends it."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Unless the route says otherwise. No CORS header: no other origin may read anything."""

_ROUTINE = ("/healthz", "/readyz", "/metrics", ":heartbeat", "/work", "/logs")
"""Paths asked for so often that only their failures are worth a line."""

_log = structlog.get_logger("hybrid.api")


class Attend:
    """Names a request, logs its end, adds the security headers, and turns what nobody caught into
    a 500 that tells the name and nothing else.

    Neither the query nor any header is logged: tokens and file names stay out of logs.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("x-request-id", "")
        name = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        state = scope.setdefault("state", {})
        state["request_id"] = name
        began = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = name
                for header, value in _HEADERS.items():
                    headers.setdefault(header, value)
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:  # noqa: BLE001  nothing of it may reach who asked, and nothing may be lost
            # as text: whoever renders it must not add the values of variables to it
            _log.error(
                "request failed",
                request_id=name,
                path=scope["path"],
                traceback=traceback.format_exc(),
            )
            if status == 0:
                detail = "something went wrong here; the server's log has it under request_id"
                answer = problems.response(500, "internal_error", detail, request_id=name)
                await answer(scope, receive, sending)
        finally:
            quiet = status < 400 and scope["path"].endswith(_ROUTINE)
            _log.log(
                logging.DEBUG if quiet else logging.INFO,
                "request",
                request_id=name,
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round((time.perf_counter() - began) * 1000, 1),
                who=state.get("who", ""),
            )


class BodyLimit:
    """Reads bodies whole up to a limit before anything else sees them; 413 beyond.

    Paths under ``streamed`` are left alone: their routes count for themselves.
    """

    def __init__(
        self, app: ASGIApp, *, limit_bytes: int = BODY_LIMIT_BYTES, streamed: Iterable[str] = ()
    ):
        self._app, self._limit, self._streamed = app, limit_bytes, tuple(streamed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"].startswith(self._streamed or ("\0",)):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        seen = 0
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # it went away
            chunk = message.get("body", b"")
            seen += len(chunk)
            if seen > self._limit + DRAINED_BYTES:
                break
            if seen <= self._limit:
                body += chunk
            more = message.get("more_body", False)
        if seen > self._limit:
            await self._refuse(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope.get("state", {})
        answer = problems.response(
            413,
            "body_too_large",
            f"a body has at most {self._limit} bytes",
            request_id=state.get("request_id", ""),
        )
        await answer(scope, receive, send)
