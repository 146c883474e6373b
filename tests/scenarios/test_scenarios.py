"""Every scenario reads as its golden log says, and a second plan changes nothing."""

from __future__ import annotations

import pytest

from policies.sections import Strategy
from tests.scenarios.run import WORLDS, log_of, names


@pytest.mark.parametrize("name", names())
def test_the_scenario_reads_as_written(name: str) -> None:
    assert log_of(name) == (WORLDS / f"{name}.log").read_text()


@pytest.mark.parametrize("name", names())
def test_planning_again_changes_nothing_and_the_plan_is_clean(name: str) -> None:
    log = log_of(name)
    assert log.endswith("planned again: nothing\n")
    assert "NOT CLEAN" not in log


def test_each_strategy_serves_the_same_queue_in_its_own_way() -> None:
    sections = log_of("same_queue_each_preset").split("## ")[1:]
    served = {section.split("\n", 1)[0]: section.split("\n", 1)[1] for section in sections}
    assert set(served) == {str(strategy) for strategy in Strategy}
    assert len(set(served.values())) == len(served)
