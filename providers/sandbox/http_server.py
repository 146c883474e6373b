"""A threaded HTTP server on a loopback port, as every sandbox cloud has one."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from providers.sandbox.wsgi import Environ, Reply, StartResponse

HOST = "127.0.0.1"
log = logging.getLogger(__name__)


class QuietHandler(WSGIRequestHandler):
    """Keeps the server's open connections known, so that closing it leaves no thread behind."""

    timeout = 60.0  # a client that says nothing for a minute is gone

    def setup(self) -> None:
        super().setup()
        self.server.sandbox_connections.add(self.connection)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self.server.sandbox_connections.discard(self.connection)  # type: ignore[attr-defined]
        super().finish()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        log.debug("%s %s %s %s", self.command, self.path, code, size)


class HttpServer:
    """A threaded server on a loopback port; the port is known before anything is served."""

    def __init__(self, port: int = 0, handler: type[QuietHandler] = QuietHandler) -> None:
        self._connections: set[socket.socket] = set()
        self._server: BaseWSGIServer = make_server(
            HOST, port, _not_ready, threaded=True, request_handler=handler
        )
        self._server.sandbox_connections = self._connections  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="sandbox-http",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def serve(self, app: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._server.app = app
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and drop who still talks."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(10.0)
        self._server.server_close()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself meanwhile


def hang_up(environ: Environ) -> None:
    """Drop the connection without an answer."""
    connection: socket.socket | None = environ.get("werkzeug.socket")
    if connection is not None:
        connection.shutdown(socket.SHUT_RDWR)


def _not_ready(_environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    return Reply(503, "text/plain", b"starting").send(start_response)
