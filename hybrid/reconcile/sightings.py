"""What passes see of the availability of spot offers.

Kept in a bundle of its own: several claims of one offer may tell of it in one pass, and what one of
them says must not depend on what becomes of the other.
"""

from __future__ import annotations

from hybrid.domain.claim import Claim
from hybrid.domain.job_spec import Market
from hybrid.reconcile.drafts import Drafts


def saw(drafts: Drafts, claim: Claim, at: float, *, up: bool) -> None:
    """A machine of the claim's offer was had, or was refused or taken."""
    if claim.offer.market is not Market.SPOT:
        return
    before = drafts.sightings(claim.offer.id)
    after = before.saw(up, at)
    if after is not before:
        drafts.draft("sightings").put(after)


def ended(drafts: Drafts, claim: Claim, at: float, *, interrupted: bool) -> None:
    """The claim's machine has ended: taken, or by our wish, and then nobody looks any more unless
    there is another of its offer."""
    if interrupted:
        saw(drafts, claim, at, up=False)
        return
    others = (
        other.offer.id == claim.offer.id
        and other.id != claim.id
        and other.machine_id is not None
        and not other.state.over
        for other in drafts.claims()
    )
    if claim.offer.market is not Market.SPOT or any(others):
        return
    before = drafts.sightings(claim.offer.id)
    after = before.out_of_sight(at)
    if after is not before:
        drafts.draft("sightings").put(after)
