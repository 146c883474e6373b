"""Values that only the type checker freezes are else like frozen dataclasses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hybrid.domain.hot_values import hot_value
from hybrid.domain.plan import CostTerm


@hot_value(frozen=True, slots=True)
class Point:
    """Told apart by what it holds."""

    x: float
    y: float = 0.0


@hot_value(frozen=True, slots=True, eq=False)
class Named:
    """Told apart by which one it is."""

    name: str


def test_equal_values_are_equal_and_one_as_keys() -> None:
    assert Point(1.0) == Point(1.0, 0.0) != Point(1.0, 2.0)
    assert {Point(1.0), Point(1.0), Point(2.0)} == {Point(2.0), Point(1.0)}


def test_values_without_equality_are_told_apart_by_identity() -> None:
    one = Named("a")
    assert {one, Named("a"), one} != {one}
    assert one == one != Named("a")


def test_a_changed_copy_leaves_the_value_as_it_was() -> None:
    term = CostTerm(name="machines", micros=5)
    assert replace(term, micros=6) == CostTerm(name="machines", micros=6)
    assert term == CostTerm(name="machines", micros=5)


def test_a_value_holds_nothing_but_its_fields() -> None:
    with pytest.raises(AttributeError):
        Point(1.0).z = 3.0  # type: ignore[attr-defined]
