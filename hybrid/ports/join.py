"""The port that says who may join as a node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hybrid.domain.ids import ClaimId, PoolName


class JoinRefusal(StrEnum):
    """Why a join token opens nothing."""

    UNKNOWN_TOKEN = "unknown_token"
    WRONG_POOL = "wrong_pool"
    CLAIM_NOT_WAITING = "claim_not_waiting"
    """The claim it was made for is not (or no longer) waiting for its machine, or never was."""
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinDecision:
    """Whether a token lets a machine in, and as what.

    ``pool`` and ``claim_id`` are those the token was made for; they overrule what the machine
    says of itself.
    """

    pool: PoolName
    claim_id: ClaimId | None = None
    refusal: JoinRefusal | None = None


class JoinGate(Protocol):
    """Checks join tokens: for a claim, ``hmac_sha256(installation secret, claim id)``; for an
    owned machine, a random one that was created for its pool.

    That a token is used once is the mailbox's to see to: only there is it one transaction with
    the node's row.
    """

    def check(self, token: str, pool: PoolName, claim_id: ClaimId | None) -> JoinDecision:
        """Whether the token is good for joining ``pool`` (as the machine of ``claim_id``)."""
        ...
