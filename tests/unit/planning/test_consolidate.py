"""When runs of one machine in a cloud move to others, and when they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrid.domain.job import JobState, StopCause
from hybrid.domain.plan import CordonClaim, EndClaim, OpenClaim, Place, Plan, Stop
from hybrid.domain.run import EXIT_CHECKPOINTED, RunState
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.lint import lint
from hybrid.planning.planner import plan
from policies.document import PolicyDocument
from tests.doubles.apply_plan import apply_plan
from tests.scenarios.world import NOW, build

SAVES: dict[str, Any] = {"saves": True, "saved": {"at": "-2m", "work": "48m", "took": "10s"}}
LONG: dict[str, Any] = {"run": "6h", "started": "-50m", "walltime": "1d", **SAVES}


def a_fleet(policy: dict[str, Any] | None = None, **jobs: dict[str, Any]) -> dict[str, Any]:
    """A machine of two GPUs for each job that runs, at 8 $ an hour; it has the first GPU there."""
    running = [name for name, job in jobs.items() if "waits" not in job]
    claims = {f"c-{name}": {"offer": "od", "job": name, "asked": "-1h"} for name in running}
    for name in running:
        claims[f"c-{name}"].update(jobs[name].pop("claim", {}))
        jobs[name].setdefault("at", f"n-c-{name}:0")
    return {
        "nodes": {},
        "pools": {"home": {}, "cloud": {"kind": "burst"}},
        "offers": {
            "od": {"pool": "cloud", "type": "p4d", "gpus": 2, "price": 8},
            "other": {"pool": "cloud", "type": "g6", "gpus": 2, "price": 8, "model": "l40s"},
        },
        "policy": {"budgets": [{"name": "all", "limit_usd": 1000}], **(policy or {})},
        "claims": claims,
        "jobs": {k: {n: v for n, v in job.items() if n != "waits"} for k, job in jobs.items()},
    }


def planned(world: dict[str, Any]) -> tuple[Snapshot, PolicyDocument, Plan]:
    """The plan of a world, clean and stable."""
    snapshot, policy = build(world)
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    assert plan(apply_plan(snapshot, made), policy, 1).actions == ()
    return snapshot, policy, made


def moved(made: Plan) -> set[str]:
    """The jobs whose runs are stopped to move."""
    return {
        str(action.run_id).removesuffix(".1")
        for action in made.actions
        if isinstance(action, Stop) and action.cause is StopCause.CONSOLIDATE
    }


def test_a_half_used_machine_is_given_up_for_another() -> None:
    _, _, made = planned(a_fleet(first=dict(LONG), second={**LONG, "run": "4h"}))
    assert moved(made) == {"second"}
    assert [a.claim_id for a in made.actions if isinstance(a, CordonClaim)] == ["c-second"]


def after_the_stop(world: dict[str, Any], name: str) -> tuple[Snapshot, PolicyDocument]:
    """The snapshot when the move that a world's plan begins has come to the end of its stop."""
    snapshot, policy, made = planned(world)
    assert moved(made) == {name}
    then = apply_plan(snapshot, made)
    runs, jobs = dict(then.runs), dict(then.jobs)
    for run in runs.values():
        if run.state is RunState.STOPPING:
            runs[run.id] = run.to(RunState.ENDED, at=NOW, exit_code=EXIT_CHECKPOINTED)
            jobs[run.job_id] = jobs[run.job_id].to(JobState.PENDING, at=NOW)
    claims = dict(then.claims)
    claims[f"c-{name}"] = replace(claims[f"c-{name}"], idle_since=NOW)  # type: ignore[index]
    return replace(then, jobs=jobs, runs=runs, claims=claims), policy


def test_a_job_that_has_stopped_goes_on_in_the_slot_kept_for_it_and_its_machine_ends() -> None:
    snapshot, policy = after_the_stop(
        a_fleet(first=dict(LONG), second={**LONG, "run": "4h"}), "second"
    )
    made = plan(snapshot, policy, 1)
    assert lint(snapshot, made) == ()
    (placed,) = [action.run for action in made.actions if isinstance(action, Place)]
    assert (placed.job_id, placed.node_ids) == ("second", ("n-c-first",))
    assert [a.claim_id for a in made.actions if isinstance(a, EndClaim)] == ["c-second"]


def test_nobody_else_gets_the_slot_of_a_job_that_has_stopped_to_move() -> None:
    world = a_fleet(first=dict(LONG), second={**LONG, "run": "4h"})
    snapshot, policy = after_the_stop(world, "second")
    world["jobs"]["urgent"] = {"run": "2h", "priority": "urgent", "submitted": "-3h"}
    urgent = build(world)[0].jobs["urgent"]  # type: ignore[index]
    made = plan(replace(snapshot, jobs={**snapshot.jobs, urgent.id: urgent}), policy, 1)
    assert [a.run.job_id for a in made.actions if isinstance(a, Place)] == ["second"]
    assert [a.claim.job_id for a in made.actions if isinstance(a, OpenClaim)] == ["urgent"]


def test_a_job_whose_other_machine_is_gone_meanwhile_looks_for_a_place_like_any_other() -> None:
    world = a_fleet(first=dict(LONG), second={**LONG, "run": "4h"})
    snapshot, policy = after_the_stop(world, "second")
    runs = {id_: run for id_, run in snapshot.runs.items() if run.job_id == "second"}
    jobs = {id_: job for id_, job in snapshot.jobs.items() if id_ == "second"}
    gone = {
        id_: replace(claim, notice_at=NOW + 60) if id_ == "c-first" else claim
        for id_, claim in snapshot.claims.items()
    }
    made = plan(replace(snapshot, runs=runs, jobs=jobs, claims=gone), policy, 1)
    assert [a.claim.job_id for a in made.actions if isinstance(a, OpenClaim)] == ["second"]


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        ({"retire": {"consolidate": False}}, {}),
        ({"retire": {"consolidate_margin_usd": 60}}, {}),
        ({"retire": {"consolidate_min_run": "2h"}}, {}),
        ({}, {"saves": False}),
        ({}, {"deadline": "20h"}),
        ({}, {"cpus": 60}),
        ({}, {"share": 0.5}),
        ({}, {"models": ["l40s"], "claim": {"offer": "other"}}),
        ({}, {"claim": {"offer": "other"}, "saves": {"portable": False}}),
        ({}, {"team": "ops", "claim": {"team": "ops"}}),
        ({}, {"claim": {"notice_in": "60s", "state": "cordoned"}}),
    ],
    ids=[
        "switched off",
        "saves less than the margin",
        "too young",
        "cannot save its work",
        "has a deadline",
        "its cores do not fit",
        "has a share of a GPU",
        "needs another GPU",
        "its checkpoint restores on its own GPU model only",
        "the room is another team's",
        "its machine is about to be taken",
    ],
)
def test_a_run_keeps_its_machine(policy: dict[str, Any], change: dict[str, Any]) -> None:
    stays = {**LONG, "saves": False, "cpus": 10}
    world = a_fleet(policy, stays=stays, other={**LONG, **change})
    assert moved(planned(world)[2]) == set()


def test_the_same_run_moves_where_nothing_of_that_holds() -> None:
    stays = {**LONG, "saves": False, "cpus": 10}
    assert moved(planned(a_fleet(stays=stays, other=dict(LONG)))[2]) == {"other"}


def test_a_portable_checkpoint_moves_to_another_gpu_model() -> None:
    stays = {**LONG, "saves": False}
    other = {**LONG, "claim": {"offer": "other"}, "at": "n-c-other:0"}
    assert moved(planned(a_fleet(stays=stays, other=other))[2]) == {"other"}


def test_all_runs_of_a_machine_move_or_none() -> None:
    both = {"one": {**LONG, "at": "n-c-one:0"}, "two": {**LONG, "at": "n-c-one:1"}}
    world = a_fleet(one=both["one"], stays={**LONG, "saves": False})
    world["jobs"]["two"] = both["two"]
    assert moved(planned(world)[2]) == set()
    world["claims"]["c-more"] = {"offer": "od", "job": "more", "asked": "-1h"}
    world["jobs"]["more"] = {**LONG, "saves": False, "at": "n-c-more:0"}
    assert moved(planned(world)[2]) == {"one", "two"}


def test_a_team_moves_one_machine_at_a_time() -> None:
    jobs = {name: dict(LONG) for name in ("a", "b", "c", "d")}
    snapshot, policy, made = planned(a_fleet(**jobs))
    assert len(moved(made)) == 1
    stopping = apply_plan(snapshot, made)
    later = replace(stopping, now=NOW + 10)
    assert moved(plan(later, policy, 1)) == set()


def test_a_cancelled_job_does_not_keep_a_slot() -> None:
    snapshot, policy, made = planned(a_fleet(first=dict(LONG), second={**LONG, "run": "4h"}))
    then = apply_plan(snapshot, made)
    jobs = dict(then.jobs)
    second = jobs["second"]  # type: ignore[index]
    jobs[second.id] = replace(second, cancel_requested=True)
    comes = build(a_fleet(comes={"run": "2h", "waits": True}))[0].jobs["comes"]  # type: ignore[index]
    again = plan(replace(then, jobs={**jobs, comes.id: comes}), policy, 1)
    assert [a.run.job_id for a in again.actions if isinstance(a, Place)] == ["comes"]


# --- for any fleet --------------------------------------------------------------------------------


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Machines of two to four GPUs, each with a few runs of its team, and a short queue."""
    sizes = {"small": 2, "big": 4}
    offers = {
        name: {
            "pool": "cloud",
            "type": name,
            "gpus": gpus,
            "price": draw(st.sampled_from([2, 8])),
            "market": draw(st.sampled_from(["spot", "on_demand"])),
        }
        for name, gpus in sizes.items()
    }
    claims: dict[str, Any] = {}
    jobs: dict[str, Any] = {}
    for i in range(draw(st.integers(2, 5))):
        kind, team = draw(st.sampled_from(["small", "big"])), draw(st.sampled_from(["ml", "ops"]))
        claims[f"k{i}"] = {"offer": kind, "job": f"k{i}-0", "asked": "-1h", "team": team}
        for gpu in range(draw(st.integers(1, sizes[kind]))):
            job = {**LONG, "run": draw(st.sampled_from(["55m", "2h", "9h"])), "team": team}
            job["started"] = draw(st.sampled_from(["-2m", "-50m"]))
            job["saves"] = draw(st.booleans())
            job["at"] = f"n-k{i}:{gpu}"
            if draw(st.integers(0, 7)) == 0:
                job["stopping"] = draw(st.sampled_from(["consolidate", "return", "preempt"]))
            jobs[f"k{i}-{gpu}"] = job
    for i in range(draw(st.integers(0, 3))):
        jobs[f"p{i}"] = {"run": "1h", "gpus": draw(st.integers(1, 2)), "saves": draw(st.booleans())}
    home = {"gpus": draw(st.sampled_from([1, 2])), "links": "pcie"}
    return {
        "nodes": draw(st.sampled_from([{}, {"n": home}])),
        "pools": {"home": {}, "cloud": {"kind": "burst"}},
        "offers": offers,
        "claims": claims,
        "jobs": jobs,
        "policy": {"budgets": [{"name": "all", "limit_usd": 1000}]},
    }


@given(fleets())
@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_no_plan_reverses_the_one_before(world: dict[str, Any]) -> None:
    planned(world)
