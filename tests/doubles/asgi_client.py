"""A plain HTTP client of an ASGI application in this process, for tests without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


class AsgiClient:
    """Sends one request at a time, each in an event loop of its own. Answers are read whole."""

    def __init__(self, app: Any, *, base_url: str = "http://testserver"):
        self._app, self._base_url = app, base_url
        self.headers = httpx.Headers()

    def request(self, method: str, url: str, **given: Any) -> httpx.Response:
        """The application's answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url=self._base_url, headers=self.headers
            ) as client:
                return await client.request(method, url, **given)

        return asyncio.run(send())

    def get(self, url: str, **given: Any) -> httpx.Response:
        """GET."""
        return self.request("GET", url, **given)

    def head(self, url: str, **given: Any) -> httpx.Response:
        """HEAD."""
        return self.request("HEAD", url, **given)

    def post(self, url: str, **given: Any) -> httpx.Response:
        """POST."""
        return self.request("POST", url, **given)

    def put(self, url: str, **given: Any) -> httpx.Response:
        """PUT."""
        return self.request("PUT", url, **given)

    def patch(self, url: str, **given: Any) -> httpx.Response:
        """PATCH."""
        return self.request("PATCH", url, **given)

    def delete(self, url: str, **given: Any) -> httpx.Response:
        """DELETE."""
        return self.request("DELETE", url, **given)
