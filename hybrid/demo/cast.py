"""The jobs of the demo: real training runs that take as long on any machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

STEP_S: Final = 0.05
"""How long a step of the training takes at least. The sums take a hundredth of that, so that a job
is as long on any machine, alone or beside others, and the story is the same."""

LATER_S: Final = 3.0
"""What is sent so much later finds this machine full."""


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
    """All jobs in the order in which they are sent; deadlines count from ``now``."""
    deadline = (now or datetime.now(UTC)) + timedelta(seconds=150)
    return (*_fillers(), *_special(deadline.isoformat()), *_sweep())


def _fillers() -> tuple[DemoJob, ...]:
    """Four long ones that fill this machine; they say they take longer than they do."""
    return tuple(
        _job(
            f"pretrain-{letter}",
            seed,
            run_s=38,
            expected_s=90,
            shows="fills this machine",
            after_s=0.0,
        )
        for seed, letter in enumerate("abcd", start=1)
    )


def _special(deadline: str) -> tuple[DemoJob, ...]:
    return (
        _job(
            "eval-at-home",
            5,
            run_s=4,
            expected_s=12,
            priority="low",
            where={"burst": "never"},
            shows="may not leave the premises",
        ),
        _job(
            "vision-spot",
            6,
            run_s=45,
            expected_s=40,
            priority="high",
            where={"markets": ["spot"]},
            shows="loses its spot machine and resumes elsewhere",
        ),
        _job(
            "speech-steady",
            7,
            run_s=85,
            expected_s=45,
            value_per_hour=300,
            where={"markets": ["on_demand"]},
            shows="bursts, and comes home when that is cheaper",
        ),
        _job(
            "nvlink-pair",
            8,
            run_s=5,
            expected_s=12,
            resources={"gpus": 2, "gpu": {"link": "nvlink"}},
            where={"burst": "never"},
            shows="needs two GPUs joined by NVLink",
        ),
        _job(
            "gang-of-two",
            9,
            run_s=7,
            expected_s=15,
            priority="high",
            resources={"nodes": 2, "gpus": 1},
            shows="two machines or none",
        ),
        _job(
            "by-the-deadline",
            10,
            run_s=7,
            expected_s=15,
            deadline=deadline,
            shows="has a deadline",
        ),
        _job(
            "impossible",
            11,
            run_s=1,
            expected_s=5,
            resources={"gpus": 1, "gpu": {"models": ["b300"]}},
            shows="asks for a GPU that nobody has",
            refused=True,
        ),
        _job(
            "urgent-fix",
            30,
            run_s=4,
            expected_s=10,
            priority="urgent",
            shows="cannot wait",
            after_s=14.0,
        ),
    )


def _sweep() -> tuple[DemoJob, ...]:
    return tuple(
        _job(
            f"sweep-{index}",
            20 + index,
            run_s=4,
            expected_s=10,
            priority="low",
            shows="is in no hurry",
        )
        for index in range(4)
    )


def _job(
    name: str,
    seed: int,
    *,
    run_s: float,
    expected_s: float,
    shows: str,
    after_s: float = LATER_S,
    refused: bool = False,
    **fields: Any,
) -> DemoJob:
    """``run_s`` is how long it runs; ``expected_s``, which differs, what its user says."""
    resources = {"cpus": 0.1, "memory": "256MiB", **fields.pop("resources", {})}
    document: dict[str, Any] = {
        "name": name,
        "command": command(round(run_s / STEP_S), seed),
        "outputs": ["outputs"],
        "expected_runtime": f"{expected_s:g}s",
        "walltime": "10m",
        # this training takes as long on all of them
        "speeds": {"a100-80gb": 1.0, "a10g": 1.0},
        "checkpoint": {"enabled": True, "interval": "3s", "size": "1MiB"},
        "stop": {"grace": "3s"},
        "retries": {"max": 2, "backoff": "1s"},
        "resources": resources,
        **fields,
    }
    return DemoJob(document, shows, after_s, refused)


def command(steps: int, seed: int) -> list[str]:
    return [
        sys.executable,
        *("-m", "hybrid.demo.jobs.train"),
        *("--steps", str(steps)),
        *("--seed", str(seed)),
        *("--step-seconds", str(STEP_S)),
        *("--checkpoint-every", str(max(25, steps // 20))),
        *("--log-every", "20"),
    ]
