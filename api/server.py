"""The server: a socket, the product, and uvicorn in between."""

from __future__ import annotations

import errno
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import structlog
import uvicorn

from api.app import create_app
from hybrid.bootstrap import App, StartupError, build
from hybrid.config import Settings
from hybrid.domain.addresses import is_loopback
from hybrid.services.log_lines import log_to_stderr

__all__ = ["Ready", "Server", "StartupError", "serve"]

GRACE_S = 3
"""For requests under way when the server is told to end; streams end at once."""
BACKLOG = 512
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """What there is to say once the server answers. ``admin_token`` only when this start made
    it."""

    url: str
    admin_token: str | None = field(repr=False)
    app: App = field(repr=False)


class Server:
    """A server on a bound socket. Who connects before :meth:`run` waits for it."""

    def __init__(self, settings: Settings):
        """Bind and build; StartupError says in one line what is in the way."""
        self._socket = _bound(settings.host, settings.port)
        try:
            self.url = _url(settings, self._socket.getsockname()[1])
            self.app = build(settings, url=settings.advertise_url or self.url)
        except BaseException:
            self._socket.close()
            raise
        try:
            self._uvicorn = _Uvicorn(_config(settings, create_app(self.app)))
        except BaseException:
            self.app.stop()
            self._socket.close()
            raise

    @property
    def asgi(self) -> object:
        """The application as ASGI."""
        return self._uvicorn.config.app

    def run(self, on_ready: Callable[[Ready], None] = lambda _ready: None) -> None:
        """Serve until :meth:`stop`, SIGINT or SIGTERM; then end within five seconds."""
        self._uvicorn.on_ready = lambda: self._announce(on_ready)
        self._uvicorn.on_exit = self.app.bell.close
        try:
            self.app.start()
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """Take everything apart; :meth:`run` does so at its end."""
        self.app.stop()
        self._socket.close()

    def stop(self) -> None:
        """Ask the server to end; returns at once."""
        self.app.bell.close()
        self._uvicorn.should_exit = True

    def _announce(self, on_ready: Callable[[Ready], None]) -> None:
        self.app.announce(self.url)
        _log.info("serving", url=self.url)
        on_ready(Ready(self.url, self.app.admin_token, self.app))


def serve(settings: Settings, on_ready: Callable[[Ready], None] = lambda _ready: None) -> None:
    """Serve until told to end. ``on_ready`` is called once requests are answered.

    Raises StartupError, whose text is one line for people.
    """
    log_to_stderr(level=settings.log_level, as_json=settings.log_json)
    Server(settings).run(on_ready)


class _Uvicorn(uvicorn.Server):
    """uvicorn that says when it answers, lets streams go when it is told to end, and does not
    raise the signal again once it has ended in order."""

    on_ready: Callable[[], None]
    on_exit: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets=sockets)
        if self.started:
            # not in the event loop: it may write files, and print
            threading.Thread(target=self.on_ready, name="ready", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        self.on_exit()
        await super().shutdown(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals that end a server, if this is the thread that gets them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._told) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  a handler's
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = True


def _config(settings: Settings, asgi: object) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            asgi,  # type: ignore[arg-type]
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        config.load()
    except (OSError, ssl.SSLError) as problem:
        raise StartupError(f"tls_cert and tls_key cannot be used: {problem}") from problem
    return config


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as problem:
        raise StartupError(f"host {host} is not known here: {problem.strerror}") from problem
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        if problem.errno == errno.EADDRINUSE:
            said = "something else listens there; end it, or choose another --port"
            raise StartupError(f"port {port} on {host} is in use: {said}") from problem
        raise StartupError(
            f"cannot listen on {host}:{port}: {os.strerror(problem.errno or 0)}"
        ) from problem
    bound.setblocking(False)
    return bound


def _url(settings: Settings, port: int) -> str:
    scheme = "https" if settings.tls_cert is not None else "http"
    host = settings.host
    if not is_loopback(host) and host in ("0.0.0.0", "::"):  # noqa: S104  compared, not bound
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"
