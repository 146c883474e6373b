"""Prices move in steps, and the bill follows them second by second."""

from __future__ import annotations

from decimal import Decimal

import pytest

from providers.sandbox.billing import bill
from providers.sandbox.config import Market, SandboxConfig, SpotPrice
from providers.sandbox.prices import PriceBook, PriceStep, to_micros, to_usd

START = 1_800_000_000.0
ZONE = "us-east-1a"


def spot(at_s: float, usd: str, zone: str = ZONE, machine_type: str = "g5.xlarge") -> SpotPrice:
    return SpotPrice(zone=zone, machine_type=machine_type, at_s=at_s, usd_per_hour=Decimal(usd))


def flat(micros: int):
    return lambda _start, _end: [PriceStep(0.0, micros)]


def test_a_second_costs_a_3600th_of_the_hourly_price() -> None:
    owed = bill([(START, START + 90)], flat(3_600_000))
    assert (owed.billed_s, owed.micros) == (90, 90_000)


def test_less_than_a_minute_is_billed_as_a_minute() -> None:
    owed = bill([(START, START + 2.5)], flat(3_600_000))
    assert (owed.seconds, owed.billed_s, owed.micros) == (2.5, 60, 60_000)


def test_a_begun_second_is_billed_whole() -> None:
    assert bill([(START, START + 60.01)], flat(3_600_000)).billed_s == 61


def test_every_start_has_its_own_minimum() -> None:
    owed = bill([(START, START + 10), (START + 100, START + 200)], flat(3_600_000))
    assert (owed.billed_s, owed.micros) == (160, 160_000)


def test_an_interval_that_ends_before_it_begins_is_billed_as_the_minimum() -> None:
    owed = bill([(START, START - 5)], flat(3_600_000))
    assert (owed.seconds, owed.billed_s) == (0.0, 60)


def test_a_price_change_splits_the_bill_at_its_second() -> None:
    prices = PriceBook(SandboxConfig(spot_prices=(spot(0, "3.6"), spot(100, "7.2"))), START)
    owed = bill(
        [(START + 40, START + 160)],
        lambda start, end: prices.steps(ZONE, "g5.xlarge", Market.SPOT, start, end),
    )
    assert [(step.seconds, step.micros_per_hour) for step in owed.steps] == [
        (60.0, 3_600_000),
        (60.0, 7_200_000),
    ]
    assert owed.micros == 60_000 + 120_000


def test_nothing_that_never_ran_owes_anything() -> None:
    assert bill([], flat(3_600_000)).micros == 0


def test_without_a_script_spot_sells_at_the_usual_share_of_the_list_price() -> None:
    prices = PriceBook(SandboxConfig(spot_share=Decimal("0.5")), START)
    assert prices.spot_micros(ZONE, "g5.xlarge", START + 10) == 503_000


def test_before_the_first_scripted_step_the_usual_share_holds() -> None:
    prices = PriceBook(SandboxConfig(spot_prices=(spot(60, "0.9"),)), START)
    assert prices.spot_micros(ZONE, "g5.xlarge", START + 59) == 352_100
    assert prices.spot_micros(ZONE, "g5.xlarge", START + 60) == 900_000


def test_a_step_before_the_start_is_history_and_in_force() -> None:
    prices = PriceBook(SandboxConfig(spot_prices=(spot(-600, "0.4"), spot(60, "0.9"))), START)
    steps = prices.steps(ZONE, "g5.xlarge", Market.SPOT, START, START + 100)
    assert steps == [PriceStep(START - 600, 400_000), PriceStep(START + 60, 900_000)]


def test_a_later_script_replaces_a_step_at_the_same_instant() -> None:
    prices = PriceBook(SandboxConfig(spot_prices=(spot(0, "0.4"),)), START)
    prices.script([spot(0, "0.5")])
    assert prices.spot_micros(ZONE, "g5.xlarge", START) == 500_000


def test_zones_have_prices_of_their_own() -> None:
    prices = PriceBook(SandboxConfig(spot_prices=(spot(0, "0.4", "us-east-1b"),)), START)
    assert prices.spot_micros("us-east-1b", "g5.xlarge", START) == 400_000
    assert prices.spot_micros(ZONE, "g5.xlarge", START) == 352_100


def test_on_demand_prices_do_not_move() -> None:
    prices = PriceBook(SandboxConfig(), START)
    steps = prices.steps(ZONE, "g5.xlarge", Market.ON_DEMAND, START + 5, START + 9_999)
    assert [step.micros_per_hour for step in steps] == [1_006_000]


def test_a_type_that_is_not_sold_has_no_price() -> None:
    prices = PriceBook(SandboxConfig(machine_types=("g5.xlarge",)), START)
    with pytest.raises(KeyError):
        prices.on_demand_micros("p5.48xlarge")


def test_dollars_and_micro_dollars_round_half_up_and_back() -> None:
    assert to_micros(Decimal("0.0000005")) == 1
    assert to_usd(1_006_000) == Decimal("1.006")
