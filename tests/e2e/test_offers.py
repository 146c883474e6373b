"""What clouds offer, and what they allow, through a server and the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from providers.gcp.permissions import PERMISSIONS
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import SandboxConfig
from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig
from tests.e2e.test_cli import Place

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-cli"), pytest.mark.timeout(300)]

POLICY = """
budgets: [{name: all, limit_usd: 100, period: lifetime}]
priority_classes: {normal: {value_per_hour: 400}}
"""
DEADLINE_S = 60.0


class Market:
    """Two clouds, a server that has a pool in each, and its command line."""

    def __init__(self, place: Place, ec2: SandboxCloud, gce: GceCloud) -> None:
        self.place, self.ec2, self.gce = place, ec2, gce

    def json(self, *arguments: str) -> Any:
        done = self.place.hybrid(*arguments, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def offers(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("offers", *arguments)["offers"]
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, self.place.errors()[-3000:]
            time.sleep(0.3)


def pools(ec2: SandboxCloud, gce: GceCloud) -> dict[str, dict[str, Any]]:
    both = {"kind": "burst", "markets": ["spot", "on_demand"]}
    ceilings = {"machines": 4, "usd_per_hour": 200}
    return {
        "east": {
            **both,
            "name": "east",
            "provider": "aws",
            "region": "us-east-1",
            "zones": [{"name": "us-east-1a"}],
            "template": {"image": ec2.image_id},
            "machine_types": ["g5.xlarge", "g5.12xlarge", "p4d.24xlarge"],
            "ceilings": ceilings,
        },
        "central": {
            **both,
            "name": "central",
            "provider": "gcp",
            "region": "us-central1",
            "zones": [{"name": "us-central1-a"}],
            "template": {"image": gce.config.image},
            "machine_types": ["g2-standard-4", "n1-standard-8+nvidia-tesla-t4"],
            "ceilings": ceilings,
        },
    }


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    folder = tmp_path_factory.mktemp("market")
    place = Place(folder)
    with (
        SandboxCloud(SandboxConfig(machines=False)) as ec2,
        GceCloud(GceConfig(permissions=frozenset(PERMISSIONS))) as gce,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in ec2.environment().items():
            patch.setenv(name, value)
        (folder / "policy.yaml").write_text(POLICY)
        _settings(place, ec2, gce)
        place.start()
        try:
            made = Market(place, ec2, gce)
            for name, document in pools(ec2, gce).items():
                file = folder / f"{name}.yaml"
                file.write_text(yaml.safe_dump(document))
                made.json("pools", "apply", "-f", str(file))
            made.until(lambda: {o["pool"] for o in made.offers()} == {"east", "central"})
            yield made
        finally:
            place.end()
            for process in place.processes:
                process.communicate(timeout=DEADLINE_S)


def _settings(place: Place, ec2: SandboxCloud, gce: GceCloud) -> None:
    place.state_dir.mkdir()
    (place.state_dir / "config.yaml").write_text(
        yaml.safe_dump(
            {
                "policy_file": str(place.folder / "policy.yaml"),
                "offers_every_s": 1.0,
                "providers": [
                    {"name": "aws", "kind": "aws", "region": ec2.region, "endpoint_url": ec2.url},
                    {
                        "name": "gcp",
                        "kind": "gcp",
                        "region": "us-central1",
                        "endpoint_url": gce.url,
                        "options": {"project": gce.config.project},
                    },
                ],
            }
        )
    )


def figures(table: str, column: str) -> list[float]:
    """A column of a printed table, as numbers."""
    head, *rows = [line for line in table.splitlines() if line.strip()]
    end = head.index(column) + len(column)
    cells = [row[:end].split()[-1] for row in rows]
    return [float(cell.removeprefix("$").replace(",", "")) for cell in cells]


def test_offers_are_those_of_a_gpu_by_any_name_it_goes_by(market: Market) -> None:
    assert {offer["machine_type"] for offer in market.offers("--gpu", "a10g")} == {
        "g5.xlarge",
        "g5.12xlarge",
    }
    assert {offer["machine_type"] for offer in market.offers("--gpu", "A100")} == {"p4d.24xlarge"}
    assert {offer["pool"] for offer in market.offers("--gpu", "l4")} == {"central"}
    refused = market.place.hybrid("offers", "--gpu", "nonsense")
    assert refused.returncode == 2
    assert "--gpu" in refused.stderr


def test_offers_are_those_of_a_market_cheapest_first(market: Market) -> None:
    spot = market.offers("--market", "spot")
    assert {offer["market"] for offer in spot} == {"spot"}
    prices = [float(offer["price_usd_per_hour"]) for offer in spot]
    assert prices == sorted(prices)
    assert len(spot) * 2 == len(market.offers())


@pytest.mark.parametrize(("order", "column"), [("price", "price/h"), ("gpu", "GPU/h")])
def test_offers_are_sorted_by_what_the_machine_or_one_gpu_costs(
    market: Market, order: str, column: str
) -> None:
    shown = figures(market.place.hybrid("offers", "--sort", order).stdout, column)
    assert len(shown) == 10
    assert shown == sorted(shown)


def test_offers_are_sorted_by_the_work_done_which_depends_on_what_bounds_it(
    market: Market,
) -> None:
    first = {}
    for profile in ("compute", "latency"):
        arguments = ("offers", "--market", "on_demand", "--sort", "speed", "--profile", profile)
        shown = figures(market.place.hybrid(*arguments).stdout, "A100/h")
        assert shown == sorted(shown)
        first[profile] = [offer["machine_type"] for offer in market.json(*arguments)["offers"]]
    assert first["compute"] != first["latency"]


def test_an_offer_that_was_refused_shows_what_closes_it_and_until_when(market: Market) -> None:
    market.ec2.exhaust(machine_type="g5.xlarge")
    job = market.place.hybrid(
        "submit", "--gpus", "1", "--gpu", "a10g", "--expected", "2h", "--", "true"
    )
    assert job.returncode == 0, job.stderr

    def closed() -> list[dict[str, Any]]:
        return [offer for offer in market.offers() if offer["breaker"] is not None]

    try:
        market.until(lambda: bool(closed()))
        (offer, *_) = closed()
        assert offer["machine_type"] == "g5.xlarge"
        assert "InsufficientInstanceCapacity" in offer["breaker"]["cause"]
        table = market.place.hybrid("offers", "--gpu", "a10g").stdout
        assert "InsufficientInstanceCapacity" in table
    finally:
        market.place.hybrid("cancel", job.stdout.split()[0])
        market.ec2.restore(machine_type="g5.xlarge")


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_doctor_finds_all_that_a_cloud_must_allow(market: Market, cloud: str) -> None:
    pool = market.place.folder / {"aws": "east.yaml", "gcp": "central.yaml"}[cloud]
    done = market.place.hybrid("doctor", cloud, "--pool", str(pool))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing" not in done.stdout


def test_the_doctor_names_what_a_cloud_does_not_allow(market: Market) -> None:
    market.ec2.fault("RunInstances", code="UnauthorizedOperation", http_status=403, times=None)
    try:
        done = market.place.hybrid(
            "doctor", "aws", "--pool", str(market.place.folder / "east.yaml")
        )
    finally:
        market.ec2.clear_faults()
    assert done.returncode == 1
    assert "ec2:RunInstances" in done.stdout
