"""Money for people: what is shown adds up."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.money import cents, cents_that_add_up

AMOUNTS = st.lists(st.integers(-(10**12), 10**12), max_size=12)


@given(AMOUNTS)
def test_amounts_to_the_cent_add_up_to_their_sum_to_the_cent(micros: list[int]) -> None:
    assert sum(cents_that_add_up(micros), Decimal(0)) == cents(sum(micros))


@given(AMOUNTS)
def test_none_is_off_by_a_cent(micros: list[int]) -> None:
    for amount, shown in zip(micros, cents_that_add_up(micros), strict=True):
        assert abs(shown - Decimal(amount).scaleb(-6)) < Decimal("0.01")


def test_three_thirds_of_a_dollar_are_a_dollar() -> None:
    shown = cents_that_add_up([333_333, 333_333, 333_334])
    assert [str(each) for each in shown] == ["0.33", "0.33", "0.34"]
