"""HTTP to one server: timeouts, repeats where repeating is safe, errors in our words."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import tenacity

from hybrid.client.errors import Fault, Problem, Unreachable
from hybrid.domain.addresses import is_loopback

CONNECT_S = 5.0
ANSWER_S = 30.0
TRIES = 4
DEADLINE_S = 20.0
LONGEST_WAIT_S = 5.0
_LATER = frozenset({429, 502, 503, 504})
_WAIT = tenacity.wait_random_exponential(multiplier=0.1, max=2.0)


class Wire:
    """One server and one token. Threads may share it; close it when done."""

    def __init__(self, url: str, token: str | None, *, ca_file: Path | None = None) -> None:
        """Raises OSError for a ``ca_file`` that cannot be read."""
        self.url = url.rstrip("/")
        headers = {"User-Agent": "hybrid-client"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        verify: ssl.SSLContext | bool = True
        if ca_file is not None:
            verify = ssl.create_default_context(cafile=str(ca_file))
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            verify=verify,
            # a proxy of the environment has no business on the loopback
            trust_env=not _is_local(self.url),
        )

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    def ask(
        self, method: str, path: str, *, again: bool | None = None, **arguments: Any
    ) -> httpx.Response:
        """One request, whole. ``again``: repeating it is safe (default: for GET and HEAD).

        Raises Problem when the server refuses, Unreachable when nobody answers.
        """
        repeat = method in ("GET", "HEAD") if again is None else again

        def once() -> httpx.Response:
            try:
                answer = self._http.request(method, path, **arguments)
            except (httpx.HTTPError, httpx.InvalidURL) as problem:
                raise self.unreachable(problem) from problem
            if not answer.is_success:
                raise problem_of(answer)
            return answer

        return _retrying()(once) if repeat else once()

    @contextmanager
    def stream(self, method: str, path: str, **arguments: Any) -> Iterator[httpx.Response]:
        """One answer, read as it comes. Raises as :meth:`ask`, also while it is read; never
        repeats by itself."""
        try:
            with self._http.stream(method, path, **arguments) as answer:
                if not answer.is_success:
                    answer.read()
                    raise problem_of(answer)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise self.unreachable(problem) from problem

    def unreachable(self, problem: Exception) -> Unreachable:
        """What httpx raised, in our words."""
        if isinstance(problem, httpx.ConnectTimeout):
            return Unreachable(self.url, f"no connection within {CONNECT_S:g} s")
        if isinstance(problem, httpx.TimeoutException):
            return Unreachable(self.url, "it does not answer in time")
        why = str(problem) or type(problem).__name__
        return Unreachable(self.url, why.partition("] ")[2] or why)


def passes(problem: BaseException) -> bool:
    """Whether asking again may help."""
    if isinstance(problem, Problem):
        return problem.status in _LATER
    return isinstance(problem, Unreachable)


def _retrying() -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        stop=tenacity.stop_after_attempt(TRIES) | tenacity.stop_after_delay(DEADLINE_S),
        wait=_wait_s,
        reraise=True,
    )


def _wait_s(state: tenacity.RetryCallState) -> float:
    error = None if state.outcome is None else state.outcome.exception()
    if isinstance(error, Problem) and error.retry_after_s is not None:
        return min(error.retry_after_s, LONGEST_WAIT_S)
    return _WAIT(state)


def problem_of(answer: httpx.Response) -> Problem:
    """A refusal as an exception, also one that is not ours (a proxy's, say)."""
    try:
        said = answer.json()
        faults = [
            Fault(str(each["path"]), str(each["message"]), str(each.get("hint", "")))
            for each in said.get("errors", ())
        ]
        code, detail = str(said["code"]), str(said["detail"])
        request_id = str(said.get("request_id", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        if answer.is_redirect:
            where = answer.headers.get("location", "elsewhere")
            return Problem(answer.status_code, "redirected", f"the server is at {where}")
        words = f"{answer.status_code} {answer.reason_phrase} without a reason"
        return Problem(answer.status_code, "no_reason_given", words.replace("  ", " "))
    return Problem(
        answer.status_code,
        code,
        detail,
        errors=faults,
        request_id=request_id,
        retry_after_s=_seconds(answer.headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
