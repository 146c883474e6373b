"""What is left of the providers' quotas while a plan is made.

A quota is shared by every offer that counts against it, in all zones; where a provider only tells
how many machines of one offer it would still give, each offer counts for itself.
"""

from __future__ import annotations

from hybrid.domain.claim import Claim
from hybrid.domain.ids import OfferId
from hybrid.domain.offer import Offer, Quota
from hybrid.domain.reasons import QuotaReached
from hybrid.domain.snapshot import Snapshot

_Key = tuple[str, str, str]


class QuotaBook:
    """Counts what the plan asks for on top of what was listed and asked for since."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._machines: dict[OfferId, int] = {}
        self._units: dict[_Key, int] = {}
        listed: dict[OfferId, Offer] = {}
        for offer in snapshot.offers:
            listed[offer.id] = offer
            if offer.quota is not None:
                key = _key(offer, offer.quota)
                free = max(0, offer.quota.limit - offer.quota.used)
                self._units[key] = min(free, self._units.get(key, free))
            elif offer.quota_left is not None:
                self._machines[offer.id] = offer.quota_left
        for claim in snapshot.claims.values():
            self._deduct(claim, listed.get(claim.offer.id, claim.offer))

    def left(self, offer: Offer) -> int | None:
        """Machines of an offer that may still be asked for; None where nothing is known."""
        if offer.quota is not None:
            return max(0, self._units[_key(offer, offer.quota)]) // offer.quota.per_machine
        return self._machines.get(offer.id)

    def take(self, offer: Offer, machines: int) -> None:
        """Count machines that the plan asks for; a negative number gives them back."""
        if offer.quota is not None:
            self._units[_key(offer, offer.quota)] -= machines * offer.quota.per_machine
        elif offer.id in self._machines:
            self._machines[offer.id] -= machines

    def refusal(self, offer: Offer) -> QuotaReached:
        """Why no more machines of an offer may be asked for."""
        if offer.quota is None:
            return QuotaReached(str(offer.id))
        used = offer.quota.limit - self._units[_key(offer, offer.quota)]
        return QuotaReached(str(offer.id), offer.quota.words(max(0, used)))

    def _deduct(self, claim: Claim, offer: Offer) -> None:
        """A machine that was asked for since its quota was read is not in it yet."""
        if claim.state.over:
            return
        read_at = offer.priced_at if offer.quota is None else offer.quota.at
        if claim.launched_at is not None and claim.launched_at <= read_at:
            return
        if offer.quota is not None and _key(offer, offer.quota) not in self._units:
            return  # nothing is offered under it now
        self.take(offer, 1)


def _key(offer: Offer, quota: Quota) -> _Key:
    return (offer.provider, quota.name, quota.unit)
