"""The figures on the planner's page are those of the code."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import hybrid.planning
from hybrid.estimation import experience, interruptions, runtime, speed
from hybrid.topology import link_class

ROOT = Path(__file__).parents[3]
TEXT = " ".join((ROOT / "docs" / "planner.md").read_text().split())


def _planning(name: str) -> set[object]:
    """What the planner's files hold under a name."""
    modules = [
        importlib.import_module(f"hybrid.planning.{each.name}")
        for each in pkgutil.iter_modules(hybrid.planning.__path__)
    ]
    return {getattr(module, name) for module in modules if hasattr(module, name)}


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ("once 3 runs of it have finished", runtime.FAMILY_RUNS == 3),
        ("half of its walltime", runtime.WALLTIME_USED == 0.5),
        ("at least 5 finished runs", speed.MIN_SAMPLES == 5),
        ("c = 0.05", link_class.COMMUNICATION_SHARE == 0.05),
        ("less than a quarter of the time", interruptions.LEAST_HEADWAY == 0.25),
        ("λ·run > 3", interruptions.MOST_EXPONENT == 3.0),
        ("until a day of availability", experience.ENOUGH_TICKS * 600 == 86_400),
        ("closer than 1.25 ×", 1.25 in _planning("_SLACK")),
        ("Beyond 400 waiting jobs", _planning("_EXACT_BELOW") == {400}),
        ("renewed when half of it is left", _planning("RENEW_BELOW") == {0.5}),
        ("end tail + 10 s`", 10.0 in _planning("MARGIN_S")),
    ],
)
def test_the_page_tells_what_the_code_holds(told, held):
    assert told in TEXT
    assert held


def test_every_step_named_is_a_file():
    steps = re.findall(r"\*\*(\w+)\*\*", TEXT.partition("The steps")[2].partition("## ")[0])
    assert len(steps) == 14
    for step in steps:
        assert (ROOT / "hybrid" / "planning" / f"{step}.py").is_file()


def test_stretch_is_computed_as_the_page_writes_it():
    run, every, save, rate, restart = 7200.0, 600.0, 30.0, 1e-4, 200.0
    found = interruptions.with_checkpoints(
        run, rate_per_s=rate, overhead_s=save, interval_s=every, restart_s=restart
    )
    assert found is not None
    written = (1 + save / every) / (1 - rate * (every / 2 + restart))
    assert found.mean_s == pytest.approx(run * written)
