"""An HTTP server that answers what a test says, in order, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer. ``cut_after``: the connection breaks after so many bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None

    @classmethod
    def json(cls, document: Any, status: int = 200, **headers: str) -> Reply:
        return cls(status, json.dumps(document).encode(), {"Content-Type": "application/json", **{
            name.replace("_", "-"): value for name, value in headers.items()}})  # fmt: skip

    @classmethod
    def problem(cls, status: int, code: str, detail: str = "no", **more: Any) -> Reply:
        headers = more.pop("headers", {})
        document = {"status": status, "code": code, "detail": detail, **more}
        return cls(
            status,
            json.dumps(document).encode(),
            {"Content-Type": "application/problem+json", **headers},
        )


@dataclass(frozen=True)
class Asked:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Script = Callable[[Asked], Reply]


class ScriptedServer:
    """Answers ``replies`` in order, then, and for ever, as ``script`` says."""

    def __init__(self, *replies: Reply, script: Script | None = None) -> None:
        self.asked: list[Asked] = []
        self._replies: Iterator[Reply] = iter(replies)
        self._script = script
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                outer._answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.serve)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        count = int(handler.headers.get("Content-Length", 0))
        asked = Asked(
            handler.command, handler.path, dict(handler.headers), handler.rfile.read(count)
        )
        with self._lock:
            self.asked.append(asked)
            reply = next(self._replies, None)
        if reply is None:
            assert self._script is not None, f"nothing is left to answer {asked.path} with"
            reply = self._script(asked)
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in reply.headers:
            handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        handler.wfile.write(reply.body[: reply.cut_after])
        if reply.cut_after is not None:
            handler.close_connection = True
