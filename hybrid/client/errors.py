"""What can go wrong when a server is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at ``path`` of what was sent; ``hint`` says what to write instead, if known."""

    path: str
    message: str
    hint: str = ""


class ClientError(Exception):
    """Base of what this package raises."""


class Unreachable(ClientError):
    """No answer, or none that a hybrid server gives. Whether it was done is not known."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"no server answers at {url}: {why}")


class Problem(ClientError):
    """The server said no: its problem+json, as it came. Programs go by ``code``."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Fault] = (),
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.code, self.detail = status, code, detail
        self.errors = tuple(errors)
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        super().__init__(f"{code}: {detail}")

    @property
    def hint(self) -> str:
        """What to write instead: the first that is known."""
        return next((each.hint for each in self.errors if each.hint), "")


class WrongBytes(ClientError):
    """What was downloaded is not what its digest says; nothing was kept."""
