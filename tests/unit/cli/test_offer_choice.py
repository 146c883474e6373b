"""Which offers are shown, in which order, and what they cost for the work they do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from hybrid.cli import place_views
from hybrid.cli.exits import CliError, Exit
from hybrid.cli.offer_choice import Order, chosen, per_gpu, per_speed
from hybrid.client import answers as said
from hybrid.domain.job_spec import Profile
from tests.unit.cli.test_views import OFFER, text

A100, L4 = "a100-sxm4-80gb", "l4"


def offer(id_: str, model: str, gpus: int, price: str, **fields: Any) -> dict[str, Any]:
    models = {"gpu_model": model, "gpu_models": (model,) * gpus}
    return {**OFFER, "id": id_, "gpus": gpus, "price_usd_per_hour": price, **models, **fields}


FOUND = said.OfferList.model_validate(
    {
        "offers": [
            offer("eight", A100, 8, "24.00"),
            offer("one", A100, 1, "4.00", market="on_demand"),
            offer(
                "small", L4, 1, "0.70", quota_left=3, quota="4 of 16 vCPU for G and VT spot in r"
            ),
            offer("none", "", 0, "0.10"),
        ],
        "ignored": [],
        "unknown": [],
    }
)


def ids(**wanted: Any) -> list[str]:
    asked = {"gpu": None, "market": None, "order": Order.PRICE, "profile": Profile.BALANCED}
    return [each.id for each in chosen(FOUND, **{**asked, **wanted}).offers]


def test_the_cheapest_machine_comes_first() -> None:
    assert ids() == ["none", "small", "one", "eight"]


def test_the_cheapest_gpu_is_not_that_of_the_cheapest_machine() -> None:
    assert ids(order=Order.GPU) == ["small", "eight", "one", "none"]
    assert per_gpu(FOUND.offers[0]) == Decimal(3)


def test_the_cheapest_work_goes_by_the_speed_of_the_profile() -> None:
    assert per_speed(FOUND.offers[0], Profile.COMPUTE) == Decimal(3)
    dear = per_speed(FOUND.offers[2], Profile.MEMORY)
    cheap = per_speed(FOUND.offers[2], Profile.LATENCY)
    assert dear is not None
    assert cheap is not None
    # an L4 has a seventh of the bandwidth of an A100, and a faster clock
    assert dear > 3 > cheap
    assert ids(order=Order.SPEED, profile=Profile.MEMORY)[0] == "eight"
    assert ids(order=Order.SPEED, profile=Profile.LATENCY)[0] == "small"


def test_a_gpu_goes_by_any_name_and_a_market_by_its_own() -> None:
    assert ids(gpu="a100") == ["one", "eight"]
    assert ids(gpu="A100-80GB", market="spot") == ["eight"]
    assert ids(gpu="h100") == []


def test_a_gpu_that_nobody_knows_is_told_what_is_near() -> None:
    with pytest.raises(CliError) as refused:
        ids(gpu="a1000")
    assert refused.value.exit is Exit.USAGE
    assert "nearest" in str(refused.value)


def test_prices_of_a_built_in_table_say_so_and_what_the_quota_leaves_is_shown() -> None:
    dated = said.OfferList.model_validate(
        {
            "offers": [offer("o", L4, 1, "0.70", price_source="built-in table of 2026-07-20")],
            "ignored": [],
            "unknown": [],
        }
    )
    assert "built-in table of 2026-07-20" in text(place_views.offers(dated))[1]
    shown = text(
        place_views.offers(
            chosen(FOUND, gpu="l4", market=None, order=Order.PRICE, profile=Profile.COMPUTE)
        )
    )
    assert "  3  " in shown[1]
