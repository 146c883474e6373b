"""The exactness benchmark: its worlds, its programme and how answers are priced."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import exactness
from benchmarks.exactness import Away, Local, Model, planned_micros, price
from benchmarks.optimum import HOW_TO_GET_IT, NoSolver, Programme, solve
from benchmarks.small_worlds import POLICY, STEP_S, small_world
from hybrid.domain.snapshot import Snapshot
from hybrid.planning.planner import plan
from hybrid.planning.queue import pending_jobs
from policies.loading import parse_policy

RULES = parse_policy(POLICY)
ROOT = Path(__file__).resolve().parents[3]

with_solver = pytest.mark.skipif(
    importlib.util.find_spec("highspy") is None, reason="HiGHS is an extra: hybrid[bench]"
)


def own_programme(position: int) -> tuple[Snapshot, Model]:
    snapshot = small_world(0, position)
    return snapshot, Model(snapshot, RULES)


def holds(programme: Programme, ones: Sequence[int]) -> bool:
    chosen = set(ones)
    for lower, upper, entries in programme.rows:
        total = sum(value for index, value in entries if index in chosen)
        if (lower is not None and total < lower - 1e-9) or (upper is not None and total > upper):
            return False
    return True


def one_after_the_other(model: Model, snapshot: Snapshot) -> list[int]:
    """Every job alone on owned nodes, long after the one before: always allowed, never good."""
    ones: list[int] = []
    step = max(s for _, _, s in model.starts.values()) + 1
    for job in pending_jobs(model.ws):
        mine = {s: i for i, (j, _, s) in sorted(model.starts.items(), reverse=True) if j is job}
        choice = model.starts[mine[0]][1]
        step -= round(choice.run.mean_s / STEP_S)
        index = next(i for i, (j, c, s) in model.starts.items() if (j, c, s) == (job, choice, step))
        nodes = list(model.nodes[index].values())[: job.spec.resources.nodes]
        ones += [index, *nodes]
    assert snapshot.jobs
    return ones


def test_the_same_numbers_give_the_same_world() -> None:
    assert small_world(3, 4) == small_world(3, 4)
    assert small_world(3, 4) != small_world(3, 5)
    assert small_world(3, 4) != small_world(4, 4)


def test_the_worlds_have_gangs_budgets_and_quotas() -> None:
    worlds = [small_world(0, position) for position in range(12)]
    jobs = [job for world in worlds for job in world.jobs.values()]
    assert any(job.spec.resources.nodes > 1 for job in jobs)
    assert all(len(world.balances) == 3 for world in worlds)
    assert any(offer.quota_left == 1 for world in worlds for offer in world.offers)


def test_an_allowed_answer_keeps_all_rows_and_costs_what_the_programme_says() -> None:
    snapshot, model = own_programme(1)
    ones = one_after_the_other(model, snapshot)
    assert holds(model.programme, ones)
    micros = price(model.answer(ones), snapshot, RULES)
    assert micros / 1e6 == pytest.approx(sum(model.programme.cost[i] for i in ones))
    assert micros >= planned_micros(plan(snapshot, RULES, 1), snapshot, RULES)


def test_two_jobs_on_the_same_devices_break_a_row_and_are_not_priced() -> None:
    snapshot, model = own_programme(1)
    first, second = [
        answer
        for answer in model.answer(one_after_the_other(model, snapshot))
        if isinstance(answer, Local)
    ][:2]
    whole = len(model.ws.nodes[first.nodes[0]].node.gpus)
    crowd = [Local(first.job, first.choice, first.nodes, first.step)] * (whole + 1)
    with pytest.raises(ValueError, match="does not fit on"):
        price([*crowd, second], snapshot, RULES)


def test_machines_beyond_a_quota_or_a_budget_are_not_priced() -> None:
    snapshot, model = own_programme(1)
    away = next(iter(model.aways.values()))
    assert isinstance(away, Away)
    assert price([away], snapshot, RULES) == away.option.micros
    with pytest.raises(ValueError, match="is refused"):
        price([away] * 20, snapshot, RULES)


@with_solver
def test_the_solver_finds_the_least_cost_of_a_programme_done_by_hand() -> None:
    programme = Programme()
    a, b, c = (programme.variable(cost) for cost in (3.0, 2.0, 4.0))
    programme.row({a: 1, b: 1, c: 1}, lower=2)
    programme.row({a: 1, b: 1}, upper=1)
    assert solve(programme, limit_s=10) == (b, c)


@with_solver
def test_a_plan_is_never_better_than_the_proven_optimum() -> None:
    for position in (2, 3):
        pair = exactness.compared_with_optimum(small_world(0, position), RULES)
        assert 0 < pair.optimum_micros <= pair.ours_micros


def test_without_the_solver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_programme: Programme, *, limit_s: float) -> tuple[int, ...]:
        raise NoSolver(HOW_TO_GET_IT)

    monkeypatch.setattr(exactness, "solve", refuse)
    with pytest.raises(SystemExit) as ended:
        exactness.main(["--quick", "--data", "anywhere"])
    assert "pip install" in str(ended.value.code)


def test_the_solving_process_tells_that_there_is_no_solver(tmp_path: Path) -> None:
    # without site packages nothing but the standard library is there
    asked = json.dumps({"programme": {"cost": [], "rows": []}, "limit_s": 1})
    done = subprocess.run(
        [sys.executable, "-S", "-m", "benchmarks.optimum"],
        input=asked, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")


def test_gaps_are_compared_with_what_is_asked() -> None:
    line = {"instances": 80, "mean_gap": 0.019, "worst_gap": 0.09}
    assert [row.reached for row in exactness.compare(line)] == [True, False]
    assert exactness.compare(line)[0].ours == "1.90 %"
