"""Every scenario reads as its golden log says, and a second plan changes nothing."""

from __future__ import annotations

import pytest

from tests.scenarios.run import WORLDS, log_of, names


@pytest.mark.parametrize("name", names())
def test_the_scenario_reads_as_written(name: str) -> None:
    assert log_of(name) == (WORLDS / f"{name}.log").read_text()


@pytest.mark.parametrize("name", names())
def test_planning_again_changes_nothing_and_the_plan_is_clean(name: str) -> None:
    log = log_of(name)
    assert log.endswith("planned again: nothing\n")
    assert "NOT CLEAN" not in log
