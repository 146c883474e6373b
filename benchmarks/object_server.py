"""An S3-compatible server (moto's) on a loopback port, for what sends checkpoints there.

Run as a program with a port and a file, it is the server itself; the file gets the begin and the
end of every request, in seconds since the epoch, one a line.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

BUCKET = "checkpoints"
_HOST = "127.0.0.1"
_UP_S = 60.0
#: Whatever account the machine has is of no use here.
CREDENTIALS: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
}

Span = tuple[float, float]
"""Begin and end, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """A running server with :data:`BUCKET` in it."""

    url: str
    record: Path

    def spans(self) -> list[Span]:
        """When it was at work on requests, by begin."""
        found = []
        for line in self.record.read_text(encoding="ascii").splitlines():
            began, ended = line.split()
            found.append((float(began), float(ended)))
        return sorted(found)


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A fresh server in a process of its own; raises RuntimeError when it does not come up."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, CREDENTIALS),
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(port), str(Path(folder) / "requests")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        server = ObjectServer(f"http://{_HOST}:{port}", Path(folder) / "requests")
        try:
            _make_bucket(server.url)
            yield server
        finally:
            process.kill()


def _make_bucket(url: str) -> None:
    deadline = time.monotonic() + _UP_S
    while True:
        try:
            request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the object server did not come up at {url}") from None
            time.sleep(0.1)
        else:
            return


class Recorded:
    """A WSGI application whose requests are written down: from the call until the last byte of the
    answer is taken. What a body takes to arrive is in it, since the application reads it."""

    def __init__(self, app: Callable[..., Iterable[bytes]], record: Path) -> None:
        self._app = app
        self._file = record.open("a", encoding="ascii")
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        began = time.time()
        try:
            yield from self._app(environ, start_response)
        finally:
            with self._lock:
                self._file.write(f"{began:.4f} {time.time():.4f}\n")
                self._file.flush()


def main(argv: list[str]) -> int:
    # moto takes long to load, and whoever starts this module as a library needs nothing of it
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    port, record = int(argv[1]), Path(argv[2])
    app = Recorded(DomainDispatcherApplication(create_backend_app), record)
    make_server(_HOST, port, app, threaded=True, request_handler=MotoRequestHandler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
