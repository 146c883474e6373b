"""Claims for those who may see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid.domain.claim import Claim, ClaimState
from hybrid.domain.ids import ClaimId
from hybrid.domain.ledger_entry import LedgerEntry
from hybrid.ports.store import Store
from hybrid.services.access import Principal
from hybrid.services.errors import NotFound


@dataclass(frozen=True, slots=True)
class Claims:
    """Reads claims."""

    store: Store

    def listing(
        self, asker: Principal, *, states: Sequence[ClaimState] = (), limit: int = 200
    ) -> tuple[Claim, ...]:
        """Claims opened for the asker's teams, newest first, of the last thousand."""
        found = self.store.claims(states=states, limit=limit if asker.teams is None else 1000)
        return tuple(claim for claim in found if asker.sees(claim.team))[:limit]

    def get(self, asker: Principal, claim_id: ClaimId) -> Claim:
        """One claim; NotFound also for one of a team that is not the asker's."""
        claim = self.store.claim(claim_id)
        if claim is None or not asker.sees(claim.team):
            raise NotFound("no_such_claim", f"there is no claim {claim_id}")
        return claim

    def entries(self, asker: Principal, claim_id: ClaimId) -> tuple[LedgerEntry, ...]:
        """What the ledger says of a claim, in order; NotFound as for :meth:`get`."""
        self.get(asker, claim_id)
        return self.store.entries(claim_id=claim_id)
