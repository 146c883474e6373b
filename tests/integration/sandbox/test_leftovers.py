"""EC2 volumes that did not go with their machines."""

from __future__ import annotations

from typing import Any

import pytest

from hybrid.ports.errors import AuthFailed, Gone, InUse
from providers.aws import create
from providers.aws.provider import AwsProvider
from providers.aws.requests import TAG_CLAIM, TAG_INSTALLATION
from providers.sandbox.cloud import SandboxCloud
from tests.integration.sandbox.conftest import launch

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("sandbox-cloud")]

OURS = {TAG_INSTALLATION: "inst", TAG_CLAIM: "c-1"}


@pytest.fixture
def provider(cloud: SandboxCloud, monkeypatch: pytest.MonkeyPatch) -> AwsProvider:
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    return create(name="aws", region="us-east-1", installation="inst", endpoint_url=cloud.url)


def specification(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": listed}]


def volume(cloud: SandboxCloud, **tags: str) -> str:
    made = cloud.client("ec2").create_volume(
        AvailabilityZone="us-east-1a", Size=8, TagSpecifications=specification("volume", tags)
    )
    id_: str = made["VolumeId"]
    return id_


def test_a_volume_of_ours_that_nothing_uses_is_left_over_and_a_foreign_one_never(
    cloud: SandboxCloud, provider: AwsProvider
) -> None:
    ours = volume(cloud, **OURS)
    foreign = volume(cloud, **{TAG_INSTALLATION: "other", TAG_CLAIM: "c-1"})
    volume(cloud, team="red")
    (left,) = provider.leftovers()
    assert (left.kind, left.id, left.place, left.claim_id) == ("disk", ours, "us-east-1a", "c-1")
    provider.remove(left)
    assert provider.leftovers() == ()
    with pytest.raises(Gone):
        provider.remove(left)
    there = cloud.client("ec2").describe_volumes(VolumeIds=[foreign])
    assert there["Volumes"][0]["State"] == "available"


def test_a_volume_that_is_attached_is_not_left_over_and_is_not_removed(
    cloud: SandboxCloud, provider: AwsProvider
) -> None:
    id_ = volume(cloud, **OURS)
    (left,) = provider.leftovers()
    ec2 = cloud.client("ec2")
    ec2.attach_volume(VolumeId=id_, InstanceId=launch(cloud), Device="/dev/sdf")
    assert provider.leftovers() == ()
    with pytest.raises(InUse):
        provider.remove(left)


def test_a_server_that_may_not_look_says_so(cloud: SandboxCloud, provider: AwsProvider) -> None:
    cloud.fault("DescribeVolumes", code="UnauthorizedOperation", http_status=403)
    with pytest.raises(AuthFailed):
        provider.leftovers()
