"""The capacity contract on Google Cloud, against the sandbox's Compute Engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrid.domain.ids import MachineId
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import BootInfo
from providers.conformance import CapacityContract
from providers.gcp import create
from providers.gcp.provider import GcpProvider
from providers.sandbox.gce.cloud import GceCloud
from providers.sandbox.gce.config import GceConfig

ZONE, TYPE = "us-central1-a", "g2-standard-4"
QUOTAS = ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS")

pytestmark = pytest.mark.xdist_group("sandbox-gce")


class UnrulyGce:
    """The sandbox's Compute Engine, told to misbehave."""

    def __init__(self, sandbox: GceCloud) -> None:
        self.sandbox = sandbox

    def exhaust(self) -> None:
        self.sandbox.exhaust(zone=ZONE, machine_type=TYPE)

    def run_out_of_quota(self) -> None:
        for metric in QUOTAS:
            self.sandbox.set_quota(metric, 0)

    def limit_quota_to_one_machine(self) -> None:
        for view in self.sandbox.instances():
            if view.ended_at is None:
                self.sandbox.delete(view.instance_id)
        for metric in QUOTAS:
            self.sandbox.set_quota(metric, 1)

    def throttle_launches(self) -> None:
        self.sandbox.fault("instances.insert", code="rateLimitExceeded")

    def refuse_credentials(self) -> None:
        self.sandbox.fault("instances.insert", code="authError")

    def lose_the_next_answer(self) -> None:
        self.sandbox.fault("instances.insert", execute_then_lose=True)

    def fail_strangely(self) -> None:
        self.sandbox.fault("instances.insert", code="SOMETHING_NEW")

    def break_listing(self) -> None:
        self.sandbox.fault("instances.aggregatedList", code="backendError", times=5)

    def interrupt(self, machine_id: MachineId) -> None:
        self.sandbox.preempt(machine_id, 0.0)

    def user_data(self, machine_id: MachineId) -> str:
        return self.sandbox.user_data(machine_id)

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 15
        while not until():
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[GceCloud]:
    with GceCloud(GceConfig(operation_s=0.02)) as cloud:
        yield cloud


@pytest.fixture
def cloud(sandbox: GceCloud) -> Iterator[UnrulyGce]:
    yield UnrulyGce(sandbox)
    sandbox.clear_faults()
    sandbox.restore(zone=ZONE, machine_type=TYPE)
    for metric in QUOTAS:
        sandbox.set_quota(metric, None)


@pytest.fixture
def boot() -> BootInfo:
    """An installation of its own for each test: their machines do not see each other."""
    return BootInfo(
        installation=f"inst-{uuid.uuid4().hex[:12]}",
        server_url="http://127.0.0.1:1",
        checkpoint_url="file:///nowhere",
    )


@pytest.fixture
def provider(sandbox: GceCloud, boot: BootInfo, tmp_path: Path) -> GcpProvider:
    return create(
        name="gcp",
        region="us-central1",
        installation=boot.installation,
        endpoint_url=sandbox.url,
        project=sandbox.config.project,
        cache_dir=str(tmp_path),
    )


@pytest.fixture
def stranger(sandbox: GceCloud, tmp_path: Path) -> GcpProvider:
    return create(
        name="gcp",
        region="us-central1",
        installation="stranger",
        endpoint_url=sandbox.url,
        project=sandbox.config.project,
        cache_dir=str(tmp_path),
    )


@pytest.fixture
def pool(sandbox: GceCloud) -> BurstPool:
    document = {
        "kind": "burst",
        "name": "cloud",
        "provider": "gcp",
        "region": "us-central1",
        "zones": [{"name": ZONE}],
        "template": {"image": sandbox.config.image},
        "machine_types": [TYPE],
        "markets": ["spot", "on_demand"],
        "ceilings": {"machines": 10, "usd_per_hour": 100},
        "notice": 30,
    }
    spec = POOL_SPEC.validate_python(document)
    assert isinstance(spec, BurstPool)
    return spec


@pytest.mark.usefixtures("cloud")
class TestGcpCapacity(CapacityContract):
    """Every item of the contract."""
