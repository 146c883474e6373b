"""The ledger: verified against itself, and against what clouds bill."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Admin, Operator, Product
from api.problems import documented
from api.schemas.ledger import BillComparison, BillText, LedgerCheck

router = APIRouter(tags=["money"])


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
