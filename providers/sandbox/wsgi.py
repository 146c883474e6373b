"""The few WSGI shapes that every part of the HTTP face shares."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]

MAX_BODY_BYTES = 1 << 20


class BodyTooLarge(Exception):
    """The request body is larger than this door accepts."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One buffered answer."""

    status: int
    content_type: str
    body: bytes

    def send(self, start_response: StartResponse) -> list[bytes]:
        # one buffered write with its length: anything else costs a delayed acknowledgement
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Scripted"
        start_response(
            f"{self.status} {phrase}",
            [("Content-Type", self.content_type), ("Content-Length", str(len(self.body)))],
        )
        return [self.body]


def text_reply(text: str, status: int = 200) -> Reply:
    return Reply(status, "text/plain", text.encode())


def json_reply(document: Any, status: int = 200, content_type: str = "application/json") -> Reply:
    return Reply(status, content_type, json.dumps(document).encode())


def read_body(environ: Environ) -> bytes:
    """The whole body. Raises ``BodyTooLarge`` above ``MAX_BODY_BYTES``."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MAX_BODY_BYTES:
        raise BodyTooLarge(length)
    body: bytes = environ["wsgi.input"].read(length)
    return body


def call_buffered(app: WsgiApp, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
    """Call an app and hold its whole answer: status line, headers, body."""
    seen: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], _exc_info: Any = None
    ) -> Callable[[bytes], None]:
        seen.append((status, headers))
        return lambda _data: None

    chunks = app(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    status, headers = seen[-1]
    return status, headers, body
