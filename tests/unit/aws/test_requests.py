"""Requests, user data, errors and instances as EC2 writes them."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    NoCredentialsError,
    ReadTimeoutError,
)

from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import BurstPool
from hybrid.ports.capacity import BootInfo, MachineState
from hybrid.ports.errors import (
    AuthFailed,
    CapacityUnavailable,
    Gone,
    InUse,
    InvalidRequest,
    OutcomeUnknown,
    PortError,
    QuotaExceeded,
    RateLimited,
)
from providers.aws.errors import CODES, Kind, Scopes, translated, typed
from providers.aws.machine_facts import fabric_adapters
from providers.aws.machines import machine
from providers.aws.quotas import quota_code, quota_family
from providers.aws.requests import (
    TAG_GANG,
    TAG_INSTALLATION,
    TAG_POOL,
    parameters,
    placement_group,
    prepare,
)
from providers.user_data import JOIN_TOKEN, render
from tests.doubles.build import a_burst_pool, a_claim, an_offer

BOOT = BootInfo(installation="inst", server_url="https://hq:8440", checkpoint_url="s3://b")
SCOPES = Scopes(
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    offer="cloud/us-east-1a/g5.xlarge/spot",
    family="G and VT",
    market="spot",
)


def pool(**fields: Any) -> BurstPool:
    spec = a_burst_pool(**fields).spec
    assert isinstance(spec, BurstPool)
    return spec


def params(market: Market = Market.SPOT, **fields: Any) -> dict[str, Any]:
    claim = a_claim(offer=an_offer(market=market))
    return parameters(prepare(claim, pool(**fields), BOOT), "secret")


def test_a_spot_request_bids_the_ceiling_once_and_ends_itself_on_shutdown() -> None:
    asked = params()
    assert asked["InstanceMarketOptions"]["SpotOptions"] == {
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
        "MaxPrice": "1.2",
    }
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["MetadataOptions"]["HttpTokens"] == "required"
    assert "InstanceMarketOptions" not in params(Market.ON_DEMAND)


def test_a_template_zone_and_profile_are_passed_on() -> None:
    asked = params(
        template={
            "id": "lt-1",
            "version": "7",
            "instance_profile": "node",
            "security_groups": ["sg-1"],
        },
        zones=[{"name": "us-east-1a", "subnet": "subnet-9"}],
    )
    assert asked["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "Version": "7"}
    assert asked["IamInstanceProfile"] == {"Name": "node"}
    assert asked["SecurityGroupIds"] == ["sg-1"]
    assert asked["SubnetId"] == "subnet-9"
    assert "Placement" not in asked
    assert params()["Placement"] == {"AvailabilityZone": "us-east-1a"}


def gang_request(adapters: int = 0, gang: str = "g-j1-1-0", **fields: Any) -> str:
    claim = a_claim(offer=an_offer(), gang=gang)
    return prepare(claim, pool(**fields), BOOT, adapters=adapters)


GROUPED = {"template": {"id": "lt-1", "security_groups": ["sg-1"]}, "gangs": {"efa": True}}


def test_a_gang_goes_into_a_placement_group_that_its_request_holds() -> None:
    request = gang_request(gangs={"placement_group": True})
    asked = parameters(request, "secret")
    group = placement_group(request)
    assert group is not None
    assert asked["Placement"] == {
        "AvailabilityZone": "us-east-1a",
        "GroupName": "hybrid-inst-g-j1-1-0",
    }
    assert (group["GroupName"], group["Strategy"]) == ("hybrid-inst-g-j1-1-0", "cluster")
    tags = {tag["Key"]: tag["Value"] for tag in group["TagSpecifications"][0]["Tags"]}
    assert tags == {
        TAG_INSTALLATION: "inst",
        TAG_GANG: "g-j1-1-0",
        TAG_POOL: "cloud",
    }
    alone = gang_request(gang="", gangs={"placement_group": True})
    assert placement_group(alone) is None
    assert "GroupName" not in parameters(alone, "")["Placement"]
    assert placement_group(gang_request()) is None


def test_a_gangs_machine_has_an_adapter_on_every_card_and_ip_on_the_first() -> None:
    zones = [{"name": "us-east-1a", "subnet": "subnet-9"}]
    asked = parameters(gang_request(4, zones=zones, **GROUPED), "")
    assert "SecurityGroupIds" not in asked
    assert "SubnetId" not in asked
    first, *others = asked["NetworkInterfaces"]
    assert first == {
        "NetworkCardIndex": 0,
        "DeviceIndex": 0,
        "InterfaceType": "efa",
        "Groups": ["sg-1"],
        "SubnetId": "subnet-9",
        "DeleteOnTermination": True,
    }
    assert [(i["NetworkCardIndex"], i["DeviceIndex"]) for i in others] == [(1, 1), (2, 1), (3, 1)]
    assert {i["InterfaceType"] for i in others} == {"efa-only"}


def test_machines_without_adapters_and_those_of_single_jobs_go_as_they_are() -> None:
    for request in (gang_request(0, **GROUPED), gang_request(4, gang="", **GROUPED)):
        asked = parameters(request, "")
        assert "NetworkInterfaces" not in asked
        assert asked["SecurityGroupIds"] == ["sg-1"]
    with pytest.raises(ValueError, match=r"gangs\.efa needs template\.security_groups"):
        pool(gangs={"efa": True})


def test_adapters_are_counted_as_ec2_lists_them() -> None:
    rows = [
        {
            "InstanceType": "p4d.24xlarge",
            "NetworkInfo": {"EfaSupported": True, "EfaInfo": {"MaximumEfaInterfaces": 4}},
        },
        {"InstanceType": "g5.xlarge", "NetworkInfo": {"EfaSupported": False}},
        {"InstanceType": "old"},
    ]
    assert fabric_adapters(rows) == {"p4d.24xlarge": 4, "g5.xlarge": 0, "old": 0}


def test_on_demand_machines_come_from_the_reservation_and_spot_ones_cannot() -> None:
    template = {"id": "lt-1", "reservation": "cr-0123"}
    asked = params(Market.ON_DEMAND, template=template)
    assert asked["CapacityReservationSpecification"] == {
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0123"}
    }
    assert "InstanceMarketOptions" not in asked
    assert "CapacityReservationSpecification" not in params(Market.SPOT, template=template)


def test_a_capacity_block_is_bought_as_one() -> None:
    template = {"id": "lt-1", "reservation": "cr-0123", "capacity_block": True}
    asked = params(Market.ON_DEMAND, template=template)
    assert asked["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    with pytest.raises(ValueError, match="named as the template's reservation"):
        pool(template={"id": "lt-1", "capacity_block": True})


def test_tags_name_installation_claim_pool_and_team_and_no_pool_tag_can_hide_them() -> None:
    asked = params(tags={"hybrid.x": "y", "cost-center": "42"})
    tags = {t["Key"]: t["Value"] for t in asked["TagSpecifications"][0]["Tags"]}
    assert tags["hybrid:claim"] == "c1"
    assert tags["hybrid:installation"] == "inst"
    assert tags["cost-center"] == "42"
    assert {t["ResourceType"] for t in asked["TagSpecifications"]} == {"instance", "volume"}


def test_the_token_stands_only_in_what_is_sent() -> None:
    stored = prepare(a_claim(), pool(), BOOT)
    assert "secret" not in stored
    assert json.loads(stored)["user_data"].count(JOIN_TOKEN) == 1
    assert "secret" in parameters(stored, "secret")["UserData"]


def test_user_data_that_ec2_would_refuse_is_refused_before() -> None:
    boot = BootInfo(
        installation="i", server_url="https://h", checkpoint_url="", server_ca_pem="x" * 17_000
    )
    with pytest.raises(ValueError, match="EC2 takes 16384"):
        prepare(a_claim(), pool(), boot)


def test_an_image_without_the_agent_installs_it_after_the_lease_is_armed() -> None:
    told = yaml.safe_load(
        render(a_claim(), pool(boot={"install": "hybrid==0.1"}), BOOT, cloud="aws")
    )
    commands = [" ".join(command) for command in told["runcmd"]]
    assert commands[0].endswith("hybrid-lease.service")
    assert commands[2] == "/opt/hybrid/bin/pip install --quiet hybrid==0.1"
    assert commands[-1].endswith("hybrid-agent.service")


def watchdog(tmp_path: Path, lease_s: int) -> tuple[subprocess.Popen[bytes], Path, Path]:
    told = yaml.safe_load(render(a_claim(), pool(), BOOT, cloud="aws"))
    script = tmp_path / "watchdog.sh"
    script.write_text(told["write_files"][0]["content"])
    flag = tmp_path / "off"
    process = subprocess.Popen(
        ["/bin/sh", str(script), str(lease_s)],
        env={
            "HYBRID_ROOT": str(tmp_path),
            "HYBRID_POWEROFF_COMMAND": f"touch {flag}",
            "PATH": "/usr/bin:/bin",
        },
    )
    return process, tmp_path / "var/lib/hybrid/lease", flag


def appears(path: Path, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if path.exists() and path.stat().st_size >= 0:
            return True
        time.sleep(0.05)
    return False


def test_the_lease_watchdog_ends_the_machine_with_nobody_there(tmp_path: Path) -> None:
    process, _, flag = watchdog(tmp_path, 1)
    try:
        assert appears(flag, 8)
    finally:
        process.kill()
        process.wait(5)


def test_the_lease_watchdog_keeps_to_a_longer_lease_and_to_the_last_readable_one(
    tmp_path: Path,
) -> None:
    process, lease, flag = watchdog(tmp_path, 3600)
    try:
        assert appears(lease, 5)
        lease.write_text("garbage")
        assert not appears(flag, 2.5)
        lease.write_text("1\n")
        assert appears(flag, 8)
    finally:
        process.kill()
        process.wait(5)


# --- errors -----------------------------------------------------------------------------------

EXPECTED = {
    Kind.CAPACITY_OFFER: (CapacityUnavailable, "offer:cloud/us-east-1a/g5.xlarge/spot"),
    Kind.CAPACITY_ZONE: (CapacityUnavailable, "zone:aws/us-east-1a"),
    Kind.QUOTA: (QuotaExceeded, "quota:aws/us-east-1/G and VT/spot"),
    Kind.RATE: (RateLimited, "provider:aws"),
    Kind.AUTH: (AuthFailed, "provider:aws"),
    Kind.INVALID: (InvalidRequest, "offer:cloud/us-east-1a/g5.xlarge/spot"),
}


@pytest.mark.parametrize(("code", "kind"), sorted(CODES.items()))
def test_every_code_has_its_type_and_scope(code: str, kind: Kind) -> None:
    error = typed(code, "said so", SCOPES)
    if kind in (Kind.GONE, Kind.IN_USE):
        assert type(error) is {Kind.GONE: Gone, Kind.IN_USE: InUse}[kind]
        return
    expected, scope = EXPECTED[kind]
    assert type(error) is expected
    assert getattr(error, "scope", None) == scope
    assert getattr(error, "code", None) == code


def test_what_is_not_in_the_table_is_unknown_and_outside_a_launch_the_scope_is_the_provider() -> (
    None
):
    assert isinstance(typed("NeverSeen", "", SCOPES), OutcomeUnknown)
    error = typed("InsufficientInstanceCapacity", "", Scopes(provider="aws", region="r"))
    assert getattr(error, "scope", None) == "provider:aws"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (
            ClientError({"Error": {"Code": "VcpuLimitExceeded", "Message": ""}}, "x"),
            QuotaExceeded,
        ),
        (NoCredentialsError(), AuthFailed),
        (ReadTimeoutError(endpoint_url="http://x"), OutcomeUnknown),
        (ConnectionClosedError(endpoint_url="http://x"), OutcomeUnknown),
    ],
)
def test_a_lost_answer_is_unknown_and_missing_credentials_were_never_sent(
    raised: Exception, expected: type[PortError]
) -> None:
    with pytest.raises(expected), translated(SCOPES):
        raise raised


@pytest.mark.parametrize(
    ("machine_type", "family"),
    [
        ("g5.xlarge", "G and VT"),
        ("g4dn.metal", "G and VT"),
        ("vt1.3xlarge", "G and VT"),
        ("p5.48xlarge", "P"),
        ("inf2.xlarge", "Inf"),
        ("trn1.2xlarge", "Trn"),
        ("m7i.large", "Standard"),
        ("i4i.large", "Standard"),
    ],
)
def test_machine_types_count_against_their_familys_quota(machine_type: str, family: str) -> None:
    assert quota_family(machine_type) == family


# --- instances --------------------------------------------------------------------------------


def an_instance(state: str, **fields: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 7, 1, 10, tzinfo=UTC),
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "Tags": [{"Key": "hybrid:claim", "Value": "c1"}],
        **fields,
    }


def test_the_end_of_an_instance_is_told_by_its_transition_reason() -> None:
    ended = machine(
        an_instance(
            "terminated",
            StateTransitionReason="User initiated (2026-07-01 11:00:00 GMT)",
            StateReason={"Code": "Client.UserInitiatedShutdown", "Message": "by hand"},
        )
    )
    assert ended.state is MachineState.ENDED
    assert ended.ended_at == datetime(2026, 7, 1, 11, tzinfo=UTC).timestamp()
    assert (ended.end_reason, ended.interrupted) == ("by hand", False)


def test_an_instance_taken_back_is_interrupted_and_one_without_a_time_has_none() -> None:
    taken = machine(
        an_instance(
            "terminated",
            InstanceLifecycle="spot",
            StateReason={"Code": "Server.SpotInstanceTermination", "Message": "taken"},
        )
    )
    assert (taken.interrupted, taken.ended_at, taken.market) == (True, None, Market.SPOT)


def test_an_instance_halted_by_hand_is_stopped_and_not_ended() -> None:
    assert machine(an_instance("stopped")).state is MachineState.STOPPED


def test_a_foreign_tag_set_is_no_claim() -> None:
    assert machine(an_instance("running", Tags=[])).claim_id is None


@pytest.mark.parametrize(
    ("machine_type", "market", "code"),
    [
        ("g5.xlarge", Market.SPOT, "L-3819A6DF"),
        ("g5.xlarge", Market.ON_DEMAND, "L-DB2E81BA"),
        ("p4d.24xlarge", Market.SPOT, "L-7212CCBC"),
        ("p5.48xlarge", Market.ON_DEMAND, "L-417A185B"),
        ("p5.48xlarge", Market.SPOT, None),
    ],
)
def test_newer_p_machines_have_spot_quotas_of_their_own(
    machine_type: str, market: Market, code: str | None
) -> None:
    assert quota_code(machine_type, market) == code
