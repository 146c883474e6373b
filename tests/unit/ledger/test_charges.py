"""What is held before a machine is asked for, and what it has cost once it ended."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.bill import LineKind
from hybrid.ledger.charges import (
    charge_lines,
    disk_micros,
    egress_micros,
    hold_micros,
    machine_charge_micros,
    renewal_micros,
)

HOUR = 3600.0
DISK = Decimal("0.00011")


def test_the_hold_is_the_ceiling_for_slack_lease_and_end_tail() -> None:
    # 60 + 1800 + 120 = 1980 s at $1.20 an hour
    assert hold_micros(1_200_000, lease_s=1800, end_tail_s=120) == 660_000


def test_the_hold_includes_the_disk_for_all_that_time_and_the_egress() -> None:
    held = hold_micros(
        1_200_000,
        lease_s=1800,
        end_tail_s=120,
        disk_gib=100,
        disk_usd_per_gib_hour=DISK,
        egress_gib=10,
        egress_usd_per_gib=Decimal("0.09"),
    )
    assert held == 660_000 + 6_050 + 900_000


def test_the_slack_may_be_another() -> None:
    assert hold_micros(3_600_000, lease_s=100, end_tail_s=0, slack_s=20) == 120_000


def test_a_renewal_pays_only_for_the_time_it_adds() -> None:
    assert renewal_micros(1_200_000, lease_until=1000, until=1900) == 300_000
    assert (
        renewal_micros(
            1_200_000, lease_until=0, until=HOUR, disk_gib=100, disk_usd_per_gib_hour=DISK
        )
        == 1_200_000 + 11_000
    )


@pytest.mark.parametrize("until", [1000.0, 900.0])
def test_a_renewal_that_adds_nothing_costs_nothing(until: float) -> None:
    assert renewal_micros(1_200_000, lease_until=1000, until=until) == 0


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [
        (-5, 60_000),
        (0, 60_000),
        (59.9, 60_000),
        (60, 60_000),
        (60.1, 61_000),
        (61, 61_000),
        (3600, 3_600_000),
    ],
)
def test_machines_are_paid_by_the_second_and_for_a_minute_at_least(
    seconds: float, micros: int
) -> None:
    assert machine_charge_micros(3_600_000, launched_at=0.0, ended_at=seconds) == micros


def test_the_charge_is_by_observed_times_with_the_disk_as_a_line_of_its_own() -> None:
    alone = charge_lines(3_600_000, launched_at=1000.0, ended_at=1100.5)
    assert alone == ((LineKind.MACHINE, 101_000),)
    terms = {"disk_gib": 100, "disk_usd_per_gib_hour": DISK}
    lines = charge_lines(3_600_000, launched_at=0.0, ended_at=HOUR, **terms)
    assert lines == ((LineKind.MACHINE, 3_600_000), (LineKind.DISK, 11_000))
    free = charge_lines(3_600_000, launched_at=0.0, ended_at=HOUR, free=True, **terms)
    assert free == ((LineKind.MACHINE, 0), (LineKind.DISK, 11_000))


def test_each_second_is_paid_at_the_price_that_was_in_force() -> None:
    def cost(ended_at: float, *steps: tuple[float, int]) -> int:
        return machine_charge_micros(3_600_000, launched_at=1000.0, ended_at=ended_at, steps=steps)

    up, down = (1100.0, 7_200_000), (1300.0, 1_800_000)
    assert cost(1400.0, up, down) == 100_000 * 1 + 200_000 * 2 + 50_000
    assert cost(1150.0, up, down) == 100_000 + 50_000 * 2
    # the minimum of a minute, a step before the machine was there, one after it was gone
    assert cost(1010.0, (1030.0, 7_200_000)) == 30_000 + 60_000
    assert cost(1100.0, (900.0, 7_200_000)) == 200_000
    assert cost(1100.0, (2000.0, 7_200_000)) == 100_000


def test_amounts_are_rounded_up() -> None:
    assert machine_charge_micros(1, launched_at=0.0, ended_at=60.0) == 1
    assert disk_micros(1, Decimal("0.000001"), 1) == 1
    assert disk_micros(0, DISK, HOUR) == 0
    assert egress_micros(1e-9, Decimal("0.09")) == 1
    assert egress_micros(0, Decimal("0.09")) == 0


@given(
    ceiling=st.integers(1, 10**9),
    price=st.integers(0, 10**9),
    lease_s=st.floats(30, 86_400),
    tail_s=st.floats(0, 3600),
    lived=st.floats(-1, 1),
    disk=st.floats(0, 1e5),
)
def test_a_machine_that_ends_within_its_lease_never_costs_more_than_was_held(
    ceiling: int, price: int, lease_s: float, tail_s: float, lived: float, disk: float
) -> None:
    price = min(price, ceiling)
    terms = {"disk_gib": disk, "disk_usd_per_gib_hour": DISK}
    held = hold_micros(ceiling, lease_s=lease_s, end_tail_s=tail_s, **terms)
    longest = 60 + lease_s + tail_s
    lines = charge_lines(price, launched_at=0, ended_at=longest * lived, **terms)
    assert sum(micros for _, micros in lines) <= held


@given(
    ceiling=st.integers(1, 10**9),
    leases=st.lists(st.integers(30, 7200), min_size=1, max_size=6),
    tail_s=st.integers(0, 600),
)
def test_renewed_leases_are_held_for_as_one_long_one(
    ceiling: int, leases: list[int], tail_s: int
) -> None:
    until = 0.0
    held = hold_micros(ceiling, lease_s=leases[0], end_tail_s=tail_s)
    for lease in leases[1:]:
        held += renewal_micros(ceiling, lease_until=until, until=until + lease)
        until += lease
    whole = hold_micros(ceiling, lease_s=sum(leases), end_tail_s=tail_s)
    assert whole <= held <= whole + len(leases)
