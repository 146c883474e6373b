"""What a use case says when it does not do what was asked.

Every error has a stable ``code`` for programs, a ``detail`` sentence for people, and, where it is
about parts of what was sent, one :class:`Fault` per part. The API maps the classes to HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at ``path`` of what was sent, and what to write instead where that is known."""

    path: str
    message: str
    hint: str = ""


class ServiceError(Exception):
    """Base of what services raise."""

    def __init__(self, code: str, detail: str, *, errors: Sequence[Fault] = ()):
        self.code, self.detail, self.errors = code, detail, tuple(errors)
        super().__init__(detail)


class NotAuthenticated(ServiceError):
    """Nobody knows who asks."""


class NotAllowed(ServiceError):
    """Who asks may not do that."""


class NotFound(ServiceError):
    """There is no such thing, or who asks may not know of it."""


class Conflict(ServiceError):
    """It contradicts what is there."""


class Refused(ServiceError):
    """Understood, and it cannot be done as it stands."""


class Stale(ServiceError):
    """Written over another version than the one that was read."""


class TooLarge(ServiceError):
    """More than is taken."""


class NotNow(ServiceError):
    """It may work later: ``retry_after_s`` is a fair time to wait."""

    def __init__(self, code: str, detail: str, *, retry_after_s: float = 2.0):
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class StartupError(Exception):
    """The server cannot start; the text is one line that says why and what to do."""
