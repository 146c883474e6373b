"""The capacity contract on AWS, against the sandbox's EC2."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from hybrid.domain.ids import MachineId
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import BootInfo
from providers.aws import create
from providers.aws.provider import AwsProvider
from providers.conformance import CapacityContract
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import Market, SandboxConfig

ZONE, TYPE, VCPUS = "us-east-1a", "g5.xlarge", 4

pytestmark = pytest.mark.xdist_group("sandbox-cloud")


class UnrulyEc2:
    """The sandbox's EC2, told to misbehave."""

    def __init__(self, sandbox: SandboxCloud) -> None:
        self.sandbox = sandbox

    def exhaust(self) -> None:
        self.sandbox.exhaust(zone=ZONE, machine_type=TYPE)

    def run_out_of_quota(self) -> None:
        for market in Market:
            self.sandbox.set_quota("G and VT", market, 0)

    def limit_quota_to_one_machine(self) -> None:
        for view in self.sandbox.state().live:
            self.sandbox.terminate(view.instance_id)
        for market in Market:
            self.sandbox.set_quota("G and VT", market, VCPUS)

    def throttle_launches(self) -> None:
        self.sandbox.fault("RunInstances", code="RequestLimitExceeded", http_status=503)

    def refuse_credentials(self) -> None:
        self.sandbox.fault("RunInstances", code="AuthFailure", http_status=401)

    def lose_the_next_answer(self) -> None:
        self.sandbox.fault("RunInstances", execute_then_lose=True)

    def fail_strangely(self) -> None:
        self.sandbox.fault("RunInstances", code="SomethingNew", http_status=400)

    def break_listing(self) -> None:
        self.sandbox.fault("DescribeInstances", code="InternalError", http_status=500, times=5)

    def interrupt(self, machine_id: MachineId) -> None:
        self.sandbox.interrupt(machine_id, 0.0)

    def user_data(self, machine_id: MachineId) -> str:
        answer = self.sandbox.client("ec2").describe_instance_attribute(
            InstanceId=machine_id, Attribute="userData"
        )
        return base64.b64decode(answer["UserData"]["Value"]).decode()

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 15
        while not until():
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxCloud]:
    with SandboxCloud(SandboxConfig(machines=False)) as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def _credentials(sandbox: SandboxCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cloud(sandbox: SandboxCloud) -> Iterator[UnrulyEc2]:
    yield UnrulyEc2(sandbox)
    sandbox.clear_faults()
    sandbox.restore(zone=ZONE, machine_type=TYPE)
    for market in Market:
        sandbox.set_quota("G and VT", market, 10_000)


@pytest.fixture
def boot() -> BootInfo:
    """An installation of its own for each test: their machines do not see each other."""
    return BootInfo(
        installation=f"inst-{uuid.uuid4().hex[:12]}",
        server_url="http://127.0.0.1:1",
        checkpoint_url="file:///nowhere",
    )


@pytest.fixture
def provider(sandbox: SandboxCloud, boot: BootInfo) -> AwsProvider:
    return create(
        name="aws",
        region="us-east-1",
        installation=boot.installation,
        endpoint_url=sandbox.url,
    )


@pytest.fixture
def stranger(sandbox: SandboxCloud) -> AwsProvider:
    return create(name="aws", region="us-east-1", installation="stranger", endpoint_url=sandbox.url)


@pytest.fixture
def pool(sandbox: SandboxCloud) -> BurstPool:
    document = {
        "kind": "burst",
        "name": "cloud",
        "provider": "aws",
        "region": "us-east-1",
        "zones": [{"name": ZONE, "subnet": sandbox.subnets[ZONE]}],
        "template": {"image": sandbox.image_id},
        "machine_types": [TYPE],
        "markets": ["spot", "on_demand"],
        "ceilings": {"machines": 10, "usd_per_hour": 100},
    }
    spec = POOL_SPEC.validate_python(document)
    assert isinstance(spec, BurstPool)
    return spec


@pytest.mark.usefixtures("cloud")
class TestAwsCapacity(CapacityContract):
    """Every item of the contract."""
