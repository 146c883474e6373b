"""What is learned from jobs that were told when they would start."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hybrid.domain.ids import ClaimId, JobId, PoolName
from hybrid.domain.learned import Learned
from hybrid.domain.plan import ActionBundle, Alternative, Decision, Place, Plan, Verdict
from hybrid.domain.run import Run, RunState
from hybrid.planning.planner import plan
from hybrid.ports.store import Learn
from hybrid.reconcile.enact import enact
from hybrid.reconcile.learning import Lessons
from tests.doubles.build import NOW, a_job, a_node, a_run, a_world
from tests.scenarios.world import build

RACK = PoolName("rack")


def told(p90_in_s: float, *, at: float = NOW - 600, chosen: str = "pool:rack") -> Decision:
    """Told ten minutes ago to wait for the rack."""
    option = Alternative(
        option=chosen, label="the rack", start_p50_at=at, start_p90_at=NOW + p90_in_s
    )
    return Decision(
        job_id=JobId("j1"), at=at, verdict=Verdict.WAIT, sentence="waits", chosen=chosen,
        policy_version=1, alternatives=(option,),
    )  # fmt: skip


def learned_from(decision: Decision, run: Run) -> Learned | None:
    world = replace(a_world(a_job(), a_node()), decisions={decision.job_id: decision})
    actions = (Place(run=run),)
    made = Plan(at=NOW, revision=1, bundles=(ActionBundle(id="b1", actions=actions),), decisions=())
    found = [
        change.learned
        for bundle in enact(made, world, lambda _claim: "")
        for change in bundle.changes
        if isinstance(change, Learn)
    ]
    return found[0] if found else None


PLACED = a_run(state=RunState.ASSIGNED)


def test_a_start_after_its_p90_lengthens_what_the_pool_tells_next() -> None:
    lesson = learned_from(told(-60), PLACED)
    assert lesson is not None
    assert lesson.wait_factor[RACK] > 1.2


def test_a_start_in_time_shortens_it_by_a_ninth_of_that() -> None:
    late, in_time = learned_from(told(-60), PLACED), learned_from(told(60), PLACED)
    assert late is not None
    assert in_time is not None
    assert in_time.wait_factor[RACK] ** -9 == pytest.approx(late.wait_factor[RACK])


@pytest.mark.parametrize(
    ("decision", "run"),
    [
        (told(-60, at=NOW), PLACED),
        (told(-60, chosen="pool:other"), PLACED),
        (replace(told(-60), verdict=Verdict.PLACE), PLACED),
        (told(-60), replace(PLACED, claim_ids=(ClaimId("c1"),))),
    ],
    ids=["told just now", "told of another pool", "not told to wait", "on a cloud machine"],
)
def test_nothing_is_learned_from_a_start_that_was_not_waited_for(
    decision: Decision, run: Run
) -> None:
    assert learned_from(decision, run) is None


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_in_the_long_run_nine_of_ten_start_by_what_they_were_told(spread: float) -> None:
    chance = random.Random(4)
    lessons, in_time = Lessons(Learned()), 0
    for _ in range(3_000):
        p90_s = 600.0 * lessons.learned.wait_factor.get(RACK, 1.0)
        late = chance.lognormvariate(7.0, spread) > p90_s
        in_time += not late
        lessons.started(RACK, late=late)
    assert in_time / 3_000 == pytest.approx(0.9, abs=0.01)


def test_a_waiting_job_is_told_the_p90_that_its_pool_has_earned() -> None:
    snapshot, policy = build(
        {
            "nodes": {"n0": {"gpus": 1}},
            "jobs": {"x": {"run": "2h", "at": "n0", "started": "-1h"}, "waits": {"run": "1h"}},
        }
    )
    pool = snapshot.nodes[next(iter(snapshot.nodes))].pool
    later = replace(snapshot, learned=replace(snapshot.learned, wait_factor={pool: 3.0}))

    def p90_s(of: Plan) -> float:
        (waits,) = (d for d in of.decisions if d.job_id == "waits")
        return (waits.alternatives[0].start_p90_at or 0.0) - of.at

    before, after = plan(snapshot, policy, 1), plan(later, policy, 1)
    assert p90_s(after) == pytest.approx(3.0 * p90_s(before))
