"""A breaker keeps us from asking again for what was just refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from hybrid.domain.offer import Offer

FIRST_WAIT_S = 15.0
LONGEST_WAIT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """One scope that refused: nothing is asked of it before ``open_until``.

    After that it is half open: one probe goes through. A refused probe doubles the wait, up to
    :data:`LONGEST_WAIT_S`; a success removes the breaker.
    """

    scope: str
    cause: str
    trips: int
    opened_at: float
    open_until: float
    version: int = 0

    @classmethod
    def opened(
        cls, scope: str, cause: str, *, at: float, retry_after_s: float | None = None
    ) -> Self:
        """The breaker after the first refusal."""
        wait = FIRST_WAIT_S if retry_after_s is None else retry_after_s
        return cls(scope=scope, cause=cause, trips=1, opened_at=at, open_until=at + wait)

    def tripped(self, cause: str, *, at: float, retry_after_s: float | None = None) -> Self:
        """The breaker after another refusal. A refusal while it is open (an answer that was on
        its way) changes nothing, so that late answers do not prolong the wait."""
        if at < self.open_until:
            return self
        wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.trips, 20))
        return replace(
            self,
            cause=cause,
            trips=self.trips + 1,
            opened_at=at,
            open_until=at + max(wait, retry_after_s or 0.0),
        )

    @property
    def of_boots(self) -> bool:
        """Whether it is about machines that never join (:func:`boot_scopes`)."""
        return self.scope.startswith(f"{BOOTS}:")

    def is_open(self, now: float) -> bool:
        """Whether nothing may be asked of the scope at ``now``."""
        return now < self.open_until


BOOTS = "boot"


def boot_scopes(offer: Offer) -> tuple[str, str]:
    """What is to blame when a machine never joins: its pool's image and user data, or what they do
    on its type. Such a breaker is closed by a machine that joins, not by one that is had."""
    return (f"{BOOTS}:{offer.pool}", f"{BOOTS}:{offer.pool}/{offer.machine_type}")


def covers(scope: str, offer: Offer) -> bool:
    """Whether a breaker of that scope stands before an offer.

    Scopes are ``provider:P``, ``account:P``, ``zone:P/ZONE``, ``offer:ID``, ``boot:POOL``,
    ``boot:POOL/TYPE`` and ``quota:P/REGION/FAMILY/MARKET``, where the family is the provider's own
    name of the quota that a machine counts against (:attr:`Offer.quota_family`), and ``*`` stands
    for all.
    """
    kind, _, rest = scope.partition(":")
    if kind != "quota":
        return scope in (
            f"provider:{offer.provider}",
            f"account:{offer.provider}",
            f"zone:{offer.provider}/{offer.zone}",
            f"offer:{offer.id}",
            *boot_scopes(offer),
        )
    parts = rest.split("/")
    if len(parts) != 4:
        return False
    provider, region, family, market = parts
    return (
        provider == offer.provider
        and region in (offer.region, "*")
        and market in (str(offer.market), "*")
        and family in (offer.quota_family or offer.machine_type, "*")
    )
