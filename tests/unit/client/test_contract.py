"""What the client reads is what the API says it answers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from hybrid.bootstrap import build
from hybrid.client import answers
from hybrid.client.answers import Answer
from hybrid.config import Settings

SCHEMAS = {
    "Reason": "ShownReason", "Step": "ShownStep", "Progress": "ShownProgress",
    "Checkpoint": "ShownCheckpoint", "Slot": "ShownSlot", "Run": "ShownRun",
    "Decision": "ShownDecision", "Job": "ShownJob", "Event": "ShownEvent", "Term": "ShownTerm",
    "Alternative": "ShownAlternative", "Gpu": "ShownGpu", "Node": "ShownNode",
    "Pool": "ShownPool", "Offer": "ShownOffer", "Ignored": "IgnoredOffer", "Claim": "ShownClaim",
    "Budget": "ShownBudget", "Policy": "ShownPolicy", "Change": "ShownDifference",
    "Token": "ShownToken", "Mismatch": "ShownMismatch", "Spender": "ShownSpender",
    "Drain": "ShownDrain", "Hold": "ShownHold", "ClaimBill": "ShownClaimBill",
    "Entry": "ShownEntry", "Breaker": "ShownBreaker",
    "Doubt": "ShownDoubt", "Outlook": "ShownOutlook",
    "DecisionChange": "ShownDecisionChange", "PlanSums": "ShownPlanSums",
    "MigRoom": "ShownMigRoom", "PartedGpu": "ShownPartedGpu",
}  # fmt: skip
"""Names that differ."""

MODELS = [
    model
    for _, model in inspect.getmembers(answers, inspect.isclass)
    if issubclass(model, Answer) and model is not Answer
]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("state")
    product = build(Settings(state_dir=folder), url="http://127.0.0.1:1")
    try:
        found: dict[str, Any] = create_app(product).openapi()["components"]["schemas"]
        return found
    finally:
        product.stop()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_that_is_read_is_answered(model: type[Answer], schemas: dict[str, Any]) -> None:
    schema = schemas[SCHEMAS.get(model.__name__, model.__name__)]
    wanted = {name for name, field in model.model_fields.items() if field.is_required()}
    assert wanted <= set(schema["required"])
    assert set(model.model_fields) <= set(schema["properties"])
