"""JSON calls to Google's REST APIs: reads are repeated, writes are sent once, both have deadlines.

Written on google-auth's session and not on ``google-cloud-compute`` (docs/adr says why).
Credentials come from Google's own chain (Application Default Credentials). They are never sent in
the clear: an ``http://`` endpoint, a sandbox on this machine, is asked without any.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import google.auth
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay
from tenacity.wait import wait_random_exponential

from hybrid.domain.addresses import is_loopback
from hybrid.ports.errors import AuthFailed, OutcomeUnknown
from providers.gcp.errors import Kind, Said, Scopes, of_http, typed

COMPUTE: Final = "https://compute.googleapis.com"
BILLING: Final = "https://cloudbilling.googleapis.com"
RESOURCES: Final = "https://cloudresourcemanager.googleapis.com"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

_CONNECT_S: Final = 5.0
_READ_S: Final = 20.0
_TRIES: Final = 3
_TRYING_S: Final = 15.0


class Refusal(Exception):
    """The API answered no. ``said`` is what it said."""

    def __init__(self, said: Said) -> None:
        super().__init__(f"{said.code}: {said.message}")
        self.said = said


class _Again(Exception):
    """A read that may be repeated; ``last`` is what it would end with."""

    def __init__(self, last: Exception) -> None:
        self.last = last


class Rest:
    """Calls of one set of credentials. Safe to use from several threads."""

    def __init__(self, scopes: Scopes, endpoint_url: str | None) -> None:
        """Raises ValueError where no credentials are found."""
        self._scopes = scopes
        self._endpoint = endpoint_url.rstrip("/") if endpoint_url else None
        self.project: str | None = None
        if self._endpoint is not None and self._endpoint.startswith("http://"):
            self._credentials: Any = AnonymousCredentials()
        else:
            try:
                self._credentials, self.project = google.auth.default(scopes=[SCOPE])
            except DefaultCredentialsError as error:
                raise ValueError(" ".join(str(error).split())) from error
        self._local = threading.local()

    def read(self, service: str, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """GET. Raises Refusal, AuthFailed, OutcomeUnknown."""
        retrying = Retrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(_TRIES) | stop_after_delay(_TRYING_S),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        try:
            return retrying(self._read_once, service, path, params)
        except _Again as again:
            raise again.last from again

    def write(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        service: str = COMPUTE,
        read_s: float = 45.0,
    ) -> Any:
        """POST or DELETE, once. Raises Refusal, AuthFailed, OutcomeUnknown."""
        return self._send(method, service, path, params, body, read_s)

    def _read_once(self, service: str, path: str, params: Mapping[str, Any] | None) -> Any:
        try:
            return self._send("GET", service, path, params, None, _READ_S)
        except OutcomeUnknown as error:
            raise _Again(error) from error
        except Refusal as refusal:
            if refusal.said.code.startswith("HTTP 5") or refusal.said.code in _PASSING:
                raise _Again(refusal) from refusal
            raise

    def _send(
        self,
        method: str,
        service: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: Any,
        read_s: float,
    ) -> Any:
        try:
            answer = self._session().request(
                method,
                f"{self._endpoint or service}{path}",
                params=params,
                json=body,
                timeout=(_CONNECT_S, read_s),
            )
        except GoogleAuthError as error:
            # no token could be had, or none was accepted: nothing was done
            raise AuthFailed(self._scopes.of(Kind.AUTH), str(error)) from error
        except requests.RequestException as error:
            raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
        try:
            document = answer.json()
        except ValueError:
            document = None
        if answer.status_code >= 400:
            raise Refusal(of_http(answer.status_code, document, _retry_after_s(answer)))
        if not isinstance(document, dict):
            raise OutcomeUnknown(f"HTTP {answer.status_code} without a JSON object")
        return document

    def _session(self) -> requests.Session:
        # a session is not safe to share between threads; credentials are
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            if isinstance(self._credentials, AnonymousCredentials):
                session = requests.Session()
                # a proxy of the environment has no business on the loopback
                session.trust_env = not is_loopback(_host(self._endpoint or ""))
            else:
                session = AuthorizedSession(self._credentials)
            self._local.session = session
        return session


_PASSING: Final = frozenset({"backendError", "internalError"})


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _retry_after_s(answer: requests.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


@contextmanager
def translated(scopes: Scopes) -> Iterator[None]:
    """Raises the typed error in place of a refusal inside."""
    try:
        yield
    except Refusal as refusal:
        raise typed(refusal.said, scopes) from refusal
