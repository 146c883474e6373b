"""Mean, quantiles and chances come from one distribution."""

from __future__ import annotations

import math

import pytest

from hybrid.estimation.waits import Duration


def test_what_is_certain_has_one_value() -> None:
    sure = Duration(60.0)
    assert (sure.p50_s, sure.p90_s) == (60.0, 60.0)
    assert sure.probability_beyond(59.0) == 1.0
    assert sure.probability_beyond(60.0) == 0.0


def test_quantiles_are_those_of_a_lognormal() -> None:
    spread = Duration(100.0, 100.0)
    sigma = math.sqrt(math.log(2.0))
    assert spread.p50_s == pytest.approx(100 / math.sqrt(2))
    assert spread.p90_s == pytest.approx(100 / math.sqrt(2) * math.exp(1.2815515655446004 * sigma))


def test_one_in_ten_takes_longer_than_the_p90_and_half_than_the_p50() -> None:
    spread = Duration(3600.0, 900.0)
    assert spread.probability_beyond(spread.p90_s) == pytest.approx(0.1)
    assert spread.probability_beyond(spread.p50_s) == pytest.approx(0.5)


def test_nothing_ends_before_it_begins() -> None:
    assert Duration(10.0, 5.0).probability_beyond(0.0) == 1.0
    assert Duration(10.0, 5.0).probability_beyond(-5.0) == 1.0


def test_durations_one_after_the_other_add_means_and_variances() -> None:
    both = Duration(10.0, 3.0).then(Duration(20.0, 4.0))
    assert (both.mean_s, both.sd_s) == (30.0, 5.0)
