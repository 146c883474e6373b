"""The application does what its OpenAPI document says, for inputs nobody would write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from api.app import create_app
from hybrid.bootstrap import App, build
from hybrid.config import Settings
from tests.integration.api.conftest import until

pytestmark = pytest.mark.integration

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
EXAMPLES = 8


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    app = build(Settings(state_dir=tmp_path_factory.mktemp("state")), url="http://127.0.0.1:8440")
    app.start()
    until(lambda: app.loop.status().last_tick_at)
    yield app
    app.stop()


@pytest.fixture(scope="module")
def api_schema(product: App) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(product))


def _tried(operation: Any, product: App, mode: GenerationMode) -> None:
    """Send what the document allows, or what it does not, and check each answer."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def keeps_its_word(case: Case) -> None:
        if case.path in ("/v1/events", "/v1/jobs/{job_id}/logs"):
            case.query = {**(case.query or {}), "follow": "false"}  # a stream has no end to check
        if case.path.endswith("/work"):
            case.query = {**(case.query or {}), "wait_s": 0}
        headers = {"Authorization": f"Bearer {product.admin_token}"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    keeps_its_word()


def test_every_operation_keeps_its_word(api_schema: Any, product: App) -> None:
    tried, broken = [], []
    for found in api_schema.get_all_operations():
        operation = found.ok()
        tried.append(operation.label)
        try:
            _tried(operation, product, GenerationMode.POSITIVE)
            with suppress(Unsatisfiable):  # what takes no input cannot be given a wrong one
                _tried(operation, product, GenerationMode.NEGATIVE)
        except FailureGroup as failures:
            broken.append(f"{operation.label}: {failures}")
    assert broken == []
    assert len(tried) > 35
