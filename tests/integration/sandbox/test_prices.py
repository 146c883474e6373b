"""EC2's prices: kept on disk with their age, renewed in the background, and what they tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from hybrid.domain.offer import Offer
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from providers.aws.provider import AwsProvider
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import SandboxConfig, SpotPrice
from tests.doubles.clock import Clock

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("sandbox-cloud")]

DAY_S = 86_400.0
ZONE, OTHER = "us-east-1a", "us-east-1b"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cloud(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxCloud]:
    with SandboxCloud(SandboxConfig(machines=False), clock=clock) as cloud:
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        yield cloud


@pytest.fixture
def start(cloud: SandboxCloud, clock: Clock, tmp_path: Path) -> Callable[[], AwsProvider]:
    """A server that starts, on the disk of the one before."""
    return lambda: AwsProvider(
        name="aws",
        region="us-east-1",
        installation="inst",
        endpoint_url=cloud.url,
        cache_dir=tmp_path,
        now=clock,
    )


@pytest.fixture
def pool() -> BurstPool:
    spec = POOL_SPEC.validate_python(
        {
            "kind": "burst",
            "name": "cloud",
            "provider": "aws",
            "region": "us-east-1",
            "zones": [{"name": ZONE}, {"name": OTHER}],
            "template": {"image": SandboxConfig().image_id},
            "machine_types": ["g5.xlarge"],
            "markets": ["spot", "on_demand"],
            "ceilings": {"machines": 10, "usd_per_hour": 100},
        }
    )
    assert isinstance(spec, BurstPool)
    return spec


def offer(
    provider: AwsProvider, pool: BurstPool, name: str = f"{ZONE}/g5.xlarge/on_demand"
) -> Offer:
    (found,) = [o for o in provider.offers([pool]).usable if o.id == f"cloud/{name}"]
    return found


def wait_for_fetches() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("fetch-"):
            thread.join(15)


def test_list_prices_outlive_a_restart_with_their_age(
    cloud: SandboxCloud, clock: Clock, start: Callable[[], AwsProvider], pool: BurstPool
) -> None:
    first = offer(start(), pool)
    assert (first.price_source, first.priced_at) == ("pricing API", clock.at)
    asked = cloud.state().calls["AWSPriceListService.GetProducts"]
    clock.at += 3600
    again = offer(start(), pool)
    assert (again.price_micros_per_hour, again.priced_at) == (
        first.price_micros_per_hour,
        clock.at - 3600,
    )
    assert cloud.state().calls["AWSPriceListService.GetProducts"] == asked


def test_old_prices_stand_while_they_are_renewed_and_say_when_they_cannot_be(
    cloud: SandboxCloud, clock: Clock, start: Callable[[], AwsProvider], pool: BurstPool
) -> None:
    provider = start()
    first = offer(provider, pool)
    cloud.fault(
        "AWSPriceListService.GetProducts", code="AccessDeniedException", http_status=400, times=None
    )
    clock.at += 1.5 * DAY_S
    stale = offer(provider, pool)
    assert stale.price_source == "pricing API, not renewed since"
    assert stale.priced_at == first.priced_at
    wait_for_fetches()
    cloud.clear_faults()
    clock.at += 600
    offer(provider, pool)
    wait_for_fetches()
    fresh = offer(provider, pool)
    assert (fresh.price_source, fresh.priced_at) == ("pricing API", clock.at)


def test_without_the_pricing_api_the_table_stands_in_and_says_so(
    cloud: SandboxCloud, start: Callable[[], AwsProvider], pool: BurstPool
) -> None:
    cloud.fault(
        "AWSPriceListService.GetProducts", code="AccessDeniedException", http_status=400, times=None
    )
    assert offer(start(), pool).price_source.startswith("built-in table of ")


def test_a_type_that_a_pool_adds_is_asked_for_at_once(
    start: Callable[[], AwsProvider], pool: BurstPool
) -> None:
    provider = start()
    offer(provider, pool)
    more = pool.model_copy(update={"machine_types": ("g5.xlarge", "p4d.24xlarge")})
    added = offer(provider, more, f"{ZONE}/p4d.24xlarge/on_demand")
    assert added.price_source == "pricing API"


def test_a_spot_price_that_has_risen_tells_of_interruptions_and_a_steady_one_does_not(
    cloud: SandboxCloud, clock: Clock, start: Callable[[], AwsProvider], pool: BurstPool
) -> None:
    cloud.script_spot_prices(
        [
            SpotPrice(zone=ZONE, machine_type="g5.xlarge", at_s=0, usd_per_hour=Decimal("0.40")),
            SpotPrice(
                zone=ZONE, machine_type="g5.xlarge", at_s=DAY_S, usd_per_hour=Decimal("0.60")
            ),
            SpotPrice(zone=OTHER, machine_type="g5.xlarge", at_s=0, usd_per_hour=Decimal("0.40")),
        ]
    )
    clock.at += DAY_S + 60
    provider = start()
    risen = offer(provider, pool, f"{ZONE}/g5.xlarge/spot")
    steady = offer(provider, pool, f"{OTHER}/g5.xlarge/spot")
    assert (risen.price_micros_per_hour, risen.price_pressure) == (600_000, 2.0)
    assert (steady.price_micros_per_hour, steady.price_pressure) == (400_000, 1.0)
    assert risen.interruptions_per_hour == pool.interruptions_per_hour
    # a day later that price is the usual one
    clock.at += DAY_S + 3700
    assert offer(provider, pool, f"{ZONE}/g5.xlarge/spot").price_pressure == 1.0
