"""Gangs on EC2: a placement group for each, and adapters for their machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hybrid.domain.job_spec import Market
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import BootInfo, MachineState
from hybrid.ports.errors import CapacityUnavailable, Gone, InUse
from providers.aws import create
from providers.aws.provider import AwsProvider
from providers.conformance import a_claim
from providers.sandbox.cloud import SandboxCloud
from tests.integration.sandbox.conftest import eventually

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("sandbox-cloud")]

BOOT = BootInfo(installation="inst", server_url="http://127.0.0.1:1", checkpoint_url="file:///no")


@pytest.fixture
def provider(cloud: SandboxCloud, monkeypatch: pytest.MonkeyPatch) -> AwsProvider:
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    return create(name="aws", region="us-east-1", installation="inst", endpoint_url=cloud.url)


def a_pool(cloud: SandboxCloud, machine_type: str = "g5.xlarge", **fields: Any) -> BurstPool:
    document = {
        "kind": "burst",
        "name": "cloud",
        "provider": "aws",
        "region": "us-east-1",
        "zones": [{"name": "us-east-1a", "subnet": cloud.subnets["us-east-1a"]}],
        "template": {"image": cloud.image_id},
        "machine_types": [machine_type],
        "markets": ["on_demand"],
        "ceilings": {"machines": 10, "usd_per_hour": 1000},
        "gangs": {"placement_group": True},
        **fields,
    }
    spec = POOL_SPEC.validate_python(document)
    assert isinstance(spec, BurstPool)
    return spec


def request(provider: AwsProvider, pool: BurstPool, claim: str, gang: str = "g-1") -> str:
    (offer,) = provider.offers([pool]).usable
    assert offer.market is Market.ON_DEMAND
    return provider.prepare(replace(a_claim(claim, offer, BOOT), gang=gang), pool, BOOT)


def groups(cloud: SandboxCloud) -> list[str]:
    found = cloud.client("ec2").describe_placement_groups()["PlacementGroups"]
    return [each["GroupName"] for each in found]


def test_the_machines_of_a_gang_share_one_group_which_is_left_over_after_them(
    cloud: SandboxCloud, provider: AwsProvider
) -> None:
    pool = a_pool(cloud)
    cloud.client("ec2").create_placement_group(GroupName="foreign", Strategy="cluster")
    requests = [request(provider, pool, claim) for claim in ("c-1", "c-2")]
    made = [provider.launch(each, "token") for each in requests]
    assert provider.launch(requests[0], "token").id == made[0].id, "a repeat makes nothing new"
    assert groups(cloud) == ["foreign", "hybrid-inst-g-1"]
    (left,) = provider.leftovers()
    assert (left.kind, left.id, left.gang, left.claim_id) == (
        "placement group",
        "hybrid-inst-g-1",
        "g-1",
        None,
    )
    with pytest.raises(InUse):
        provider.remove(left)
    for machine in made:
        provider.terminate(machine.id)
    eventually(lambda: {m.state for m in provider.list_machines()} == {MachineState.ENDED})
    provider.remove(left)
    assert groups(cloud) == ["foreign"]
    with pytest.raises(Gone):
        provider.remove(left)


def test_a_group_that_cannot_be_made_refuses_the_offer_and_launches_nothing(
    cloud: SandboxCloud, provider: AwsProvider
) -> None:
    prepared = request(provider, a_pool(cloud), "c-1")
    cloud.fault("CreatePlacementGroup", code="PlacementGroupLimitExceeded", http_status=400)
    with pytest.raises(CapacityUnavailable) as refusal:
        provider.launch(prepared, "token")
    assert refusal.value.scope == "offer:cloud/us-east-1a/g5.xlarge/on_demand"
    assert cloud.instances() == ()
    made = provider.launch(prepared, "token")
    assert [view.instance_id for view in cloud.instances()] == [made.id]


def test_a_machine_of_a_gang_is_launched_with_its_adapters(
    cloud: SandboxCloud, provider: AwsProvider
) -> None:
    ec2 = cloud.client("ec2")
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    pool = a_pool(
        cloud,
        "p4d.24xlarge",
        template={"image": cloud.image_id, "security_groups": [group]},
        gangs={"efa": True},
    )
    made = provider.launch(request(provider, pool, "c-1"), "token")
    (found,) = ec2.describe_instances(InstanceIds=[made.id])["Reservations"][0]["Instances"]
    # moto keeps one interface for each device index, whatever the card
    assert {i["Attachment"]["DeviceIndex"] for i in found["NetworkInterfaces"]} == {0, 1}
    assert {i["SubnetId"] for i in found["NetworkInterfaces"]} == {cloud.subnets["us-east-1a"]}
