"""What holds for every world: plans are clean, planning again changes nothing, and a plan does not
depend on the order in which things are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrid.domain.job import StopCause
from hybrid.domain.plan import EndClaim, OpenClaim, Place, Stop, Verdict
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import build

MODELS = ("a100-sxm4-80gb", "t4", "l40s")
PROFILE = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Small worlds in which everything can happen at once."""
    nodes = {}
    for i in range(draw(st.integers(1, 4))):
        nodes[f"n{i}"] = {
            "gpus": draw(st.sampled_from([1, 2, 4])),
            "model": draw(st.sampled_from(MODELS)),
            "links": draw(st.sampled_from(["pcie", "pcie-2-socket"])),
            "cpus": draw(st.sampled_from([4, 64])),
            "rack": draw(st.sampled_from(["", "a", "b"])),
        }
    offers = {
        "od": {"pool": "cloud", "type": "m.large", "price": draw(st.sampled_from([0.5, 2, 8]))},
        "spot": {
            "pool": "cloud",
            "type": "m.large",
            "market": "spot",
            "price": draw(st.sampled_from([0.2, 1])),
            "quota": draw(st.sampled_from([None, 0, 1, 3])),
        },
        "big": {"pool": "cloud", "type": "m.huge", "gpus": 4, "price": 9},
    }
    claims, jobs = draw(_claims_and_jobs(nodes))
    budget = draw(st.sampled_from([0, 3, 30, 1000]))
    return {
        "nodes": nodes,
        "pools": {
            "home": {},
            "cloud": {
                "kind": "burst",
                "ceilings": {"machines": draw(st.integers(0, 6)), "usd_per_hour": 60},
            },
        },
        "offers": offers,
        "claims": claims,
        "jobs": jobs,
        "policy": {
            "budgets": [{"name": "all", "limit_usd": budget}] if budget else [],
            "preemption": {"min_run": "1m"},
            "placement": {"strategy": draw(st.sampled_from(["pack", "spread"]))},
        },
        "breakers": draw(
            st.sampled_from([{}, {"zone:aws/us-east-1a": {"for": "30s"}},
                             {"offer:cloud/us-east-1a/m.large/spot": {"for": "-1s"}}])
        ),
        "unknown": draw(st.sampled_from([[], [], ["provider:aws"]])),
    }  # fmt: skip


@st.composite
def _claims_and_jobs(
    draw: st.DrawFn, nodes: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    jobs: dict[str, Any] = {}
    claims: dict[str, Any] = {}
    free = {name: list(range(node["gpus"])) for name, node in nodes.items()}
    for i in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(sorted(free)))
        if not free[name]:
            continue
        at = f"{name}:{free[name].pop()}"
        shares = draw(st.sampled_from([(), (), (0.5,), (0.5, 0.5), (0.3, 0.2, 0.4)]))
        if not shares:
            jobs[f"r{i}"] = _running(draw(_job()), at)
        for k, share in enumerate(shares):
            jobs[f"r{i}-{k}"] = {**_running(draw(_job()), at), "share": share}
    for i in range(draw(st.integers(0, 3))):
        state = draw(st.sampled_from(["requested", "booting", "ready", "cordoned"]))
        claim = {
            "offer": draw(st.sampled_from(["od", "spot"])),
            "state": state,
            "asked": draw(st.sampled_from(["-20s", "-5m"])),
            "lease": draw(st.sampled_from(["100s", "12m", "28m"])),
        }
        what = draw(st.sampled_from(["nobody", "runs", "waits"]))
        if what == "runs" and state in ("ready", "cordoned"):
            jobs[f"c{i}"] = _running(draw(_job()), f"n-k{i}")
            claim["job"] = f"c{i}"
        elif what == "waits":
            jobs[f"c{i}"] = {**draw(_job()), "gpus": 1, "nodes": 1, "claims_opened": 1}
            claim["job"] = f"c{i}"
        if "at" not in jobs.get(f"c{i}", {}):
            claim["idle"] = draw(st.sampled_from(["10s", "20m"]))
        if draw(st.booleans()) and state == "cordoned":
            claim["notice_in"] = "60s"
        claims[f"k{i}"] = claim
    for i in range(draw(st.integers(0, 8))):
        jobs[f"p{i}"] = draw(_job())
    return claims, jobs


@st.composite
def _job(draw: st.DrawFn) -> dict[str, Any]:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 4]))
    job: dict[str, Any] = {
        "gpus": gpus,
        "nodes": draw(st.sampled_from([1, 1, 1, 2])),
        "cpus": draw(st.sampled_from([1, 3])),
        "run": draw(st.sampled_from(["2m", "20m", "2h", "9h"])),
        "priority": draw(st.sampled_from(["low", "normal", "high", "urgent"])),
        "submitted": draw(st.sampled_from(["-1s", "-10m", "-3h"])),
        "started": draw(st.sampled_from(["-30s", "-1h"])),
        "team": draw(st.sampled_from(["ml", "ops"])),
        "walltime": "1d",
    }
    if gpus == 1 and draw(st.integers(0, 3)) == 0:
        parts = [{"share": 0.5}, {"share": 0.3}, {"slice_memory": 30}]
        job.update(draw(st.sampled_from(parts)))
    if draw(st.booleans()):
        job["saves"] = True
        job["saved"] = {"at": "-20s", "work": "1m"}
    if draw(st.integers(0, 4)) == 0:
        job["deadline"] = draw(st.sampled_from(["30m", "5h"]))
    if draw(st.integers(0, 6)) == 0:
        job["not_before"] = "30s"
    if draw(st.integers(0, 6)) == 0:
        job["where"] = {"burst": "never"}
    if draw(st.integers(0, 9)) == 0:
        job["cancelled"] = True
    if draw(st.integers(0, 9)) == 0:
        job["models"] = ["a100"]
    if draw(st.integers(0, 4)) == 0:
        job["failed_in"] = 2 * draw(
            st.sampled_from([["home"], ["cloud/spot"], ["home", "cloud/on_demand"]])
        )
    return job


def _running(job: dict[str, Any], at: str) -> dict[str, Any]:
    """The job on one whole device."""
    parts = ("share", "slice_memory")
    return {**{k: v for k, v in job.items() if k not in parts}, "gpus": 1, "nodes": 1, "at": at}


@given(worlds())
@settings(PROFILE, max_examples=120)
def test_plans_are_clean_and_planning_again_changes_nothing(world: dict[str, Any]) -> None:
    snapshot, policy = build(world)
    first = plan(snapshot, policy, 1)
    assert lint(snapshot, first) == ()
    assert first.complete
    second = plan(apply_plan(snapshot, first), policy, 1)
    assert second.actions == ()


@given(worlds())
@PROFILE
def test_every_live_job_is_told_something_and_its_terms_add_up(world: dict[str, Any]) -> None:
    snapshot, policy = build(world)
    made = plan(snapshot, policy, 1)
    again = plan(apply_plan(snapshot, made), policy, 1)
    assert [d.job_id for d in made.decisions] == sorted(snapshot.jobs)
    for decision in (*made.decisions, *again.decisions):
        assert decision.sentence
        for alternative in decision.alternatives:
            assert alternative.terms or alternative.refused is not None
            assert alternative.total_micros == sum(t.micros for t in alternative.terms)
        if decision.chosen and decision.verdict not in (Verdict.STOP, Verdict.RETURN):
            priced = [one.option for one in decision.alternatives if one.terms]
            assert priced.count(decision.chosen) == 1


@given(worlds(), st.randoms(use_true_random=False))
@PROFILE
def test_a_plan_does_not_depend_on_the_order_of_rows(world: dict[str, Any], random: Any) -> None:
    snapshot, policy = build(world)
    assert plan(_shuffled(snapshot, random), policy, 1) == plan(snapshot, policy, 1)


@given(worlds())
@PROFILE
def test_nothing_new_is_started_where_nothing_could_be_read(world: dict[str, Any]) -> None:
    world["unknown"] = ["provider:aws", "engine:agent"]
    snapshot, policy = build(world)
    actions = plan(snapshot, policy, 1).actions
    assert not any(isinstance(action, Place | OpenClaim) for action in actions)


@given(worlds())
@PROFILE
def test_no_machine_ends_under_a_run_and_no_job_is_stopped_for_itself(
    world: dict[str, Any],
) -> None:
    snapshot, policy = build(world)
    made = plan(snapshot, policy, 1)
    busy = {claim for run in snapshot.runs.values() for claim in run.claim_ids}
    ended = {action.claim_id for action in made.actions if isinstance(action, EndClaim)}
    assert not busy & ended
    placed = {action.run.job_id for action in made.actions if isinstance(action, Place)}
    stopped = {
        snapshot.runs[action.run_id].job_id
        for action in made.actions
        if isinstance(action, Stop) and action.cause is StopCause.PREEMPT
    }
    assert not placed & stopped


def _shuffled(snapshot: Snapshot, random: Any) -> Snapshot:
    def mixed(mapping: Any) -> Any:
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    offers = list(snapshot.offers)
    random.shuffle(offers)
    return replace(
        snapshot,
        jobs=mixed(snapshot.jobs),
        runs=mixed(snapshot.runs),
        nodes=mixed(snapshot.nodes),
        pools=mixed(snapshot.pools),
        claims=mixed(snapshot.claims),
        breakers=mixed(snapshot.breakers),
        offers=tuple(offers),
    )
