"""Two plans side by side, and what was weighed when a machine is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from hybrid.domain.plan import OpenClaim, Verdict
from hybrid.planning.difference import difference, outlook
from hybrid.planning.planner import plan
from policies.document import PolicyDocument
from tests.scenarios.run import WORLDS
from tests.scenarios.world import build


def world(name: str) -> tuple[Any, PolicyDocument]:
    return build(yaml.safe_load((WORLDS / f"{name}.yaml").read_text()))


def test_a_claim_remembers_what_waiting_would_have_cost() -> None:
    snapshot, policy = world("long_queue_bursts")
    made = plan(snapshot, policy, 1)
    opened = [action.claim for action in made.actions if isinstance(action, OpenClaim)]
    assert opened
    by_job = {decision.job_id: decision for decision in made.decisions}
    for claim in opened:
        decision = by_job[claim.job_id]
        home = next(a for a in decision.alternatives if a.option.startswith("pool:"))
        cloud = next(a for a in decision.alternatives if a.option == decision.chosen)
        assert claim.bargain is not None
        assert claim.bargain.waiting_micros == home.total_micros
        assert claim.bargain.cloud_micros == cloud.total_micros
        assert 0 < claim.bargain.paid_micros == outlook(decision).cloud_micros


def test_the_parts_of_a_gangs_machines_add_up() -> None:
    from hybrid.domain.claim import Bargain
    from hybrid.planning.claims import open_claims
    from tests.doubles.build import NOW, a_burst_pool, a_job, a_spec, an_offer

    job = a_job(spec=a_spec(resources={"nodes": 3, "gpus": 1}))
    pool: Any = a_burst_pool().spec
    whole = Bargain(waiting_micros=100, cloud_micros=50, paid_micros=11)
    opened = open_claims(job, an_offer(), pool, now=NOW, installation="i", bargain=whole)
    parts = [action.claim.bargain for action in opened]
    assert [part.paid_micros for part in parts if part] == [3, 4, 4]
    assert sum(part.waiting_micros for part in parts if part) == 100
    assert sum(part.cloud_micros for part in parts if part) == 50


def test_a_plan_differs_from_itself_in_nothing() -> None:
    snapshot, policy = world("long_queue_bursts")
    made = plan(snapshot, policy, 1)
    same = difference(snapshot.jobs, made, replace(made, decisions=made.decisions))
    assert (same.changes, same.before) == ((), same.after)


def test_what_another_policy_decides_otherwise_is_told_dearest_first() -> None:
    snapshot, policy = world("long_queue_bursts")
    strict = policy.model_copy(update={"burst": policy.burst.model_copy(update={"enabled": False})})
    found = difference(snapshot.jobs, plan(snapshot, policy, 1), plan(snapshot, strict, 2))
    assert found.before.verdicts["burst"] == len(found.changes) - sum(
        change.before.verdict is not Verdict.BURST for change in found.changes
    )
    assert found.before.held_now_micros > found.after.held_now_micros == 0
    dollars = [abs(change.cloud_change_micros) for change in found.changes]
    assert dollars == sorted(dollars, reverse=True)
    left = found.changes[0]
    assert left.before.verdict is Verdict.BURST
    assert left.finish_change_s is not None
    assert left.finish_change_s > 0
    assert difference({}, plan(snapshot, policy, 1), plan(snapshot, strict, 2)).jobs == 0
