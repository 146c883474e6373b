"""What the demo is about: the pools, the policy and the jobs.

A second here stands for a minute: prices and the values of time are sixty times those of life, and
a spot notice is sixty times shorter than EC2's two minutes would be long. Nothing else is scaled:
what decides, launches, checkpoints and ends things is what does so in life.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import yaml

from providers.sandbox.config import SandboxConfig, SpotPrice

TIME_SCALE: Final = 60
REGION: Final = "us-east-1"
ZONES: Final = ("us-east-1a", "us-east-1b")
MACHINE: Final = "g5.xlarge"
ON_DEMAND_USD: Final = Decimal("1.006") * TIME_SCALE
SPOT_USD: Final = Decimal("0.4024") * TIME_SCALE
CAP_USD: Final = Decimal(40)
NOTICE_S: Final = 8.0
VIRTUAL_GPUS: Final = "a100-80gb:4:nvlink-pairs"
LATER_S: Final = 3.0
WORK: Final = 1024
"""Width of the frozen layers of the demo's training: about 4 ms a step on one core."""


def cloud() -> SandboxConfig:
    """The sandbox cloud: two zones, one machine type, prices and notice scaled."""
    return SandboxConfig(
        region=REGION,
        zones=ZONES,
        machine_types=(MACHINE,),
        on_demand_usd_per_hour={MACHINE: ON_DEMAND_USD},
        spot_prices=tuple(
            SpotPrice(zone=zone, machine_type=MACHINE, at_s=-3600, usd_per_hour=SPOT_USD)
            for zone in ZONES
        ),
        boot_s=1.0,
        spot_notice_s=NOTICE_S,
        hybrid_command=(sys.executable, "-m", "hybrid"),
    )


def burst_pool(name: str, market: str, image: str, subnets: dict[str, str]) -> dict[str, Any]:
    """One of the two burst pools."""
    return {
        "kind": "burst",
        "name": name,
        "provider": "sandbox",
        "region": REGION,
        "zones": [{"name": zone, "subnet": subnets[zone]} for zone in ZONES],
        "template": {"image": image},
        "machine_types": [MACHINE],
        "markets": [market],
        "ceilings": {"machines": 4, "usd_per_hour": str(4 * ON_DEMAND_USD)},
        "boot": {"expected": "6s", "deadline": "90s"},
        "lease": {"duration": "90s", "end_tail": "20s"},
        "idle_after": "8s",
        "notice": f"{NOTICE_S:g}s",
        "interruptions_per_hour": 6,
        "disk": 0,
        "tags": {"purpose": "demo"},
        "description": f"Sandbox machines, {market.replace('_', ' ')}; prices of a minute an hour",
    }


def local_pool() -> dict[str, Any]:
    """This machine."""
    return {
        "kind": "local",
        "name": "local",
        "rate_per_gpu_hour": str(Decimal("0.10") * TIME_SCALE),
        "description": "This machine's GPUs",
    }


def policy() -> str:
    """Values of an hour's delay, scaled like the prices, and one budget."""
    document = {
        "priority_classes": {
            "low": {"value_per_hour": 12},
            "normal": {"value_per_hour": 100},
            "high": {"value_per_hour": 240},
            "urgent": {"value_per_hour": 900},
        },
        "budgets": [
            {
                "name": "demo",
                "scope": "org",
                "period": "lifetime",
                "limit_usd": str(CAP_USD),
            }
        ],
        "burst": {"ceilings": {"machines": 6}},
        "spot": {"max_interruptions_per_hour": 30, "notice_margin": "1s"},
        "return_home": {"margin_usd": 0.02, "min_stay": "4s"},
        "preemption": {"min_run": "5s"},
    }
    return yaml.safe_dump(document, sort_keys=False)


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demo: its document, when it is sent, and what it is there to show."""

    document: dict[str, Any]
    shows: str
    after_s: float = 0.0
    refused: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.document["name"])

    @property
    def seed(self) -> int:
        """The seed of its training."""
        command = self.document["command"]
        return int(command[command.index("--seed") + 1])

    @property
    def steps(self) -> int:
        """How many steps it trains for."""
        command = self.document["command"]
        return int(command[command.index("--steps") + 1])


def jobs(now: datetime | None = None) -> tuple[DemoJob, ...]:
    """The demo's jobs in the order in which they are sent. ``now`` is what deadlines count from."""
    now = now or datetime.now(UTC)
    deadline = (now + timedelta(seconds=150)).isoformat()
    # four long ones fill this machine; they say they take longer than they do, as people do
    fillers = tuple(
        _job(f"pretrain-{letter}", seed, steps=3500, expected_s=90, shows="fills this machine")
        for seed, letter in enumerate("abcd", start=1)
    )
    return (
        *fillers,
        *(replace(job, after_s=max(job.after_s, LATER_S)) for job in _after_them(deadline)),
    )


def _after_them(deadline: str) -> tuple[DemoJob, ...]:
    """What comes once this machine is full."""
    return (
        _job(
            "eval-at-home",
            5,
            steps=350,
            expected_s=12,
            priority="low",
            where={"burst": "never"},
            shows="may not leave the premises",
        ),
        _job(
            "vision-spot",
            6,
            steps=2600,
            expected_s=40,
            priority="high",
            where={"markets": ["spot"]},
            shows="loses its spot machine and resumes elsewhere",
        ),
        _job(
            "speech-steady",
            7,
            steps=9000,
            expected_s=40,
            value_per_hour=160,
            where={"markets": ["on_demand"]},
            shows="bursts, and comes home when that is cheaper",
        ),
        _job(
            "nvlink-pair",
            8,
            steps=400,
            expected_s=12,
            resources={"gpus": 2, "gpu": {"link": "nvlink"}},
            where={"burst": "never"},
            shows="needs two GPUs joined by NVLink",
        ),
        _job(
            "gang-of-two",
            9,
            steps=500,
            expected_s=15,
            priority="high",
            resources={"nodes": 2, "gpus": 1},
            shows="two machines or none",
        ),
        _job(
            "by-the-deadline",
            10,
            steps=500,
            expected_s=15,
            deadline=deadline,
            shows="has a deadline",
        ),
        _job(
            "impossible",
            11,
            steps=10,
            expected_s=5,
            resources={"gpus": 1, "gpu": {"models": ["b300"]}},
            shows="asks for a GPU that nobody has",
            refused=True,
        ),
        *(
            _job(
                f"sweep-{index}",
                20 + index,
                steps=300,
                expected_s=10,
                priority="low",
                shows="is in no hurry",
            )
            for index in range(4)
        ),
        _job(
            "urgent-fix",
            30,
            steps=300,
            expected_s=10,
            priority="urgent",
            shows="cannot wait",
            after_s=14.0,
        ),
    )


def _job(
    name: str,
    seed: int,
    *,
    steps: int,
    expected_s: float,
    shows: str,
    after_s: float = 0.0,
    refused: bool = False,
    **fields: Any,
) -> DemoJob:
    resources = {"cpus": 0.5, "memory": "256MiB", **fields.pop("resources", {})}
    document: dict[str, Any] = {
        "name": name,
        "command": [
            sys.executable,
            "-m",
            "hybrid.demo.jobs.train",
            *("--steps", str(steps)),
            *("--seed", str(seed)),
            *("--work", str(WORK)),
            *("--checkpoint-every", str(max(25, steps // 20))),
            *("--log-every", "100"),
        ],
        "outputs": ["outputs"],
        "expected_runtime": f"{expected_s:g}s",
        "walltime": "10m",
        # measured: this training keeps a processor busy, whatever the GPU is called
        "speeds": {"a100-80gb": 1.0, "a10g": 1.0},
        "checkpoint": {"enabled": True, "interval": "3s", "size": "1MiB"},
        "stop": {"grace": "5s"},
        "retries": {"max": 2, "backoff": "1s"},
        "resources": resources,
        **fields,
    }
    return DemoJob(document, shows, after_s, refused)
