"""The metadata services of EC2 (version 2) and Compute Engine, as far as an agent asks them."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class MetadataServer:
    """Both services on one port. ``interrupt`` and ``preempt`` arm the notices."""

    def __init__(self) -> None:
        self.instance_id = "i-0123456789"
        self.action: str | None = None
        self.rebalance: str | None = None
        self.token = "token-1"
        self.silent = False
        self.asked: list[str] = []
        self._preempted = threading.Event()
        self._etag = 1
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_PUT(self) -> None:
                asks_for_token = self.path == "/latest/api/token"
                has_ttl = "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
                good = asks_for_token and has_ttl and not outer.silent
                self._say(200 if good else 400, outer.token)

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if outer.silent:
                    self._say(503, "")
                elif self.path.startswith("/computeMetadata/"):
                    self._say(*outer._gce(self.path, self.headers.get("Metadata-Flavor", "")))
                else:
                    self._say(*outer._aws(self.path, self.headers))

            def _say(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("ETag", str(outer._etag))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def interrupt(self, at: float) -> None:
        """EC2 takes the machine at an instant (whole seconds, as EC2 writes it)."""
        time_text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.action = json.dumps({"action": "terminate", "time": time_text})

    def preempt(self) -> None:
        """Compute Engine takes the machine in 30 seconds."""
        self._etag += 1
        self._preempted.set()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _aws(self, path: str, headers: Any) -> tuple[int, str]:
        if headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, ""
        told = {
            "/latest/meta-data/instance-id": self.instance_id,
            "/latest/meta-data/spot/instance-action": self.action,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }.get(path)
        return (404, "") if told is None else (200, told)

    def _gce(self, path: str, flavor: str) -> tuple[int, str]:
        if flavor != "Google":
            return 403, ""
        if path.endswith("/instance/id"):
            return 200, "4711"
        if "wait_for_change=true" in path and f"last_etag={self._etag}" in path:
            end = time.monotonic() + 60
            while not self._preempted.is_set() and time.monotonic() < end:
                time.sleep(0.02)
        return 200, "TRUE" if self._preempted.is_set() else "FALSE"
