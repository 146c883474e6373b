"""When money runs out, by the rate at which it goes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.estimation.spending import LONGEST_H, SpendingRate, rate, runs_out_in_h


def test_a_steady_rate_runs_out_after_what_is_left_over_it() -> None:
    steady = rate([600.0] * 4, bucket_h=6, half_life_h=24)
    assert (steady.mean, steady.sd) == (pytest.approx(100), pytest.approx(0, abs=1e-9))
    assert runs_out_in_h(1000, SpendingRate(100, 0), 0.5) == 10
    assert runs_out_in_h(1000, SpendingRate(100, 0), 0.9) == 10


def test_newer_hours_count_more() -> None:
    rising = rate([0.0, 600.0], bucket_h=24, half_life_h=24)
    assert rising.mean == pytest.approx(600 * 2 / 3 / 24)
    assert rising.sd > 0


def test_nothing_left_is_out_now_and_nothing_spent_never() -> None:
    assert runs_out_in_h(0, SpendingRate(100, 5), 0.5) == 0
    assert runs_out_in_h(-5, SpendingRate(0, 0), 0.9) == 0
    assert runs_out_in_h(5, SpendingRate(0, 9), 0.9) is None
    assert runs_out_in_h(1e12, SpendingRate(1, 0), 0.5) is None
    assert runs_out_in_h(1e12, SpendingRate(1, 1), 0.9) is None
    assert rate([], bucket_h=6, half_life_h=24) == SpendingRate(0, 0)


def test_the_quantiles_are_those_of_the_inverse_gaussian() -> None:
    """Mean a/μ = 10 h and shape a²/σ² = 10: the median is 6.7584 h, the 90 % quantile 22.2756 h
    (from the distribution function by Folks and Chhikara, solved to six digits)."""
    spending = SpendingRate(mean=100, sd=1000 / math.sqrt(10))
    p50 = runs_out_in_h(1000, spending, 0.5)
    p90 = runs_out_in_h(1000, spending, 0.9)
    assert p50 is not None
    assert p90 is not None
    for quantile, hours in ((0.5, p50), (0.9, p90)):
        assert _closed_form(hours, mean=10, shape=10) == pytest.approx(quantile, abs=1e-9)


def _closed_form(x: float, *, mean: float, shape: float) -> float:
    def phi(z: float) -> float:
        return 0.5 * math.erfc(-z / math.sqrt(2))

    root = math.sqrt(shape / x)
    return phi(root * (x / mean - 1)) + math.exp(2 * shape / mean) * phi(-root * (x / mean + 1))


@given(
    left=st.floats(1, 1e12),
    mean=st.floats(1e-3, 1e9),
    sd=st.floats(0, 1e10),
)
def test_it_never_runs_out_for_sure_before_it_does_so_as_likely_as_not(
    left: float, mean: float, sd: float
) -> None:
    p50 = runs_out_in_h(left, SpendingRate(mean, sd), 0.5)
    p90 = runs_out_in_h(left, SpendingRate(mean, sd), 0.9)
    if p90 is not None:
        assert p50 is not None
        assert 0 <= p50 <= p90 <= LONGEST_H
