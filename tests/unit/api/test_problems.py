"""Errors: problem+json with a stable code, the place, and what to write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hybrid.bootstrap import App
from hybrid.ports.access import Role
from hybrid.store import StoreUnavailable
from tests.doubles.asgi_client import AsgiClient
from tests.unit.api.conftest import ClientOf


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The problem of a response, which must be one."""
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), response.text
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:hybrid:problem:{code}"
    assert body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    return body


def test_json_that_is_none_is_400_and_says_where(admin: AsgiClient) -> None:
    headers = {"Content-Type": "application/json"}
    response = admin.post("/v1/jobs", content=b'{"command": [,]}', headers=headers)
    body = problem(response, 400, "malformed_json")
    assert body["detail"] == "the body is not JSON: Expecting value at character 13"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"1" * 10_000])
def test_bytes_that_are_no_text_too_deep_or_too_long_a_number_are_400(
    admin: AsgiClient, content: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    response = admin.post("/v1/jobs", content=content, headers=headers)
    assert response.status_code in (400, 422)
    assert response.json()["code"] in ("malformed_json", "invalid_request")


def test_a_body_that_does_not_claim_to_be_json_is_415(admin: AsgiClient) -> None:
    response = admin.post(
        "/v1/jobs",
        content=b'{"command": ["true"]}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    body = problem(response, 415, "not_json")
    assert body["detail"] == "the body is taken for JSON only with Content-Type: application/json"


def test_an_unknown_field_is_422_names_it_and_the_nearest(admin: AsgiClient) -> None:
    response = admin.post(
        "/v1/jobs", json={"command": ["x"], "resources": {"gpsu": 2, "gpu": {"model": ["h100"]}}}
    )
    body = problem(response, 422, "invalid_request")
    assert body["errors"] == [
        {
            "path": "resources.gpu.model",
            "message": "unknown field",
            "hint": "did you mean models?",
        },
        {
            "path": "resources.gpsu",
            "message": "unknown field",
            "hint": "did you mean gpu or gpus or cpus?",
        },
    ]
    assert body["detail"] == "resources.gpu.model: unknown field (and 1 more)"


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({}, "command", "is missing"),
        ({"command": []}, "command", "tuple should have at least 1 item"),
        (
            {"command": "python train.py"},
            "command",
            "command is a list, not text: write ['python', 'train.py'], or [",
        ),
        ({"command": ["x"], "resources": {"gpus": -1}}, "resources.gpus", "input should be"),
        ({"command": ["x"], "resources": {"nodes": 0}}, "resources.nodes", "input should be"),
        ({"command": ["x"], "env": {"A-B": "1"}}, "env", "'A-B' is not a name"),
        ({"command": ["x"], "deadline": "2030-01-01T00:00:00"}, "deadline", "input should have"),
        ({"command": ["x"], "walltime": "soon"}, "walltime", "'soon' is not a duration"),
        ({"command": ["x"], "outputs": ["../x"]}, "outputs", "output '../x' leaves"),
        ({"command": ["x\0y"]}, "command.0", "holds a NUL character"),
        ({"command": ["x"], "secrets": {"K": {}}}, "secrets.K", "a secret names either"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said_at_its_place(
    admin: AsgiClient, spec: dict[str, Any], path: str, message: str
) -> None:
    body = problem(admin.post("/v1/jobs", json=spec), 422, "invalid_request")
    assert body["errors"][0]["path"] == path
    assert body["errors"][0]["message"].startswith(message)


def test_the_place_in_a_pool_document_has_no_tag_of_its_kind(admin: AsgiClient) -> None:
    document = {"kind": "burst", "name": "x", "zones": [{"name": "a", "subnte": "s"}]}
    body = problem(admin.put("/v1/pools/x", json=document), 422, "invalid_request")
    by_path = {each["path"]: each for each in body["errors"]}
    assert by_path["zones.0.subnte"]["hint"] == "did you mean subnet?"
    assert by_path["provider"]["message"] == "is missing"


def test_a_body_of_five_megabytes_is_413_and_the_answer_arrives(admin: AsgiClient) -> None:
    spec = {"command": ["x"], "env": {"A": "x" * 5_000_000}}
    body = problem(admin.post("/v1/jobs", json=spec), 413, "body_too_large")
    assert body["detail"] == "a body has at most 1048576 bytes"


def test_a_body_just_within_the_limit_is_read(admin: AsgiClient) -> None:
    frame = len(json.dumps({"command": [""]}))
    content = json.dumps({"command": ["x" * (2**20 - frame)]}).encode()
    assert len(content) == 2**20
    headers = {"Content-Type": "application/json"}
    problem(admin.post("/v1/jobs", content=content, headers=headers), 422, "invalid_request")
    problem(admin.post("/v1/jobs", content=content + b" ", headers=headers), 413, "body_too_large")


def test_what_is_nowhere_is_404_and_what_cannot_be_done_there_405(admin: AsgiClient) -> None:
    problem(admin.get("/v1/nothing"), 404, "no_such_path")
    response = admin.patch("/v1/pools/x")
    problem(response, 405, "method_not_allowed")
    assert "PUT" in response.headers["allow"] or "GET" in response.headers["allow"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "state=lost", "cursor=%00"])
def test_a_query_out_of_bounds_is_422(admin: AsgiClient, query: str) -> None:
    response = admin.get(f"/v1/jobs?{query}")
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"].startswith(f"query.{query.split('=')[0]}")


def test_what_nobody_caught_is_a_500_that_tells_nothing(
    product: App, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(Role.VIEWER)

    def broken() -> object:
        raise RuntimeError("the secret is hush")

    monkeypatch.setattr(type(product.nodes), "listing", lambda _self: broken())
    response = client.get("/v1/nodes")
    body = problem(response, 500, "internal_error")
    assert "hush" not in response.text
    assert body["detail"].endswith("the server's log has it under request_id")
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_store_that_cannot_be_reached_is_503_with_a_time_to_wait(
    product: App, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(Role.VIEWER)

    def away(*_: object, **__: object) -> object:
        raise StoreUnavailable("the disk is full at /secret/place")

    monkeypatch.setattr(type(product.store), "policy", away)
    response = client.get("/v1/policy")
    problem(response, 503, "store_unavailable")
    assert response.headers["retry-after"] == "2"
    assert "secret" not in response.text
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["store"]) == (503, "cannot be reached")


def test_every_answer_has_its_headers_and_no_other_origin_may_read_it(admin: AsgiClient) -> None:
    response = admin.get("/v1/jobs", headers={"Origin": "http://evil.test"})
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in response.headers
    assert "strict-transport-security" not in response.headers


def test_a_request_keeps_the_name_it_brings_if_it_is_one(admin: AsgiClient) -> None:
    named = admin.get("/healthz", headers={"X-Request-Id": "abc-123"})
    assert named.headers["x-request-id"] == "abc-123"
    forged = admin.get("/healthz", headers={"X-Request-Id": 'x" level=error'})
    assert forged.headers["x-request-id"] != 'x" level=error'
    assert len(forged.headers["x-request-id"]) == 16


def test_over_tls_browsers_are_told_to_stay_there(product: App) -> None:
    from api.app import create_app

    response = AsgiClient(create_app(product), base_url="https://testserver").get("/healthz")
    assert response.headers["strict-transport-security"] == "max-age=31536000"
