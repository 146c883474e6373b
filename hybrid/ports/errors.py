"""Typed errors of ports. Each provider maps its own exact codes to these, once, in one file."""

from __future__ import annotations


class PortError(Exception):
    """Base of all errors a port raises."""


class ScopedRefusal(PortError):
    """A definite refusal: nothing was done. ``scope`` names what refused, as breakers do."""

    def __init__(self, scope: str, words: str, *, code: str = ""):
        self.scope, self.words, self.code = scope, words, code
        super().__init__(f"{words} ({scope})")


class CapacityUnavailable(ScopedRefusal):
    """There is no such machine to be had in the scope now."""


class QuotaExceeded(ScopedRefusal):
    """The account may not have more in the scope."""


class RateLimited(ScopedRefusal):
    """Too many calls; try again after ``retry_after_s``. Nothing was done."""

    def __init__(self, scope: str, words: str, *, retry_after_s: float = 5.0, code: str = ""):
        super().__init__(scope, words, code=code)
        self.retry_after_s = retry_after_s


class AuthFailed(ScopedRefusal):
    """The credentials do not allow it; the provider is out until they do."""


class InvalidRequest(ScopedRefusal):
    """The request can never succeed as it stands: fatal for its pool, shown to operators."""


class Gone(PortError):
    """What was named does not exist any more."""


class InUse(PortError):
    """What was to be removed is used by something: nothing was done."""


class OutcomeUnknown(PortError):
    """Nobody can say whether it happened. Neither success nor failure; the default for anything
    that no table maps."""
