"""Who may do what, route by route."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog

from api.app import create_app
from hybrid.bootstrap import App
from hybrid.domain.ids import PoolName
from hybrid.ports.access import Role
from hybrid.ports.engine import NodeReport
from hybrid.services.access import sha256_hex
from tests.doubles.asgi_client import AsgiClient
from tests.doubles.build import NOW, a_job
from tests.unit.api.conftest import ClientOf

DIGEST = "sha256:" + "0" * 64
TOKEN = {"role": "viewer", "user": "vera"}
SPEC = {"command": ["true"]}
BILL = {"provider": "aws", "horizon_at": "2026-12-01T00:00:00Z", "lines": []}

ROUTES = [
    ("GET", "/v1/jobs", None, Role.VIEWER),
    ("POST", "/v1/jobs", SPEC, Role.SUBMITTER),
    ("GET", "/v1/jobs/j1", None, Role.VIEWER),
    ("POST", "/v1/jobs/j1:cancel", None, Role.SUBMITTER),
    ("GET", "/v1/jobs/j1/logs", None, Role.VIEWER),
    ("GET", "/v1/jobs/j1/timeline", None, Role.VIEWER),
    ("GET", "/v1/jobs/j1/explain", None, Role.VIEWER),
    ("POST", "/v1/quote", SPEC, Role.SUBMITTER),
    ("GET", "/v1/plan", None, Role.VIEWER),
    ("GET", "/v1/nodes", None, Role.VIEWER),
    ("GET", "/v1/nodes/n1", None, Role.VIEWER),
    ("POST", "/v1/nodes/n1:cordon", None, Role.OPERATOR),
    ("POST", "/v1/nodes/n1:uncordon", None, Role.OPERATOR),
    ("GET", "/v1/drains/n1", None, Role.VIEWER),
    ("PUT", "/v1/drains/n1", {}, Role.OPERATOR),
    ("DELETE", "/v1/drains/n1", None, Role.OPERATOR),
    ("GET", "/v1/pools", None, Role.VIEWER),
    ("GET", "/v1/pools/local", None, Role.VIEWER),
    ("PUT", "/v1/pools/x", {"kind": "local", "name": "x"}, Role.OPERATOR),
    ("DELETE", "/v1/pools/x", None, Role.OPERATOR),
    ("GET", "/v1/offers", None, Role.VIEWER),
    ("GET", "/v1/claims", None, Role.VIEWER),
    ("GET", "/v1/claims/c1", None, Role.VIEWER),
    ("GET", "/v1/budgets", None, Role.VIEWER),
    ("GET", "/v1/budgets/local", None, Role.VIEWER),
    ("GET", "/v1/usage", None, Role.VIEWER),
    ("GET", "/v1/policy", None, Role.VIEWER),
    ("PUT", "/v1/policy", {"document": ""}, Role.ADMIN),
    ("POST", "/v1/policy:check", {"document": ""}, Role.VIEWER),
    ("POST", "/v1/policy:diff", {"document": ""}, Role.OPERATOR),
    ("GET", "/v1/policy/versions", None, Role.VIEWER),
    ("GET", "/v1/policy/versions/0", None, Role.VIEWER),
    ("POST", "/v1/policy:rollback", {"version": 0}, Role.ADMIN),
    ("GET", "/v1/ledger/c1", None, Role.VIEWER),
    ("POST", "/v1/ledger:verify", None, Role.OPERATOR),
    ("POST", "/v1/ledger:compare-bill", BILL, Role.OPERATOR),
    ("POST", "/v1/ledger:import-bill", BILL, Role.ADMIN),
    ("GET", "/v1/tokens", None, Role.ADMIN),
    ("POST", "/v1/tokens", TOKEN, Role.ADMIN),
    ("POST", "/v1/tokens", {"role": "node", "pool": "local"}, Role.OPERATOR),
    ("DELETE", "/v1/tokens/t-none", None, Role.ADMIN),
    ("GET", "/v1/whoami", None, Role.VIEWER),
    ("GET", "/v1/events?follow=false", None, Role.VIEWER),
    ("GET", "/metrics", None, Role.VIEWER),
]
PEOPLE = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


@pytest.fixture
def clients(client_of: ClientOf) -> dict[Role | None, AsgiClient]:
    return {role: client_of(role) for role in (None, *PEOPLE)}


def test_each_route_takes_its_least_role_and_no_less(
    clients: dict[Role | None, AsgiClient],
) -> None:
    for method, path, body, least in ROUTES:
        anonymous = clients[None].request(method, path, json=body)
        assert anonymous.status_code == 401, (method, path)
        assert anonymous.headers["www-authenticate"].startswith("Bearer")
        for role in PEOPLE:
            status = clients[role].request(method, path, json=body).status_code
            if PEOPLE.index(role) < PEOPLE.index(least):
                assert status == 403, (method, path, role, status)
            else:
                assert status not in (401, 403), (method, path, role, status)
                assert status < 500, (method, path, role, status)


def test_every_documented_operation_is_in_the_table_of_roles_or_open(product: App) -> None:
    table = {(method, path.split("?")[0]) for method, path, _, _ in ROUTES}
    open_to_all = {("GET", "/healthz"), ("GET", "/readyz")}
    elsewhere = ("/v1/artifacts/", "/v1/nodes:join", "/work", ":heartbeat", ":leave", "/runs/")
    missing = []
    for path, operations in create_app(product).openapi()["paths"].items():
        if any(part in path for part in elsewhere):
            continue
        concrete = (
            path.replace("{job_id}", "j1")
            .replace("{node_id}", "n1")
            .replace("{claim_id}", "c1")
            .replace("{token_id}", "t-none")
            .replace("{version}", "0")
            .replace("{target}", "n1")
        )
        for method in operations:
            names = ("x", "local") if "{name}" in concrete else ("",)
            hits = {(method.upper(), concrete.replace("{name}", name)) for name in names}
            if not hits & (table | open_to_all):
                missing.append((method, path))
    assert missing == []


def test_health_is_open_and_says_nothing_of_the_place(client_of: ClientOf) -> None:
    nobody = client_of(None)
    assert nobody.get("/healthz").json() == {"status": "ok"}
    ready = nobody.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        503,
        {"ready": False, "store": "ok", "loop": "dead"},
    )


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer hyb_x", "bearer x y", "Bearer \xff"]
)
def test_a_header_that_is_no_token_is_401(client_of: ClientOf, header: str) -> None:
    nobody = client_of(None)
    response = nobody.get("/v1/jobs", headers={"Authorization": header.encode("latin-1")})
    assert response.status_code == 401
    assert response.json()["code"] in ("no_token", "unknown_token")


def test_a_node_speaks_only_the_node_protocol(product: App, client_of: ClientOf) -> None:
    join, _ = product.access.create_join(pool=PoolName("local"), valid_s=60, by="test")
    report = NodeReport(
        id="n1",
        pool=PoolName("local"),
        hostname="h",
        heard_at=NOW,
        run_lease_s=600,  # type: ignore[arg-type]
    )
    assert product.store.join(
        report, sha256_hex("node-token"), join_sha256=join.sha256, at=product.clock.now()
    )
    node = client_of(None)
    node.headers["Authorization"] = "Bearer node-token"
    assert node.get("/v1/nodes/n1/work").status_code == 200
    assert node.get("/v1/nodes/n2/work").status_code == 403
    for path in ("/v1/jobs", "/v1/nodes", "/v1/whoami", "/v1/policy", "/metrics"):
        assert node.get(path).status_code == 403, path
    assert node.post("/v1/jobs", json=SPEC).status_code == 403
    assert node.get(f"/v1/artifacts/{DIGEST}").status_code == 404
    assert node.put(f"/v1/artifacts/{DIGEST}", content=b"x").json()["code"] == "nothing_runs_here"


def test_a_job_of_another_team_is_404_and_not_403(
    client_of: ClientOf, put: object, admin: AsgiClient
) -> None:
    put(a_job("j-blue", team="navy"))  # type: ignore[operator]
    red = client_of(Role.SUBMITTER, "lone")
    for method, path in (
        ("GET", "/v1/jobs/j-blue"),
        ("POST", "/v1/jobs/j-blue:cancel"),
        ("GET", "/v1/jobs/j-blue/logs"),
        ("GET", "/v1/jobs/j-blue/logs?follow=true"),
        ("GET", "/v1/jobs/j-blue/timeline"),
        ("GET", "/v1/jobs/j-blue/explain"),
    ):
        response = red.request(method, path)
        assert (response.status_code, response.json()["code"]) == (404, "no_such_job"), path
    assert red.get("/v1/jobs").json()["jobs"] == []
    assert red.get("/v1/jobs?team=navy").json()["jobs"] == []
    assert admin.get("/v1/jobs/j-blue").status_code == 200


def test_a_submitter_submits_for_its_teams_only(client_of: ClientOf) -> None:
    red = client_of(Role.SUBMITTER, "red")
    assert red.post("/v1/jobs", json=SPEC).json()["team"] == "red"
    refused = red.post("/v1/jobs", json={**SPEC, "team": "blue"})
    assert (refused.status_code, refused.json()["code"]) == (403, "team_not_yours")
    both = client_of(Role.SUBMITTER, "red", "blue")
    assert both.post("/v1/jobs", json=SPEC).json()["code"] == "name_a_team"
    assert both.post("/v1/jobs", json={**SPEC, "team": "blue"}).json()["team"] == "blue"


def test_a_new_tokens_secret_is_shown_once_and_works_until_it_is_revoked(
    admin: AsgiClient, client_of: ClientOf
) -> None:
    body = {"role": "submitter", "user": "bob", "teams": ["blue"], "valid_for": "1h"}
    made = admin.post("/v1/tokens", json=body)
    assert made.status_code == 201
    secret, token = made.json()["secret"], made.json()["token"]
    assert secret.startswith("hyb_")
    assert secret not in admin.get("/v1/tokens").text
    bob = client_of(None)
    bob.headers["Authorization"] = f"Bearer {secret}"
    assert bob.get("/v1/whoami").json() == {"name": "bob", "role": "submitter", "teams": ["blue"]}
    assert admin.delete(f"/v1/tokens/{token['id']}").status_code == 204
    assert bob.get("/v1/whoami").json()["code"] == "token_revoked"


def test_tokens_that_make_no_sense_are_422(admin: AsgiClient) -> None:
    for body, code in (
        ({"role": "submitter", "user": "bob"}, "name_a_team"),
        ({"role": "node"}, "invalid_request"),
        ({"role": "viewer"}, "invalid_request"),
        ({"role": "viewer", "user": "a b"}, "invalid_request"),
        ({"role": "viewer", "user": "a", "pool": "local"}, "invalid_request"),
    ):
        response = admin.post("/v1/tokens", json=body)
        assert (response.status_code, response.json()["code"]) == (422, code), body
    assert admin.post("/v1/tokens", json={"role": "node", "pool": "none"}).status_code == 404


def test_neither_tokens_nor_queries_reach_the_log(client_of: ClientOf) -> None:
    client = client_of(Role.VIEWER)
    secret = client.headers["Authorization"].removeprefix("Bearer ")
    with structlog.testing.capture_logs() as lines:
        client.get("/v1/jobs?name=hush")
        client.get("/v1/jobs", headers={"Authorization": "Bearer hyb_wrong-but-secret"})
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["path"], line["status"], line["who"]) for line in requests] == [
        ("/v1/jobs", 200, "ann"),
        ("/v1/jobs", 401, ""),
    ]
    assert not any(word in str(lines) for word in (secret, "hush", "hyb_wrong"))


def test_metrics_can_be_opened(product: App, client_of: ClientOf) -> None:
    assert client_of(None).get("/metrics").status_code == 401
    opened = product.settings.model_copy(update={"open_metrics": True})
    open_product = replace(product, settings=opened)
    response = AsgiClient(create_app(open_product)).get("/metrics")
    assert response.status_code == 200
    assert 'hybrid_jobs{state="running"} 0.0' in response.text
