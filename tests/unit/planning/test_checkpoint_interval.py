"""How often a run saves is worked out where the job asks for it, and goes with the run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hybrid.agent.engine import documents
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.plan import OpenClaim, Place
from hybrid.domain.run import Run
from hybrid.planning.planner import plan
from hybrid.ports.engine import RunOrder
from hybrid.store.documents import dump, load
from tests.doubles.build import a_job, a_node, a_run, a_spec
from tests.scenarios.world import build

AUTO = {"enabled": True, "interval": "auto"}


def run_of(saves: Any, **world: Any) -> Run:
    given = {"nodes": {"n1": {}}, **world, "jobs": {"j": {"run": "9h", "saves": saves}}}
    snapshot, policy = build(given)
    (place,) = [a for a in plan(snapshot, policy, 1).actions if isinstance(a, Place)]
    return place.run


SPOT = {
    "nodes": {},
    "pools": {"home": {}, "cloud": {"kind": "burst", "transfer_gib_per_s": 0.1}},
    "offers": {"spot": {"pool": "cloud", "type": "p4d", "market": "spot", "price": 1,
                        "interruptions": 0.36}},
    "claims": {"c1": {"offer": "spot", "job": "j"}},
    "policy": {"budgets": [{"name": "all", "limit_usd": 100}]},
}  # fmt: skip


def test_on_a_machine_nobody_takes_it_saves_every_hour() -> None:
    assert run_of({"interval": "auto"}).checkpoint_interval_s == 3600.0


def test_on_spot_it_saves_by_what_a_save_takes_and_how_often_the_machine_is_taken() -> None:
    """Saving 5 GiB at 0.1 GiB/s takes 50 s; 0.36 an hour is 1e-4 a second: √(2·50/1e-4)."""
    found = run_of({"interval": "auto", "size": 5}, **SPOT)
    assert found.checkpoint_interval_s == pytest.approx(1000.0)


def test_what_the_job_says_goes_as_it_is_said() -> None:
    assert run_of({"interval": "7m"}, **SPOT).checkpoint_interval_s == 420.0
    assert run_of(None).checkpoint_interval_s == 0.0


def test_an_offer_is_priced_with_the_interval_that_would_be_worked_out() -> None:
    """Saving far too often, or far too seldom, costs more."""
    costs = {}
    for interval in ("1m", "auto", "3h"):
        world = {**SPOT, "claims": {}, "jobs": {"j": {"run": "9h", "saves": {
            "interval": interval, "size": 5}}}}  # fmt: skip
        snapshot, policy = build(world)
        made = plan(snapshot, policy, 1)
        assert [type(a) for a in made.actions] == [OpenClaim]
        costs[interval] = next(a for a in made.decisions[0].alternatives if a.terms).total_micros
    assert costs["auto"] < min(costs["1m"], costs["3h"])


def test_the_interval_reaches_the_node() -> None:
    run = a_run(checkpoint_interval_s=1234.0)
    order = RunOrder(run=run, job=a_job(spec=a_spec(checkpoint=AUTO)), nodes=(a_node(),), epoch=1)
    (document,) = documents(order, "file:///c")
    assert document.checkpoint_interval_s == 1234.0
    assert document.spec.checkpoint.interval == "auto"


def test_auto_is_written_and_read_back_as_it_was() -> None:
    spec = a_spec(checkpoint=AUTO)
    assert JobSpec.model_validate(json.loads(spec.model_dump_json())) == spec
    assert load(JobSpec, dump(spec)) == spec
    assert spec.model_dump(mode="json")["checkpoint"]["interval"] == "auto"


@pytest.mark.parametrize("bad", [0, "0s", -1, "soon", "Auto", float("nan"), True, None])
def test_an_interval_of_nothing_is_refused(bad: Any) -> None:
    with pytest.raises(ValidationError, match="interval"):
        a_spec(checkpoint={"enabled": True, "interval": bad})
