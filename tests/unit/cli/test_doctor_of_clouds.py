"""``hybrid doctor CLOUD`` against the sandbox's clouds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hybrid.cli.exits import Exit
from providers.gcp.permissions import PERMISSIONS
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import SandboxConfig
from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig
from tests.unit.cli.conftest import Hybrid

pytestmark = pytest.mark.xdist_group("sandbox-cloud")


@pytest.fixture(scope="module")
def ec2() -> Iterator[SandboxCloud]:
    with SandboxCloud(SandboxConfig(machines=False)) as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def _environment(ec2: SandboxCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ec2.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HYBRID_STATE_DIR", str(tmp_path / "state"))


def a_pool(folder: Path, **fields: Any) -> str:
    document = {
        "kind": "burst",
        "name": "cloud",
        "provider": "aws",
        "region": "us-east-1",
        "zones": [{"name": "us-east-1a"}],
        "template": {"image": SandboxConfig().image_id},
        "machine_types": ["g5.xlarge"],
        "ceilings": {"machines": 1, "usd_per_hour": 5},
        **fields,
    }
    file = folder / "pool.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def marks(out: str) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["mark"], each["words"]) for each in json.loads(out)["checks"]}


def test_aws_grants_everything_and_offers_what_the_pool_asks(
    hybrid: Hybrid, ec2: SandboxCloud, tmp_path: Path
) -> None:
    ended = hybrid(
        "doctor", "aws", "--region", "us-east-1", "--pool", a_pool(tmp_path), "-o", "json"
    )
    assert ended.code == Exit.OK
    found = marks(ended.out)
    assert found["ec2:RunInstances"][0] == "ok"
    assert found["servicequotas:ListServiceQuotas"][0] == "ok"
    assert found["offers"] == ("ok", "1 of 1")
    assert ec2.instances() == ()


def test_what_is_granted_for_tagged_things_alone_cannot_be_told_without_one(
    hybrid: Hybrid, ec2: SandboxCloud
) -> None:
    for action in ("TerminateInstances", "DeleteVolume", "DeletePlacementGroup"):
        ec2.fault(action, code="UnauthorizedOperation", http_status=403, times=None)
    try:
        ended = hybrid("doctor", "aws", "--region", "us-east-1", "-o", "json")
    finally:
        ec2.clear_faults()
    found = marks(ended.out)
    for action in ("TerminateInstances", "DeleteVolume", "DeletePlacementGroup"):
        mark, words = found[f"ec2:{action}"]
        assert mark not in ("ok", "failed")
        assert "nothing of ours there to try it with" in words
    assert "missing" not in found


@pytest.mark.parametrize("refused", [False, True])
def test_placing_gangs_is_tried_for_pools_that_want_it(
    hybrid: Hybrid, ec2: SandboxCloud, tmp_path: Path, refused: bool
) -> None:
    pool = a_pool(tmp_path, gangs={"placement_group": True})
    if refused:
        ec2.fault("CreatePlacementGroup", code="UnauthorizedOperation", http_status=403, times=None)
    try:
        ended = hybrid("doctor", "aws", "--region", "us-east-1", "--pool", pool, "-o", "json")
    finally:
        ec2.clear_faults()
    assert marks(ended.out)["ec2:CreatePlacementGroup"][0] == ("failed" if refused else "ok")
    assert ec2.client("ec2").describe_placement_groups()["PlacementGroups"] == []


@pytest.mark.parametrize("refused", [(), ("ReceiveMessage",), ("DeleteMessage",)])
def test_a_queue_of_notices_is_tried_too(
    hybrid: Hybrid, ec2: SandboxCloud, tmp_path: Path, refused: tuple[str, ...]
) -> None:
    queue = ec2.client("sqs").create_queue(QueueName="doctor")["QueueUrl"]
    ec2.client("sqs").send_message(QueueUrl=queue, MessageBody="kept")
    settings = tmp_path / "config.yaml"
    provider = {
        "name": "east",
        "kind": "aws",
        "region": "us-east-1",
        "options": {"notice_queue": queue},
    }
    settings.write_text(yaml.safe_dump({"providers": [provider]}))
    for action in refused:
        ec2.fault(f"AmazonSQS.{action}", code="AccessDenied", http_status=403, times=None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HYBRID_CONFIG_FILE", str(settings))
            ended = hybrid(
                "doctor", "east", "--pool", a_pool(tmp_path, provider="east"), "-o", "json"
            )
    finally:
        ec2.clear_faults()
    found = marks(ended.out)
    assert (found["sqs:ReceiveMessage"][0], found["sqs:DeleteMessage"][0]) == tuple(
        "failed" if action in refused else "ok" for action in ("ReceiveMessage", "DeleteMessage")
    )
    assert ended.code == (Exit.FAILED if refused else Exit.OK)
    (kept,) = ec2.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    assert kept["Body"] == "kept"
    ec2.client("sqs").delete_queue(QueueUrl=queue)


def test_what_aws_does_not_grant_is_printed_and_fails(hybrid: Hybrid, ec2: SandboxCloud) -> None:
    for action in ("DescribeInstances", "DescribeSpotPriceHistory"):
        ec2.fault(action, code="UnauthorizedOperation", http_status=403, times=None)
    try:
        ended = hybrid("doctor", "aws", "--region", "us-east-1", "-o", "json")
    finally:
        ec2.clear_faults()
    assert ended.code == Exit.FAILED
    found = marks(ended.out)
    assert found["missing"] == ("failed", "ec2:DescribeInstances, ec2:DescribeSpotPriceHistory")
    assert "no pool to try it with" in found["ec2:RunInstances, ec2:CreateTags, iam:PassRole"][1]


def test_credentials_that_are_refused_are_told_as_such(hybrid: Hybrid, ec2: SandboxCloud) -> None:
    ec2.fault("*", code="AuthFailure", http_status=401, times=None)
    try:
        ended = hybrid("doctor", "aws", "--region", "us-east-1", "-o", "json")
    finally:
        ec2.clear_faults()
    assert ended.code == Exit.FAILED
    mark, words = marks(ended.out)["aws"]
    assert mark == "failed"
    assert "AuthFailure" in words


@pytest.mark.parametrize("lacking", [(), ("compute.instances.create", "compute.regions.get")])
def test_google_tells_what_it_grants(
    hybrid: Hybrid, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    with GceCloud(GceConfig(permissions=frozenset(PERMISSIONS) - frozenset(lacking))) as gce:
        pool = a_pool(
            tmp_path,
            provider="google",
            region="us-central1",
            zones=[{"name": "us-central1-a"}],
            template={"image": gce.config.image},
            machine_types=["g2-standard-4", "g9-unheard-of"],
        )
        settings = tmp_path / "config.yaml"
        provider = {
            "name": "google",
            "kind": "gcp",
            "region": "us-central1",
            "endpoint_url": gce.url,
            "options": {"project": gce.config.project},
        }
        settings.write_text(yaml.safe_dump({"providers": [provider]}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HYBRID_CONFIG_FILE", str(settings))
            ended = hybrid("doctor", "google", "--pool", pool, "-o", "json")
        assert gce.instances() == ()
    found = marks(ended.out)
    assert set(PERMISSIONS) <= set(found)
    assert found["offers"] == ("ok", "1 of 2")
    assert (
        "no machine type g9-unheard-of" in found["cloud/us-central1-a/g9-unheard-of/on_demand"][1]
    )
    if lacking:
        assert ended.code == Exit.FAILED
        assert found["missing"] == ("failed", ", ".join(lacking))
    else:
        assert ended.code == Exit.OK
        assert "missing" not in found


def test_a_cloud_that_nobody_has_set_up_is_told_what_to_name(hybrid: Hybrid) -> None:
    ended = hybrid("doctor", "aws")
    assert ended.code == Exit.USAGE
    assert "no provider 'aws' in the settings: name its --region" in ended.err


def test_a_kind_that_is_not_installed_is_told_which_there_are(hybrid: Hybrid) -> None:
    ended = hybrid("doctor", "azure", "--region", "x")
    assert ended.code == Exit.FAILED
    assert "installed: aws" in ended.out
