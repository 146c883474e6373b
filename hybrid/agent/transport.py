"""The agent's calls to the server. It dials out only."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from hybrid.agent.protocol import (
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LogAnswer,
    WorkAnswer,
)

A = TypeVar("A", bound=BaseModel)

CONNECT_S = 5.0
ANSWER_S = 15.0
_PIECE_BYTES = 1 << 20
_LATER = frozenset({408, 425, 429})


class ServerUnreachable(Exception):
    """No answer, or none that means anything: try again. Nobody can say whether it was done."""


class ServerRefused(Exception):
    """The server said no. ``code`` is its stable code, empty when it gave none."""

    def __init__(self, status: int, code: str, words: str) -> None:
        self.status, self.code, self.words = status, code, words
        super().__init__(f"{status} {code}: {words}".rstrip(": "))


class WrongBytes(Exception):
    """What was downloaded is not what its digest says, or longer than allowed."""


class ServerClient:
    """One server, one node. Threads may share it."""

    def __init__(
        self, url: str, *, ca_pem: str | None = None, trust_environment: bool = True
    ) -> None:
        verify: ssl.SSLContext | bool = True
        if ca_pem is not None:
            verify = ssl.create_default_context(cadata=ca_pem)
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            headers={"User-Agent": "hybrid-agent"},
            verify=verify,
            trust_env=trust_environment,
        )
        self._node_id = ""
        self._token = ""

    def speak_as(self, node_id: str, token: str) -> None:
        """Use this identity from now on."""
        self._node_id, self._token = node_id, token

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    # --- calls --------------------------------------------------------------------------------

    def join(self, request: JoinRequest, join_token: str) -> JoinAnswer:
        """Become a node; repeatable."""
        return self._call(
            JoinAnswer, "POST", "/v1/nodes:join", token=join_token, json=_document(request)
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Say everything."""
        return self._call(
            HeartbeatAnswer,
            "POST",
            f"/v1/nodes/{self._node_id}:heartbeat",
            json=_document(request),
        )

    def work(self, revision: int, wait_s: float) -> WorkAnswer:
        """What to do; waits up to ``wait_s`` for something other than ``revision``."""
        return self._call(
            WorkAnswer,
            "GET",
            f"/v1/nodes/{self._node_id}/work",
            params={"revision": revision, "wait_s": wait_s},
            timeout=httpx.Timeout(ANSWER_S + wait_s, connect=CONNECT_S),
        )

    def leave(self) -> None:
        """Say goodbye."""
        self._send("POST", f"/v1/nodes/{self._node_id}:leave")

    def send_log(self, run_id: str, rank: int, offset: int, data: bytes, *, gap: bool) -> int:
        """Send output; where the server's copy ends now."""
        answer = self._call(
            LogAnswer,
            "POST",
            f"/v1/nodes/{self._node_id}/runs/{run_id}/{rank}/logs",
            params={"offset": offset, "gap": gap},
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        return answer.offset

    def download(self, digest: str, target: Path, *, run_id: str, limit_bytes: int) -> None:
        """Bring an artifact of a run into ``target``; raises WrongBytes if it is not what it should
        be."""
        sha256 = hashlib.sha256()
        size = 0
        try:
            with (
                self._http.stream(
                    "GET",
                    f"/v1/artifacts/{digest}",
                    params={"run": run_id},
                    headers=self._authorization(self._token),
                    follow_redirects=True,
                ) as answer,
                target.open("wb") as file,
            ):
                if not answer.is_success:
                    answer.read()
                    _raise_for(answer)
                for piece in answer.iter_bytes(_PIECE_BYTES):
                    size += len(piece)
                    if size > limit_bytes:
                        raise WrongBytes(f"{digest} is larger than {limit_bytes} bytes")
                    sha256.update(piece)
                    file.write(piece)
        except httpx.HTTPError as error:
            raise ServerUnreachable(_words(error)) from error
        if f"sha256:{sha256.hexdigest()}" != digest:
            raise WrongBytes(f"{digest} arrived as sha256:{sha256.hexdigest()}")

    def upload(self, digest: str, source: Path, *, run_id: str) -> None:
        """Bring an output of a run to the artifact store under its digest; repeatable."""
        with source.open("rb") as file:
            self._send(
                "PUT",
                f"/v1/artifacts/{digest}",
                params={"run": run_id},
                content=_pieces(file),
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(source.stat().st_size),
                },
                timeout=httpx.Timeout(120.0, connect=CONNECT_S),
            )

    # --- how ----------------------------------------------------------------------------------

    def _authorization(self, token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    def _call(self, kind: type[A], method: str, path: str, **arguments: Any) -> A:
        answer = self._send(method, path, **arguments)
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:
            words = f"an answer that is no {kind.__name__}"
            raise ServerUnreachable(f"{method} {path}: {words}") from error

    def _send(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        **arguments: Any,
    ) -> httpx.Response:
        authorization = self._authorization(self._token if token is None else token)
        try:
            answer = self._http.request(
                method, path, headers={**authorization, **(headers or {})}, **arguments
            )
        except httpx.HTTPError as error:
            raise ServerUnreachable(_words(error)) from error
        _raise_for(answer)
        return answer


def _document(request: BaseModel) -> Any:
    return request.model_dump(mode="json")


def _pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _raise_for(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    if answer.status_code >= 500 or answer.status_code in _LATER:
        raise ServerUnreachable(f"the server answers {answer.status_code}")
    code = words = ""
    try:
        problem = answer.json()
        code, words = str(problem.get("code", "")), str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        words = answer.text[:200]
    raise ServerRefused(answer.status_code, code, words[:500])
