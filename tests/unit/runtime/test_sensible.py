"""What cannot be true is stopped at the port, with the reason; nothing of it is spread."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid.domain.ids import GpuId
from hybrid.domain.job_spec import Market
from hybrid.domain.node import Gpu, Node
from hybrid.planning.planner import plan
from hybrid.ports.capacity import Offers
from hybrid.ports.engine import NodeReport
from hybrid.reconcile.rules import SyncRules
from hybrid.reconcile.sync import sync
from hybrid.reconcile.views import snapshot_of
from hybrid.runtime.observe import Observer
from hybrid.runtime.pace import Pace
from hybrid.runtime.sensible import OLDEST_PRICE_S, offer_fault, sensible, usable
from hybrid.services.offers import Offered
from hybrid.simulation.clock import SimClock
from hybrid.simulation.cloud import SimCloud
from policies.document import PolicyDocument
from tests.doubles.build import (
    NOW,
    a_burst_pool,
    a_job,
    a_local_pool,
    a_node_report,
    a_world,
    an_observation,
    an_offer,
    links,
    some_gpus,
)
from tests.doubles.changes import puts


def test_an_offer_as_clouds_make_them_is_gone_by() -> None:
    assert offer_fault(an_offer(), NOW) is None
    assert (
        offer_fault(an_offer(gpus=0, gpu_model="", gpu_memory_gib=0.0, links_gbps=()), NOW) is None
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"price_micros_per_hour": None}, "it has no price"),
        ({"price_micros_per_hour": 0}, "its price is 0 micro-dollars an hour"),
        ({"price_micros_per_hour": -5}, "its price is -5 micro-dollars an hour"),
        ({"price_micros_per_hour": math.nan}, "its price is nan micro-dollars an hour"),
        ({"price_micros_per_hour": math.inf}, "its price is inf micro-dollars an hour"),
        ({"price_micros_per_hour": 1.5}, "its price of 1.5 is no whole number of micro-dollars"),
        ({"price_ceiling_micros_per_hour": 999_999},
         "its price ceiling of 999999 micro-dollars is not above its price of 1000000"),
        ({"price_ceiling_micros_per_hour": math.nan},
         "its price ceiling of nan micro-dollars is not above its price of 1000000"),
        ({"priced_at": NOW - OLDEST_PRICE_S - 60}, "its price is 2d1m old"),
        ({"priced_at": NOW + 7200}, "its price is dated 2h ahead of now"),
        ({"priced_at": math.nan}, "its price is dated nan"),
        ({"price_micros_per_hour": "4"},
         "its figures are not numbers: must be real number, not str"),
        ({"quota_left": math.nan}, "its quota_left is nan"),
        ({"quota_left": -1}, "its quota_left is -1"),
        ({"links_gbps": None}, "its links are not said"),
        ({"gpu_memory_gib": math.nan}, "its gpu_memory_gib is nan"),
        ({"boot_s": -1.0}, "its boot_s is -1.0"),
        ({"interruptions_per_hour": math.inf}, "its interruptions_per_hour is inf"),
        ({"notice_s": math.nan}, "its notice_s is nan"),
        ({"cpus": math.nan}, "its cpus is nan"),
        ({"gpus": -1}, "it has -1 GPUs of model 'a10g'"),
        ({"gpu_model": ""}, "it has 1 GPUs of model ''"),
        ({"gpus": 2, "links_gbps": ((0.0, 5.0), (4.0, 0.0))},
         "link between 0 and 1: 5.0 GB/s one way and 4.0 back"),
        ({"gpus": 2, "links_gbps": links(3, 5.0)}, "links between 3 devices, and there are 2"),
        ({"gpus": 2, "links_gbps": ((0.0, math.nan), (math.nan, 0.0))},
         "link between 0 and 1: nan is not a bandwidth"),
    ],
)  # fmt: skip
def test_an_offer_that_cannot_be_true_says_why(fields: dict[str, Any], words: str) -> None:
    assert offer_fault(an_offer(**fields), NOW) == words


def test_a_price_of_yesterday_is_still_one() -> None:
    assert offer_fault(an_offer(priced_at=NOW - 86_400), NOW) is None


def test_what_a_provider_ignores_itself_stays_ignored() -> None:
    bad = an_offer(market=Market.ON_DEMAND, price_micros_per_hour=0)
    found = usable(Offers((an_offer(), bad), (("x", "not sold there"),)), NOW)
    assert [offer.id for offer in found.usable] == [an_offer().id]
    assert found.ignored == (
        ("x", "not sold there"),
        (str(bad.id), "its price is 0 micro-dollars an hour"),
    )


class Odd(SimCloud):
    """A cloud that prices one market at nothing."""

    def offers(self, pools: Any) -> Offers:
        found = super().offers(pools)
        return Offers(
            tuple(
                replace(o, price_micros_per_hour=0) if o.market is Market.SPOT else o
                for o in found.usable
            ),
            found.ignored,
        )


def test_people_see_what_was_ignored_and_planners_do_not() -> None:
    clock = SimClock(NOW)
    prices = {("g5.xlarge", market): 1_000_000 for market in Market}
    observer = Observer({}, {"aws": Odd("aws", clock, prices)}, clock, Pace())
    try:
        seen = observer.observe(a_world(a_burst_pool()))
        shown = Offered(lambda: seen, observer).seen()
    finally:
        observer.close()
    assert [str(o.market) for o in shown.usable] == ["on_demand"]
    assert shown.ignored == (
        ("cloud/us-east-1a/g5.xlarge/spot", "its price is 0 micro-dollars an hour"),
    )


# --- nodes ----------------------------------------------------------------------------------------


def two(**fields: Any) -> NodeReport:
    return a_node_report(gpus=some_gpus("n1", 2), **{"links_gbps": links(2, 300.0), **fields})


def test_a_node_as_agents_report_it_is_left_alone() -> None:
    report = two()
    assert sensible(report) is report
    assert sensible(a_node_report(gpus=(), links_gbps=())).gpus == ()


BETWEEN = "link between n1-g0 and n1-g1"


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (((0.0, 300.0), (25.0, 0.0)), f"{BETWEEN}: 300.0 GB/s one way and 25.0 back"),
        (((0.0, 1.0, 1.0), (1.0, 0.0, 1.0)),
         "link between n1-g0 and device 2: there is no device 2"),
        (((0.0, math.nan), (math.nan, 0.0)), f"{BETWEEN}: nan is not a bandwidth"),
        (((0.0, -1.0), (-1.0, 0.0)), f"{BETWEEN}: -1.0 GB/s is negative"),
        (((7.0, 1.0), (1.0, 0.0)),
         "link between n1-g0 and n1-g0: a device has no link to itself"),
        (links(3, 1.0), "links between 3 devices, and there are 2"),
    ],
    ids=["one way", "unknown device", "NaN", "negative", "itself", "another size"],
)  # fmt: skip
def test_links_that_cannot_be_are_refused_with_the_pair_named(matrix: Any, words: str) -> None:
    found = sensible(two(links_gbps=matrix))
    assert [(gpu.healthy, gpu.health_reason) for gpu in found.gpus] == [(False, words)] * 2
    assert found.links_gbps == ((0.0, 0.0), (0.0, 0.0))


def test_a_device_whose_memory_is_no_number_takes_nothing() -> None:
    odd = (replace(some_gpus("n1", 1)[0], memory_gib=math.nan),)
    (gpu,) = sensible(a_node_report(gpus=odd)).gpus
    assert (gpu.memory_gib, gpu.healthy, gpu.health_reason) == (0.0, False, "its memory is nan GiB")


def test_a_machine_parted_into_many_instances_is_in_order() -> None:
    many = tuple(
        Gpu(id=GpuId(f"MIG-{i}"), index=i, model="a100-sxm4-80gb:1g.10gb", memory_gib=9.5)
        for i in range(56)
    )
    report = a_node_report(gpus=many, links_gbps=links(56, 0.0))
    assert sensible(report) is report


FIGURE = st.one_of(st.floats(), st.sampled_from([0.0, 25.0, 300.0]))


@given(st.lists(st.lists(FIGURE, max_size=3), max_size=3), FIGURE, FIGURE, FIGURE)
def test_whatever_an_engine_reports_the_planner_plans(
    rows: list[list[float]], cpus: float, memory: float, gpu_memory: float
) -> None:
    gpus = tuple(replace(gpu, memory_gib=gpu_memory) for gpu in some_gpus("n1", 2))
    matrix = tuple(map(tuple, rows))
    report = two(links_gbps=matrix, cpus=cpus, memory_gib=memory)
    report = sensible(replace(report, gpus=gpus))
    seen = an_observation(nodes=(report,))
    world = a_world(a_local_pool())
    node = puts(sync(world, seen, SyncRules()), Node)["n1"]
    asks = {"gpus": 2, "gpu": {"memory": 10, "link": "nvlink"}}
    job = a_job(spec=a_job().spec.model_validate({"command": ["x"], "resources": asks}))
    snapshot = snapshot_of(
        a_world(a_local_pool(), node, job), seen, now=NOW, epoch=1, evaluation_budget=1000,
        usage_half_life_s=86_400.0,
    )  # fmt: skip
    made = plan(snapshot, PolicyDocument(), 1)
    assert len(made.decisions) == 1
