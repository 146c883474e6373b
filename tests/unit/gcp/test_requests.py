"""Insert requests, names and labels as Compute Engine takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from hybrid.domain.ids import ClaimId, JobId, claim_id
from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo
from providers.gcp.names import (
    WrittenType,
    claim_of,
    instance_name,
    read_type,
    request_id,
    token_labels,
)
from providers.gcp.requests import LONGEST_RUN_S, prepare, read
from providers.user_data import JOIN_TOKEN
from tests.doubles.build import a_burst_pool, a_claim, an_offer

ZONE = "us-central1-a"
BOOT = BootInfo(installation="inst", server_url="https://hq:8440", checkpoint_url="gs://b")
IMAGE = "projects/p/global/images/node"


def pool(**fields: Any) -> BurstPool:
    document = {
        "provider": "gcp",
        "region": "us-central1",
        "zones": [{"name": ZONE}],
        "template": {"image": IMAGE},
        "machine_types": ["g2-standard-4"],
        **fields,
    }
    spec = a_burst_pool(**document).spec
    assert isinstance(spec, BurstPool)
    return spec


def stored(
    market: Market = Market.SPOT, machine_type: str = "g2-standard-4", **fields: Any
) -> dict[str, Any]:
    offer = an_offer(market=market, zone=ZONE, machine_type=machine_type, quota_family="L4")
    asked: dict[str, Any] = json.loads(prepare(a_claim(offer=offer), pool(**fields), BOOT))
    return asked


def body(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = stored(**fields)["body"]
    return made


@pytest.mark.parametrize(
    ("market", "model"), [(Market.SPOT, "SPOT"), (Market.ON_DEMAND, "STANDARD")]
)
def test_a_machine_is_deleted_when_it_is_taken_or_has_run_for_its_longest(
    market: Market, model: str
) -> None:
    assert body(market=market)["scheduling"] == {
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "provisioningModel": model,
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(LONGEST_RUN_S)},
    }


def test_the_outer_bound_is_months_beyond_any_lease_and_within_what_the_api_takes() -> None:
    assert 86_400 * 60 <= LONGEST_RUN_S <= 86_400 * 120


def test_a_boot_disk_goes_with_its_machine_and_bears_its_labels() -> None:
    (disk,) = body(disk=50)["disks"]
    assert (disk["boot"], disk["autoDelete"]) == (True, True)
    assert disk["initializeParams"]["sourceImage"] == IMAGE
    assert disk["initializeParams"]["diskSizeGb"] == "50"
    assert disk["initializeParams"]["labels"]["hybrid-installation"] == "inst"


def test_a_template_brings_its_own_disks_and_network() -> None:
    asked = stored(template={"id": "node-template"})
    assert asked["params"]["sourceInstanceTemplate"] == "global/instanceTemplates/node-template"
    assert not {"disks", "networkInterfaces"} & set(asked["body"])


def test_subnet_service_account_tags_and_reservation_are_passed_on() -> None:
    made = body(
        market=Market.ON_DEMAND,
        zones=[{"name": ZONE, "subnet": "regions/us-central1/subnetworks/gpu"}],
        template={
            "image": IMAGE,
            "instance_profile": "node@p.iam.gserviceaccount.com",
            "security_groups": ["gang"],
            "reservation": "week-31",
        },
    )
    assert made["networkInterfaces"] == [{"subnetwork": "regions/us-central1/subnetworks/gpu"}]
    assert made["serviceAccounts"][0]["email"] == "node@p.iam.gserviceaccount.com"
    assert made["tags"] == {"items": ["gang"]}
    assert made["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["week-31"],
    }


def test_gpus_are_attached_to_a_type_that_has_none() -> None:
    made = body(
        machine_type="n1-standard-8+2xnvidia-tesla-t4",
        machine_types=["n1-standard-8+2xnvidia-tesla-t4"],
    )
    assert made["machineType"] == f"zones/{ZONE}/machineTypes/n1-standard-8"
    assert made["guestAccelerators"] == [
        {
            "acceleratorType": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4",
            "acceleratorCount": 2,
        }
    ]


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("g2-standard-4", WrittenType("g2-standard-4")),
        ("n1-standard-8+nvidia-tesla-t4", WrittenType("n1-standard-8", "nvidia-tesla-t4", 1)),
        ("n1-standard-8+4xnvidia-tesla-t4", WrittenType("n1-standard-8", "nvidia-tesla-t4", 4)),
        ("n1-standard-8+", WrittenType("n1-standard-8+")),
    ],
)
def test_how_a_pool_writes_a_machine_type(written: str, read_as: WrittenType) -> None:
    assert read_type(written) == read_as


def test_labels_name_installation_claim_pool_and_team_and_no_pool_tag_can_hide_them() -> None:
    assert body(tags={"hybrid-claim": "other", "cost.center": "R:D"})["labels"] == {
        "hybrid-installation": "inst",
        "hybrid-claim": "c1",
        "hybrid-token": "token-c1",
        "hybrid-pool": "cloud",
        "hybrid-team": "red",
        "cost-center": "r-d",
    }


def test_a_token_of_64_digits_reads_back_from_two_labels() -> None:
    token = "ab" * 32
    labels = token_labels(token)
    assert all(len(value) <= 63 for value in labels.values())
    assert labels["hybrid-token"] + labels["hybrid-token-rest"] == token


def test_an_installation_that_cannot_be_a_label_is_refused_with_the_reason() -> None:
    boot = BootInfo(installation="Head Office", server_url="https://h", checkpoint_url="")
    with pytest.raises(ValueError, match="'Head Office' cannot be a label"):
        prepare(a_claim(offer=an_offer(zone=ZONE)), pool(), boot)


def test_the_token_stands_only_in_what_is_sent() -> None:
    request = prepare(a_claim(offer=an_offer(zone=ZONE)), pool(), BOOT)
    assert "secret" not in request
    assert json.loads(request)["user_data"].count(JOIN_TOKEN) == 1
    (item,) = read(request, "secret").body["metadata"]["items"]
    assert item["key"] == "user-data"
    assert "secret" in item["value"]


def test_the_lease_is_armed_first_and_the_agent_listens_to_compute_engine() -> None:
    told = yaml.safe_load(stored()["user_data"])
    assert told["runcmd"][0][-1] == "hybrid-lease.service"
    agent = next(f for f in told["write_files"] if f["path"].endswith("agent.json"))
    assert json.loads(agent["content"])["cloud"] == "gcp"


def test_the_name_of_an_instance_tells_its_claim_and_nobody_elses() -> None:
    claim = claim_id(JobId("jabcdefghij"), 12, 3, 4)
    name = instance_name("inst", claim)
    assert len(name) <= 63
    assert claim_of("inst", name) == claim
    assert claim_of("other", name) is None
    assert claim_of("inst", "somebody-elses") is None


def test_a_claim_that_cannot_be_a_name_goes_by_a_digest() -> None:
    claim = ClaimId("c-" + "x" * 80)
    name = instance_name("inst", claim)
    assert len(name) <= 63
    assert claim_of("inst", name) is None
    assert name != instance_name("inst", ClaimId("c-" + "y" * 80))


def test_a_request_id_is_a_uuid_of_its_token() -> None:
    assert request_id("token-c1") == request_id("token-c1")
    assert request_id("token-c1") != request_id("token-c2")
    assert len(request_id("token-c1")) == 36
