"""What each resource answers, and what writing to it does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.app import create_app
from hybrid.bootstrap import App
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, JobId, PoolName, RunId
from hybrid.domain.job import Checkpoint, JobState
from hybrid.domain.ledger_entry import EntryKind, LedgerEntry
from hybrid.domain.plan import Alternative, CostTerm, Decision, Verdict
from hybrid.domain.reasons import NotWorthIt, WaitingForGpus
from hybrid.domain.run import Run
from hybrid.ports.access import Role
from hybrid.ports.observation import EngineFacts, Known, Observation, Unknown
from hybrid.ports.store import Bundle, Decide, Post
from tests.doubles.asgi_client import AsgiClient
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_claim,
    a_job,
    a_local_pool,
    a_node,
    a_run,
    a_slot,
    a_spec,
    an_offer,
    parted,
)
from tests.unit.api.conftest import ClientOf

Put = Callable[..., None]
SPEC = {"command": ["python", "train.py"], "team": "red", "expected_runtime": "10m"}


def _run_on(node: str, job: str, gpu: str = "", **fields: Any) -> Run:
    """A run of the job on one device of a node, in the pool that is called like the node."""
    slot = a_slot(node, gpu or f"{node}-g0")
    return a_run(job, pool=PoolName(node[:-1]), slots=(slot,), **fields)


# --- jobs ----------------------------------------------------------------------------------------


def test_a_job_is_submitted_shown_and_cancelled(admin: AsgiClient) -> None:
    made = admin.post("/v1/jobs", json=SPEC)
    job = made.json()
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["team"], job["user"], job["state"], job["cost_usd"]) == (
        "red",
        "root",
        "pending",
        "0.000000",
    )
    assert job["spec"]["expected_runtime"] == "10m"
    assert job["submitted_at"].endswith("Z")
    shown = admin.get(made.headers["location"])
    assert shown.json() == job
    cancelled = admin.post(f"{made.headers['location']}:cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    again = admin.post(f"{made.headers['location']}:cancel")
    assert again.json() == cancelled.json()
    what = [e["what"] for e in admin.get(f"/v1/jobs/{job['id']}/timeline").json()["events"]]
    assert what == ["submitted", "cancelled"]


def test_a_key_stands_for_one_job_and_for_its_body(admin: AsgiClient) -> None:
    headers = {"Idempotency-Key": "night-1"}
    first = admin.post("/v1/jobs", json=SPEC, headers=headers)
    reordered = dict(reversed(SPEC.items())) | {"expected_runtime": 600}
    again = admin.post("/v1/jobs", json=reordered, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = admin.post("/v1/jobs", json={**SPEC, "name": "x"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    blue = admin.post("/v1/jobs", json={**SPEC, "team": "blue"}, headers=headers)
    assert blue.status_code == 201
    assert blue.json()["id"] != first.json()["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\x7f"])
def test_a_key_is_printable_and_bounded(admin: AsgiClient, key: str) -> None:
    response = admin.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": key})
    assert (response.status_code, response.json()["errors"][0]["path"]) == (
        422,
        "header.Idempotency-Key",
    )


@pytest.mark.parametrize(
    ("change", "code", "path", "words"),
    [
        (
            {"resources": {"gpu": {"models": ["a10O"]}}},
            "unknown_gpu",
            "resources.gpu.models",
            "no GPU is called 'a10O'; nearest names: ",
        ),
        (
            {"deadline": "2020-01-01T00:00:00Z"},
            "deadline_in_the_past",
            "deadline",
            "the deadline passed ",
        ),
        ({"priority": "asap"}, "class_not_allowed", "priority", "priority 'asap' is not one of: "),
        (
            {"workdir": "sha256:" + "0" * 64},
            "no_such_workdir",
            "workdir",
            "team red has uploaded nothing with this digest",
        ),
    ],
)
def test_a_job_that_can_never_run_is_refused_at_once_with_its_reason(
    admin: AsgiClient, change: dict[str, Any], code: str, path: str, words: str
) -> None:
    for url in ("/v1/jobs", "/v1/quote"):
        response = admin.post(url, json={**SPEC, **change})
        body = response.json()
        assert (response.status_code, body["code"]) == (422, code)
        assert body["errors"][0]["path"] == path
        assert body["detail"].startswith(words)


def test_more_gpus_than_any_node_has_says_how_a_gang_could_do_it(
    product: App, admin: AsgiClient, put: Put
) -> None:
    put(a_node("local1", 4, pool="local"))
    product.loop.tick.observation = Observation(
        at=NOW, heard_since=NOW, engines={"agent": Known(EngineFacts((), ()), NOW)}
    )
    spec: dict[str, Any] = {**SPEC, "resources": {"gpus": 8}}
    response = admin.post("/v1/jobs", json=spec)
    assert (response.status_code, response.json()["code"]) == (422, "too_many_gpus_per_node")
    assert "a gang could do it: nodes: 2, gpus: 4" in response.json()["detail"]
    spec["resources"] = {"gpus": 1, "gpu": {"memory": "500GiB"}}
    response = admin.post("/v1/jobs", json=spec)
    assert (response.status_code, response.json()["code"]) == (422, "gpu_memory_too_small")
    product.loop.tick.observation = None


def test_a_listing_shows_where_jobs_run_and_why_they_wait(
    product: App, admin: AsgiClient, put: Put
) -> None:
    put(
        a_local_pool("lab"),
        a_node("lab1", pool="lab"),
        a_job("j-run", JobState.RUNNING, team="lab", attempts=1),
        _run_on("lab1", "j-run"),
        a_job("j-wait", team="lab", submitted_at=NOW + 1),
    )
    _decide(product, "j-wait")
    listed = admin.get("/v1/jobs?team=lab&state=running&state=pending").json()
    assert [(j["id"], j["pool"]) for j in listed["jobs"]] == [("j-wait", None), ("j-run", "lab")]
    assert listed["jobs"][0]["decision"]["sentence"] == "waits: cheaper by $0.50"
    assert listed["next_cursor"] is None
    page = admin.get("/v1/jobs?team=lab&limit=1").json()
    assert [j["id"] for j in page["jobs"]] == ["j-wait"]
    rest = admin.get(f"/v1/jobs?team=lab&limit=1&cursor={page['next_cursor']}").json()
    assert [j["id"] for j in rest["jobs"]] == ["j-run"]


def _decide(product: App, job_id: str) -> None:
    decision = Decision(
        job_id=JobId(job_id),
        at=NOW,
        verdict=Verdict.WAIT,
        sentence="waits: cheaper by $0.50",
        chosen="pool:lab",
        policy_version=0,
        reason=WaitingForGpus("lab", 600.0, 2),
        alternatives=(
            Alternative(
                option="pool:lab",
                label="local pool lab",
                start_p50_at=NOW + 600,
                start_p90_at=NOW + 900,
                finish_at=NOW + 1200,
                terms=(CostTerm(name="energy", micros=16_667), CostTerm(name="delay", micros=5)),
            ),
            Alternative(
                option="offer:x",
                label="spot g5.xlarge",
                terms=(CostTerm(name="machine", micros=516_672),),
                refused=NotWorthIt(500_000, "lab"),
            ),
        ),
    )
    done = product.store.commit([Bundle(id="d", changes=(Decide(decision),))], at=NOW)
    assert not done.dropped


def test_an_explanation_adds_up_to_the_micro_dollar(
    product: App, admin: AsgiClient, put: Put
) -> None:
    put(a_job("j-why"))
    before = admin.get("/v1/jobs/j-why/explain").json()
    assert (before["verdict"], before["sentence"]) == (None, "no plan has considered this job yet")
    _decide(product, "j-why")
    why = admin.get("/v1/jobs/j-why/explain").json()
    assert (why["verdict"], why["sentence"], why["reason"]["code"]) == (
        "wait",
        "waits: cheaper by $0.50",
        "waiting_for_gpus",
    )
    home, spot = why["alternatives"]
    assert (home["chosen"], home["total_usd"], home["refused"]) == (True, "0.016672", None)
    assert home["terms"] == [
        {"name": "energy", "usd": "0.016667"},
        {"name": "delay", "usd": "0.000005"},
    ]
    assert (spot["chosen"], spot["total_usd"], spot["refused"]) == (
        False,
        "0.516672",
        {"code": "not_worth_it", "text": "$0.50 dearer than lab"},
    )


def test_why_not_here_is_answered_for_a_pool_by_name(admin: AsgiClient, put: Put) -> None:
    put(a_local_pool("w-lab"), a_node("w-1", pool="w-lab"), a_local_pool("w-none"))
    put(a_job("j-where", spec=a_spec(resources={"gpus": 4})))
    lab = admin.get("/v1/jobs/j-where/explain?where=w-lab").json()
    assert lab["sentence"].startswith("not in w-lab: ")
    assert lab["reason"]["text"] in lab["sentence"]
    assert [each["option"] for each in lab["alternatives"]] == ["pool:w-lab"]
    unknown = admin.get("/v1/jobs/j-where/explain?where=w-labb")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "no_such_place")
    assert "w-lab" in unknown.json()["detail"]
    assert admin.get("/v1/jobs/j-none/explain?where=w-lab").status_code == 404
    put(a_job("j-over", JobState.SUCCEEDED))
    over = admin.get("/v1/jobs/j-over/explain?where=w-lab")
    assert (over.status_code, over.json()["code"]) == (409, "already_ended")


@pytest.mark.parametrize("path", ["/v1/quote", "/v1/jobs"])
def test_constraints_that_contradict_each_other_are_told_one_by_one(
    admin: AsgiClient, path: str
) -> None:
    asked = {"gpus": 1, "gpu": {"models": ["t4"], "memory": "80GiB"}}
    answer = admin.post(path, json={"command": ["true"], "team": "red", "resources": asked})
    assert (answer.status_code, answer.json()["code"]) == (422, "contradiction")
    assert [(e["path"], e["message"]) for e in answer.json()["errors"]] == [
        ("resources.gpu.models", "GPU model t4"),
        ("resources.gpu.memory", "GPU memory ≥ 80 GiB"),
    ]


def test_a_jobs_whole_story_is_shown(admin: AsgiClient, put: Put) -> None:
    put(
        a_local_pool("st"),
        a_node("st1", pool="st"),
        a_job(
            "j-story",
            JobState.RUNNING,
            spec=a_spec(env={"A": "1"}, secrets={"KEY": {"env": "MY_KEY"}}),
            attempts=1,
            cost_micros=1_234_567,
            checkpoint=Checkpoint(seq=3, step=40, committed_at=NOW, size_bytes=1024, commit_s=0.5),
        ),
        _run_on("st1", "j-story", started_at=NOW + 5),
    )
    job = admin.get("/v1/jobs/j-story").json()
    assert (job["wait_s"], job["cost_usd"], job["checkpoint"]["step"]) == (5.0, "1.234567", 40)
    assert job["spec"]["secrets"] == {"KEY": {"file": None, "env": "MY_KEY"}}
    (run,) = job["runs"]
    assert (run["id"], run["slots"][0]["gpu_ids"], run["price_usd_per_hour"]) == (
        "j-story.1",
        ["st1-g0"],
        "0.000000",
    )


def test_a_log_is_read_from_an_offset_of_the_run_that_is_named(
    product: App, admin: AsgiClient, put: Put
) -> None:
    put(
        a_local_pool("lg"),
        a_node("lg1", pool="lg"),
        a_job("j-log", JobState.RUNNING, attempts=1),
        _run_on("lg1", "j-log"),
    )
    url = "/v1/jobs/j-log/logs"
    assert admin.get(url).content == b""
    kept = product.logs.kept
    kept.append(JobId("j-log"), RunId("j-log.1"), 0, 0, b"one\ntwo\n", gap=False)
    response = admin.get(url)
    assert (response.content, response.headers["content-type"]) == (
        b"one\ntwo\n",
        "text/plain; charset=utf-8",
    )
    assert admin.get(f"{url}?offset=4&run=j-log.1").content == b"two\n"
    missing = admin.get(f"{url}?run=j-log.9")
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_run")
    beyond = admin.get(f"{url}?rank=1")
    assert (beyond.status_code, beyond.json()["code"]) == (404, "no_such_rank")


def test_a_quote_writes_nothing(product: App, admin: AsgiClient) -> None:
    before = product.store.load(now=NOW).revision
    quote = admin.post("/v1/quote", json={**SPEC, "where": {"pools": ["local"]}})
    assert quote.status_code == 200
    assert (quote.json()["team"], quote.json()["verdict"]) == ("red", "wait")
    assert [each["option"] for each in quote.json()["alternatives"]] != []
    assert product.store.load(now=NOW).revision == before


# --- machines ------------------------------------------------------------------------------------


def test_a_pool_is_written_under_its_etag(admin: AsgiClient) -> None:
    document = {"kind": "local", "name": "etag"}
    made = admin.put("/v1/pools/etag", json=document, headers={"If-Match": '"0"'})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    changed = admin.put(
        "/v1/pools/etag", json={**document, "description": "x"}, headers={"If-Match": '"1"'}
    )
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    stale = admin.put("/v1/pools/etag", json=document, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "pool_changed")
    bad = admin.put("/v1/pools/etag", json=document, headers={"If-Match": "W/abc"})
    assert (bad.status_code, bad.json()["code"]) == (422, "bad_etag")
    assert admin.get("/v1/pools/etag").headers["etag"] == '"2"'
    assert admin.delete("/v1/pools/etag", headers={"If-Match": '"1"'}).status_code == 412
    assert admin.delete("/v1/pools/etag", headers={"If-Match": "*"}).status_code == 204
    assert admin.get("/v1/pools/etag").json()["code"] == "no_such_pool"


def test_a_pool_in_use_is_not_removed(admin: AsgiClient, put: Put) -> None:
    put(a_local_pool("busy"), a_node("b1", pool="busy"))
    response = admin.delete("/v1/pools/busy")
    assert (response.status_code, response.json()["code"]) == (409, "pool_in_use")
    shown = admin.get("/v1/pools/busy").json()
    assert (shown["nodes"], shown["gpus"], shown["machines"], shown["runs"]) == (1, 1, 0, 0)


def test_a_node_shows_where_its_mig_instances_are_and_what_would_fit_beside_them(
    admin: AsgiClient, put: Put
) -> None:
    put(a_local_pool("mp"), replace(a_node("mp1", pool="mp"), **parted("mp1")))
    node = admin.get("/v1/nodes/mp1").json()
    assert [gpu["mig"] for gpu in node["gpus"]] == [
        {"parent": "mp1-p0", "number": 1, "start": 0, "size": 4},
        {"parent": "mp1-p0", "number": 2, "start": 6, "size": 1},
    ]
    assert node["parted"] == [
        {
            "id": "mp1-p0",
            "index": 0,
            "model": "a100-sxm4-80gb",
            "room": [
                {"profile": "1g.10gb", "starts": [4, 5]},
                {"profile": "2g.20gb", "starts": [4]},
            ],
        }
    ]


def test_a_node_shows_its_devices_their_links_and_their_holders(
    admin: AsgiClient, put: Put
) -> None:
    put(
        a_local_pool("np"),
        a_node("np1", 2, pool="np"),
        a_job("j-np", JobState.RUNNING, attempts=1),
        _run_on("np1", "j-np", "np1-g1"),
    )
    node = admin.get("/v1/nodes/np1").json()
    assert [(g["id"], g["run_ids"]) for g in node["gpus"]] == [
        ("np1-g0", []),
        ("np1-g1", ["j-np.1"]),
    ]
    assert node["links_gbps"] == [[0.0, 300.0], [300.0, 0.0]]
    assert node["run_ids"] == ["j-np.1"]
    assert "np1" in [each["id"] for each in admin.get("/v1/nodes").json()["nodes"]]
    cordoned = admin.post("/v1/nodes/np1:cordon", json={"why": "fans"}).json()
    assert (cordoned["state"], cordoned["cordon_cause"]) == (
        "cordoned",
        "cordoned by root: fans",
    )
    assert admin.post("/v1/nodes/np1:uncordon").json()["state"] == "ready"
    assert admin.get("/v1/nodes/none").json()["code"] == "no_such_node"


def test_claims_show_their_price_hold_and_history(admin: AsgiClient, put: Put) -> None:
    put(
        a_burst_pool("cl"),
        a_job("j-cl"),
        a_claim("c-cl", ClaimState.BOOTING, pool="cl", node_id=None, held_micros=600_000),
    )
    claim = admin.get("/v1/claims/c-cl").json()
    assert (claim["state"], claim["held_usd"], claim["offer"]["price_usd_per_hour"]) == (
        "booting",
        "0.600000",
        "1.000000",
    )
    listed = admin.get("/v1/claims?state=booting").json()["claims"]
    assert [each["id"] for each in listed] == ["c-cl"]
    assert admin.get("/v1/claims?state=gone").json()["claims"] == []
    assert admin.get("/v1/claims/none").json()["code"] == "no_such_claim"


def test_offers_come_with_what_is_ignored_and_what_is_unknown(
    product: App, client_of: ClientOf
) -> None:
    viewer = client_of(Role.VIEWER)
    assert viewer.get("/v1/offers").json()["unknown"] == ["offers: this server has not looked yet"]
    product.loop.tick.observation = Observation(
        at=NOW,
        heard_since=NOW,
        offers={"aws": Known((an_offer(),), NOW), "gcp": Unknown("no answer", NOW)},
    )
    seen = viewer.get("/v1/offers").json()
    assert [o["id"] for o in seen["offers"]] == ["cloud/us-east-1a/g5.xlarge/spot"]
    assert seen["unknown"] == ["gcp: no answer"]
    assert viewer.get("/v1/offers?pool=other").json()["offers"] == []
    product.loop.tick.observation = None


# --- money and policy ----------------------------------------------------------------------------


def test_a_policy_is_checked_put_in_force_and_brings_its_budgets(admin: AsgiClient) -> None:
    text = "budgets: [{name: all, limit_usd: 12.5}]\n"
    assert admin.get("/v1/policy").headers["etag"] == '"0"'
    check = admin.post("/v1/policy:check", json={"document": text}).json()
    assert (check["version"], [each["path"] for each in check["changes"]]) == (0, ["budgets"])
    put = admin.put(
        "/v1/policy", json={"document": text, "why": "cap"}, headers={"If-Match": '"0"'}
    )
    assert (put.status_code, put.headers["etag"], put.json()["why"]) == (200, '"1"', "cap")
    stale = admin.put("/v1/policy", json={"document": ""}, headers={"If-Match": '"0"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "policy_changed")
    (budget,) = admin.get("/v1/budgets").json()["budgets"]
    assert (budget["name"], budget["limit_usd"], budget["free_usd"], budget["overdrawn"]) == (
        "all",
        "12.500000",
        "12.500000",
        False,
    )
    wrong = admin.put("/v1/policy", json={"document": "brust: {}"}).json()
    assert (wrong["code"], wrong["errors"][0]["path"]) == ("invalid_policy", "brust")
    assert wrong["errors"][0]["hint"] == "did you mean burst?"
    assert admin.put("/v1/policy", json={"document": ""}).json()["version"] == 2


def test_a_policy_is_compared_its_versions_are_listed_and_an_earlier_one_comes_back(
    admin: AsgiClient, client_of: ClientOf
) -> None:
    before = admin.put("/v1/policy", json={"document": "scheduling: priority"}).json()["version"]
    admin.put("/v1/policy", json={"document": "scheduling: fifo", "why": "calm"})
    text = "teams: {ml: {regions: [mars]}}\nburst: {regions: [venus]}\n"
    check = admin.post("/v1/policy:check", json={"document": text}).json()
    assert [(w["line"], w["path"]) for w in check["warnings"]] == [
        (1, "budgets"),
        (1, "teams.ml.regions"),
        (2, "burst.regions[0]"),
    ]
    trial = admin.post("/v1/policy:diff", json={"document": text}).json()
    assert (trial["version"], trial["changed"]) == (before + 1, 0)
    assert trial["before"]["machines_asked"] == 0
    assert client_of(Role.VIEWER).post("/v1/policy:diff", json={"document": ""}).status_code == 403
    listed = admin.get("/v1/policy/versions?limit=1").json()
    assert [(v["version"], v["why"]) for v in listed["versions"]] == [(before + 1, "calm")]
    assert listed["next_before"] == before + 1
    assert admin.get("/v1/policy/versions/0").json()["document"] == ""
    assert admin.get("/v1/policy/versions/99").json()["code"] == "no_such_policy"
    back = {"version": 0, "why": "all over"}
    stale = admin.post("/v1/policy:rollback", json=back, headers={"If-Match": f'"{before}"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "policy_changed")
    done = admin.post("/v1/policy:rollback", json=back).json()
    assert (done["version"], done["why"]) == (before + 2, "back to version 0: all over")


def test_a_claims_lines_in_the_ledger_are_shown_to_its_team(
    product: App, admin: AsgiClient, client_of: ClientOf, put: Callable[..., None]
) -> None:
    put(a_claim("c-lines", team="red"))
    lines = (
        ("charge:c-lines", EntryKind.CHARGE, 300_000, "machine time"),
        ("charge:c-lines:disk", EntryKind.CHARGE, 20_000, "disk"),
        ("settlement:c-lines:2026-11:0", EntryKind.SETTLEMENT, -50_000, "bill of 2026-11"),
    )
    for id_, kind, micros, memo in lines:
        entry = LedgerEntry(
            id=id_, kind=kind, claim_id=ClaimId("c-lines"), amount_micros=micros, at=NOW,
            team="red", user="ann", job_id=JobId("j"), memo=memo,
        )  # fmt: skip
        product.store.commit([Bundle(id=id_, changes=(Post(entry),))], at=NOW)
    shown = admin.get("/v1/ledger/c-lines").json()
    assert [(e["kind"], e["what"], e["amount_usd"]) for e in shown["entries"]] == [
        ("charge", "machine time", "0.300000"),
        ("charge", "disk", "0.020000"),
        ("settlement", "bill of 2026-11", "-0.050000"),
    ]
    assert (shown["charged_usd"], shown["held_usd"]) == ("0.270000", "0.000000")
    stranger = client_of(Role.SUBMITTER, "blue")
    assert stranger.get("/v1/ledger/c-lines").json()["code"] == "no_such_claim"


def test_usage_of_an_idle_place_is_nothing(client_of: ClientOf) -> None:
    viewer = client_of(Role.VIEWER, "nobody")
    usage = viewer.get("/v1/usage?since=2026-01-01T00:00:00Z").json()
    assert (usage["teams"], usage["cloud_cost_usd"], usage["since"]) == (
        [],
        "0.000000",
        "2026-01-01T00:00:00Z",
    )


# --- artifacts -----------------------------------------------------------------------------------


def test_an_upload_is_stored_once_and_is_its_teams(admin: AsgiClient, client_of: ClientOf) -> None:
    data = b"a folder, packed"
    url = f"/v1/artifacts/sha256:{hashlib.sha256(data).hexdigest()}"
    red, blue = client_of(Role.SUBMITTER, "red"), client_of(Role.SUBMITTER, "blue")
    assert red.head(url).status_code == 404
    assert red.put(url, content=data).status_code == 201
    assert red.put(url, content=data).status_code == 200
    assert red.get(url).content == data
    head = red.head(url)
    assert (head.status_code, head.headers["content-length"], head.content) == (
        200,
        str(len(data)),
        b"",
    )
    assert blue.get(url).status_code == 404
    assert blue.put(url, content=b"only the digest").json()["code"] == "digest_mismatch"
    assert blue.put(url, content=data).status_code == 200
    assert blue.get(url).content == data
    digest = url.removeprefix("/v1/artifacts/")
    spec = {"command": ["x"], "workdir": digest}
    assert red.post("/v1/jobs", json=spec).status_code == 201
    assert client_of(Role.VIEWER).put(url, content=data).status_code == 403
    assert admin.get(f"{url}?direct=true").content == data


def test_an_upload_larger_than_the_limit_is_413(product: App, client_of: ClientOf) -> None:
    small = replace(product.uploads.artifacts, limit_bytes=10)
    tight = replace(product, uploads=replace(product.uploads, artifacts=small))
    client = AsgiClient(create_app(tight))
    client.headers["Authorization"] = client_of(Role.SUBMITTER).headers["Authorization"]
    response = client.put(f"/v1/artifacts/sha256:{'0' * 64}", content=b"x" * 3_000_000)
    assert (response.status_code, response.json()["code"]) == (413, "artifact_too_large")


# --- events, plan, metrics -----------------------------------------------------------------------


def test_events_come_with_their_numbers_and_can_be_taken_up_again(
    client_of: ClientOf, put: Put, product: App
) -> None:
    put(a_job("j-ev", team="ev"), a_job("j-ev2", team="other"))
    begin = product.happenings.last()
    ev = client_of(Role.SUBMITTER, "ev")
    for job_id in ("j-ev", "j-ev2"):
        product.jobs.cancel(product.access.principal(_secret(client_of)), JobId(job_id))
    text = ev.get(f"/v1/events?follow=false&after={begin}").text
    assert text.startswith("retry: 2000\n\n")
    jobs = [part for part in text.split("\n\n") if "event: job\n" in part]
    assert len(jobs) == 1
    assert '"job_id": "j-ev"' in jobs[0]
    number = jobs[0].split("\n")[0].removeprefix("id: ")
    again = ev.get("/v1/events?follow=false", headers={"Last-Event-ID": number}).text
    assert "event: job\n" not in again


def _secret(client_of: ClientOf) -> str:
    return client_of(Role.OPERATOR).headers["Authorization"].removeprefix("Bearer ")


def test_the_plan_of_a_loop_that_has_not_run_is_empty(client_of: ClientOf) -> None:
    plan = client_of(Role.VIEWER).get("/v1/plan").json()
    assert (plan["leads"], plan["at"], plan["bundles"], plan["complete"]) == (
        False,
        None,
        [],
        True,
    )


def test_metrics_count_what_there_is(admin: AsgiClient, put: Put) -> None:
    put(
        a_job("j-m", team="metrics"),
        a_burst_pool("m"),
        a_claim("c-m", ClaimState.BOOTING, pool="m", node_id=None, machine_id=None),
    )
    text = admin.get("/metrics").text
    assert 'hybrid_queue_depth{priority="normal",team="metrics"} 1.0' in text
    assert 'hybrid_claims{pool="m",state="booting"} 1.0' in text
    assert 'hybrid_burn_usd_per_hour{pool="m"} 1.0' in text
    assert "hybrid_loop_leads 0.0" in text
    assert "hybrid_tick_seconds_count 0.0" in text


def test_the_openapi_document_describes_errors_roles_and_examples(product: App) -> None:
    document = create_app(product).openapi()
    submit = document["paths"]["/v1/jobs"]["post"]
    assert submit["operationId"] == "submit_job"
    assert submit["x-least-role"] == "submitter"
    assert set(submit["responses"]) == {
        "201", "400", "401", "403", "409", "413", "415", "422", "503",
    }  # fmt: skip
    assert list(submit["responses"]["422"]["content"]) == ["application/problem+json"]
    assert submit["security"] == [{"HTTPBearer": []}]
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(ids) == len(set(ids))
    assert "HTTPValidationError" not in document["components"]["schemas"]
