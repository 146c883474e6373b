"""What a machine costs us: 200 claims from the plan until they are ready, and a sweep over 2,000.

The loop is the server's own (observe, sync, plan, lint, commit, act) over SQLite, the provider is
the product's, and the cloud is the sandbox in a process of its own; the nodes are simulated. Only
what happens inside ticks is counted: CPU time of this process, less what boto3 takes for itself.

``python -m benchmarks.provision [--quick]``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.client import BaseClient

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
from hybrid.domain.claim import ClaimState
from hybrid.domain.ids import ClaimId, MachineId
from hybrid.domain.job_spec import JobSpec
from hybrid.domain.pool_spec import POOL_SPEC, BurstPool
from hybrid.ports.capacity import CapacityProvider
from hybrid.ports.observation import MachineFacts
from hybrid.reconcile.machines import orphans
from hybrid.reconcile.rules import SyncRules
from hybrid.runtime.system_clock import SystemClock
from hybrid.simulation.drive import Control
from hybrid.simulation.engine import SimEngine
from hybrid.simulation.wire import Ground, Standing, WireWorld
from hybrid.store.sql_store import SqlStore
from providers import aws, gcp
from providers.aws.requests import TAG_CLAIM, TAG_INSTALLATION
from providers.gcp.names import LABEL_CLAIM, LABEL_INSTALLATION, name_prefix
from providers.sandbox.config import SandboxConfig
from providers.sandbox.process import SandboxHandle, start_sandbox

CLAIMS, SWEPT = 200, 2_000
ALLOWED_CALLS = 3.0
ALLOWED_SWEEP_S = 2.0
INSTALLATION = "sim"
KIND = "g5.xlarge"
SDK_CALL = "_make_api_call"
"""What every method of a boto3 client goes through; it offers no public place to measure."""
POLICY = """
budgets:
  - {name: all, limit_usd: 100000, period: lifetime}
priority_classes:
  normal: {value_per_hour: 50}
"""


@dataclass(slots=True)
class SdkTime:
    """CPU seconds inside boto3, over all threads."""

    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """While inside, every call of a boto3 client is measured."""
        real = getattr(BaseClient, SDK_CALL)

        def timed(client: Any, operation: str, kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return real(client, operation, kwargs)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - begun

        setattr(BaseClient, SDK_CALL, timed)
        try:
            yield
        finally:
            setattr(BaseClient, SDK_CALL, real)


def provisioned(cloud: SandboxHandle, folder: Path, claims: int) -> dict[str, float]:
    """So many claims from nothing to ready."""
    spec = a_pool(cloud)
    watch, sdk = SdkTime(), 0.0
    own = wall = 0.0
    ticks = 0
    with SqlStore.open(f"sqlite:///{folder / 'bench.db'}") as store, cloud.control() as control:
        world = a_world(cloud, spec)
        loop = Control(store, world, call_workers=16)
        try:
            loop.apply_policy(POLICY)
            loop.apply_pool(spec.model_dump(mode="json"))
            for number in range(claims):
                loop.submit(f"j{number:04d}", a_job())
            before = sum(control.state().calls.values())
            with watch.measured():
                while ready(store) < claims:
                    ticks += 1
                    if ticks > 200:
                        raise RuntimeError(f"only {ready(store)} of {claims} claims became ready")
                    world.settle()
                    cpu, sdk, clock = time.process_time(), watch.seconds, time.perf_counter()
                    loop.tick()
                    own += time.process_time() - cpu - (watch.seconds - sdk)
                    wall += time.perf_counter() - clock
            calls = sum(control.state().calls.values()) - before
        finally:
            loop.loop.stop()
    return {
        "claims": claims,
        "ticks": ticks,
        "own_ms_per_claim": round(own / claims * 1000, 2),
        "sdk_ms_per_claim": round(watch.seconds / claims * 1000, 2),
        "wall_ms_per_claim": round(wall / claims * 1000, 2),
        "api_calls_per_claim": round(calls / claims, 2),
    }


def a_pool(cloud: SandboxHandle) -> BurstPool:
    with cloud.control() as control:
        state = control.state()
    zones = [{"name": name, "subnet": subnet} for name, subnet in sorted(state.subnets.items())]
    spec = POOL_SPEC.validate_python(
        {
            "kind": "burst",
            "name": "cloud",
            "provider": "aws",
            "region": state.region,
            "zones": zones,
            "template": {"image": state.image_id},
            "machine_types": [KIND],
            "markets": ["on_demand"],
            "ceilings": {"machines": 10_000, "usd_per_hour": 100_000},
            "boot": {"expected": 0},
        }
    )
    assert isinstance(spec, BurstPool)
    return spec


def a_world(cloud: SandboxHandle, spec: BurstPool) -> WireWorld:
    clock = SystemClock()
    provider = aws.create(
        name="aws", region=spec.region, installation=INSTALLATION, endpoint_url=cloud.url
    )
    control = cloud.control()

    def running() -> Iterator[Standing]:
        for view in control.instances():
            if view.state == "running":
                yield Standing(
                    id=MachineId(view.instance_id),
                    claim_id=ClaimId(view.tags[TAG_CLAIM]),
                    machine_type=view.machine_type,
                    launched_at=view.launched_at,
                )

    def power_off(machine_id: MachineId) -> None:
        control.terminate(machine_id)

    return WireWorld(
        clock,
        {"aws": provider},
        SimEngine("agent", clock, lambda _job: 3600.0),
        (Ground(spec, running, power_off, clock.now),),
        pass_time=time.sleep,
    )


def a_job() -> JobSpec:
    return JobSpec(command=["train"], expected_runtime=7200, walltime=72_000, speeds={"a10g": 1.0})


def ready(store: SqlStore) -> int:
    return sum(claim.state is ClaimState.READY for claim in store.claims())


def swept(provider: CapacityProvider, machines: int) -> float:
    """CPU seconds of one sweep: list everything, and find what no live claim stands for."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        found = provider.list_machines()
        left = orphans(MachineFacts(machines=found, notices=()), {}, 1e12, SyncRules())
        taken.append(time.process_time() - begun)
        if len(left) != machines:
            raise RuntimeError(f"{len(left)} machines were found, not {machines}")
    return round(sorted(taken)[1], 3)


def sweep_aws(cloud: SandboxHandle, machines: int) -> float:
    """Over machines that nobody claims, in an installation of their own."""
    client = boto3.client("ec2", endpoint_url=cloud.url)
    with cloud.control() as control:
        image = control.state().image_id
    for batch in range(machines // 100):
        tags = {TAG_INSTALLATION: "swept", TAG_CLAIM: f"c-{batch}", "Name": f"hybrid {batch}"}
        told = [{"Key": key, "Value": value} for key, value in tags.items()]
        client.run_instances(
            ImageId=image,
            InstanceType=KIND,
            MinCount=100,
            MaxCount=100,
            TagSpecifications=[{"ResourceType": "instance", "Tags": told}],
        )
    provider = aws.create(
        name="aws", region="us-east-1", installation="swept", endpoint_url=cloud.url
    )
    return swept(provider, machines)


def sweep_gcp(folder: Path, machines: int) -> float:
    """The same on Compute Engine."""
    command = [sys.executable, "-m", "providers.sandbox.gce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            place = httpx.Response(200, text=process.stdout.readline()).json()
            for batch in range(machines // 500):
                _insert_500(place["url"], batch)
            provider = gcp.create(
                name="gcp",
                region="us-central1",
                installation="swept",
                endpoint_url=place["url"],
                project=place["project"],
                cache_dir=str(folder),
            )
            return swept(provider, machines)
        finally:
            process.terminate()


def _insert_500(url: str, batch: int) -> None:
    image = "projects/sandbox/global/images/hybrid-node"
    properties = {
        "machineType": "g2-standard-4",
        "labels": {LABEL_INSTALLATION: "swept", LABEL_CLAIM: f"c-{batch}"},
        "scheduling": {"onHostMaintenance": "TERMINATE"},
        "disks": [{"boot": True, "initializeParams": {"sourceImage": image}}],
        "metadata": {"items": [{"key": "user-data", "value": "#" * 4_000}]},
    }
    body = {
        "count": 500,
        "namePattern": f"{name_prefix('swept')}c-{batch}-####",
        "instanceProperties": properties,
    }
    answer = httpx.post(
        f"{url}/compute/v1/projects/sandbox/zones/us-central1-a/instances/bulkInsert",
        json=body,
        timeout=60,
        trust_env=False,
    )
    answer.raise_for_status()


def compare(line: Mapping[str, Any]) -> Sequence[Compared]:
    """Rows for the results file."""
    calls, sweep = line["api_calls_per_claim"], line["sweep_2000_s"]
    on_gcp = line["sweep_2000_gcp_s"]
    return [
        Compared("CPU of our own code for each claim, ms", "", str(line["own_ms_per_claim"])),
        Compared(
            "API calls for each claim", "", str(calls), f"≤ {ALLOWED_CALLS:g}",
            calls <= ALLOWED_CALLS,
        ),
        Compared(
            "sweep over 2,000 machines, CPU s (EC2)", "", str(sweep), f"≤ {ALLOWED_SWEEP_S:g}",
            sweep <= ALLOWED_SWEEP_S,
        ),
        Compared(
            "the same on Compute Engine", "", str(on_gcp), f"≤ {ALLOWED_SWEEP_S:g}",
            on_gcp <= ALLOWED_SWEEP_S,
        ),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.provision", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 claims")
    arguments = parser.parse_args(argv)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = SandboxConfig(machines=False)
        cloud = start_sandbox(folder / "cloud", config, until_pid=os.getpid())
        os.environ.update(cloud.environment())
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        try:
            figures: dict[str, object] = {
                **provisioned(cloud, folder, 20 if arguments.quick else CLAIMS),
                "sweep_2000_s": sweep_aws(cloud, SWEPT),
                "sweep_2000_gcp_s": sweep_gcp(folder, SWEPT),
            }
        finally:
            cloud.stop()
    print_line("provision", watch, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
