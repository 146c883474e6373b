"""A door to a server that can be slow, or shut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

_PIECE = 64 << 10


class Gateway:
    """Forwards connections on a loopback port to another. ``delay_s`` holds every piece back for so
    long; while ``shut``, connections are refused and the open ones dropped."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(0.2)
        self.port = int(self._listener.getsockname()[1])
        self.delay_s = 0.0
        self.shut = False
        self._closed = False
        threading.Thread(target=self._accept, name="gateway", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Forward nothing more."""
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if self.shut:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            source.settimeout(120)
            while not self.shut and (piece := source.recv(_PIECE)):
                if self.delay_s:
                    time.sleep(self.delay_s)
                sink.sendall(piece)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
