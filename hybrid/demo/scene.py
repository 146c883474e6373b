"""Where the demo takes place: the sandbox cloud, the pools and the policy.

A second here stands for a minute: prices and the values of time are sixty times those of life, and
a spot notice is sixty times shorter than EC2's two minutes would be long. Nothing else is scaled:
what decides, launches, checkpoints and ends things is what does so in life.
"""

from __future__ import annotations

import sys
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
