"""The ledger: verified against itself, and against what clouds bill."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Admin, IdPath, Operator, Product, Viewer
from api.problems import documented
from api.schemas.ledger import BillComparison, BillText, ClaimLedger, LedgerCheck
from hybrid.domain.ids import ClaimId

router = APIRouter(tags=["money"])


@router.get("/ledger/{claim_id}", responses=documented(404))
def get_claim_ledger(app: Product, who: Viewer, claim_id: IdPath) -> ClaimLedger:
    """What was held, charged and corrected for one claim, line by line."""
    id_ = ClaimId(claim_id)
    return ClaimLedger.of(id_, app.claims.entries(who, id_))


@router.post("/ledger:verify")
def verify_ledger(app: Product, who: Operator) -> LedgerCheck:  # noqa: ARG001
    """Replay the whole ledger and compare every balance with what is kept. Nothing is repaired."""
    return LedgerCheck.of(app.spending.verified())


@router.post("/ledger:compare-bill", responses=documented(413, 415))
def compare_bill(body: BillText, app: Product, who: Operator) -> BillComparison:  # noqa: ARG001
    """What a cloud's bill says of each claim against what it was charged. Nothing is kept."""
    return BillComparison.of(app.bills.compare(body.as_bill(), provider=body.provider))


@router.post("/ledger:import-bill", responses=documented(413, 415, 503))
def import_bill(body: BillText, app: Product, who: Admin) -> BillComparison:
    """The same, and each difference is settled in the ledger. The same bill again adds nothing."""
    return BillComparison.of(app.bills.settle(body.as_bill(), provider=body.provider, by=who.name))
