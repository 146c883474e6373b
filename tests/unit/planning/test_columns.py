"""What is reckoned in columns is what is reckoned one by one, to the micro-dollar."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hybrid.planning.options import cost_micros, costs_micros
from policies.burst import margin_micros, margins_micros
from policies.loading import parse_policy

SECONDS = st.floats(min_value=0.0, max_value=1e9)
AMOUNTS = st.integers(min_value=-(10**6), max_value=10**17)


@given(st.lists(st.tuples(st.integers(0, 10**13), SECONDS), min_size=1, max_size=20))
def test_costs(pairs: list[tuple[int, float]]) -> None:
    rates = np.array([rate for rate, _ in pairs], dtype=np.int64)
    seconds = np.array([second for _, second in pairs])
    assert costs_micros(rates, seconds).tolist() == [cost_micros(*pair) for pair in pairs]


@given(st.lists(AMOUNTS, min_size=1, max_size=20), st.sampled_from(["0", "0.1", "0.125", "0.333"]))
def test_margins(waits: list[int], margin: str) -> None:
    policy = parse_policy(f"burst: {{margin: {Decimal(margin)}, margin_usd: 1}}")
    many = margins_micros(np.array(waits, dtype=np.int64), policy).tolist()
    assert many == [margin_micros(wait, policy) for wait in waits]


def test_nothing_in_no_columns() -> None:
    nothing = np.array([], dtype=np.int64)
    assert len(costs_micros(nothing, np.array([]))) == 0
    assert len(margins_micros(nothing, parse_policy("{}"))) == 0
