"""Who may join as a node: the gate that join tokens open."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, PoolName
from hybrid.ports.access import TokenStore
from hybrid.ports.clock import Clock
from hybrid.ports.join import JoinDecision, JoinRefusal
from hybrid.ports.store import Store
from hybrid.services.access import sha256_hex

_EXPECTED = frozenset(
    {
        ClaimState.REQUESTED,
        ClaimState.BOOTING,
        ClaimState.READY,
        ClaimState.CORDONED,
        ClaimState.DRAINING,
    }
)
"""Past booting too: the machine may ask again because the first answer was lost. That nobody else
gets in by the same token is the mailbox's to see to."""


def claim_join_token(secret: bytes, claim_id: ClaimId) -> str:
    """The join token of a claim's machine. It is derived, so that it need not be stored, and so
    that a repeated launch request is the same to the byte."""
    return hmac.new(secret, claim_id.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Gate:
    """A JoinGate over the store and the installation's secret."""

    store: Store
    tokens: TokenStore
    secret: bytes
    clock: Clock

    def check(self, token: str, pool: PoolName, claim_id: ClaimId | None) -> JoinDecision:
        """Whether the token is good for joining ``pool`` (as the machine of ``claim_id``)."""
        if claim_id is not None:
            return self._claimed(token, pool, claim_id)
        return self._owned(token, pool)

    def _claimed(self, token: str, pool: PoolName, claim_id: ClaimId) -> JoinDecision:
        expected = claim_join_token(self.secret, claim_id)
        if not hmac.compare_digest(expected.encode(), token.encode()):
            return JoinDecision(pool=pool, refusal=JoinRefusal.UNKNOWN_TOKEN)
        claim = self.store.claim(claim_id)
        if claim is None or claim.state not in _EXPECTED:
            return JoinDecision(pool=pool, refusal=JoinRefusal.CLAIM_NOT_WAITING)
        return JoinDecision(pool=claim.pool, claim_id=claim_id)

    def _owned(self, token: str, pool: PoolName) -> JoinDecision:
        digest = sha256_hex(token)
        found = self.tokens.find_join_token(digest)
        if found is None or not hmac.compare_digest(found.sha256, digest) or found.revoked:
            return JoinDecision(pool=pool, refusal=JoinRefusal.UNKNOWN_TOKEN)
        if found.pool != pool:
            return JoinDecision(pool=found.pool, refusal=JoinRefusal.WRONG_POOL)
        now = self.clock.now()
        if found.used_by is None and not found.valid(now):
            return JoinDecision(pool=found.pool, refusal=JoinRefusal.EXPIRED)
        return JoinDecision(pool=found.pool)
