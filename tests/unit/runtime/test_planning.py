"""Seconds become evaluations by the rate that was measured, and plans leave the collector on."""

from __future__ import annotations

import gc

import pytest

from hybrid.runtime.planning import Planning


def test_the_first_plan_tells_the_rate_and_later_ones_move_it() -> None:
    planning = Planning()
    planning.measured(50_000, 2.0)
    assert planning.budget(1.0) == 20_000  # four fifths of a second are spent
    planning.measured(50_000, 1.0)
    assert planning.budget(1.0) == 30_000
    assert planning.budget(0.5) == 15_000


def test_plans_that_are_all_preparation_tell_nothing() -> None:
    planning = Planning()
    before = planning.budget(1.0)
    planning.measured(10, 1.0)
    assert planning.budget(1.0) == before


def test_a_plan_may_always_look_a_little() -> None:
    planning = Planning()
    planning.measured(1_000, 1_000.0)
    assert planning.budget(1.0) == 1_000


def test_the_collector_is_on_again_after_a_plan_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        assert not gc.isenabled()
        raise ValueError("no plan")

    monkeypatch.setattr("hybrid.runtime.planning.plan", fails)
    with pytest.raises(ValueError, match="no plan"):
        Planning().plan(None, None, 1)  # type: ignore[arg-type]
    assert gc.isenabled()
