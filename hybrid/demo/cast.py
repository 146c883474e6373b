"""The jobs of the demo: real training runs, as long as they should be on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

WORK: Final = 1024
"""Width of the frozen layers of the training, which sets how long a step takes."""

SIDE_BY_SIDE: Final = 6
"""About so many jobs run at a time; on fewer processors each is the slower for it."""

LATER_S: Final = 3.0
"""What is sent so much later finds this machine full."""

_PROBE_STEPS: Final = 150
_PROBE_LIMIT_S: Final = 120.0


def steps_per_second() -> float:
    """Steps of the training that a job of the demo makes in a second on this machine, measured.

    The difference of a long and a short run leaves the start of the interpreter out.
    """
    step_s = max(1e-5, (_training_s(1 + _PROBE_STEPS) - _training_s(1)) / _PROBE_STEPS)
    return min(1.0, (os.cpu_count() or 1) / SIDE_BY_SIDE) / step_s


def _training_s(steps: int) -> float:
    with tempfile.TemporaryDirectory(prefix="hybrid-probe-") as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HYBRID_")}
        begun = time.monotonic()
        subprocess.run(
            command(steps, seed=0),
            cwd=folder,
            env={**environment, "HYBRID_CHECKPOINT_DIR": folder},
            stdout=subprocess.DEVNULL,
            timeout=_PROBE_LIMIT_S,
            check=True,
        )
        return time.monotonic() - begun


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


class Cast:
    """Writes the jobs: ``run_s`` is how long each should run on this machine, and
    ``expected_s`` what its user says, which is not the same."""

    def __init__(self, steps_per_s: float) -> None:
        self._steps_per_s = steps_per_s

    def jobs(self, now: datetime | None = None) -> tuple[DemoJob, ...]:
        """All jobs in the order in which they are sent; deadlines count from ``now``."""
        deadline = (now or datetime.now(UTC)) + timedelta(seconds=150)
        return (*self._fillers(), *self._special(deadline.isoformat()), *self._sweep())

    def _fillers(self) -> tuple[DemoJob, ...]:
        """Four long ones that fill this machine; they say they take longer than they do."""
        return tuple(
            self._job(
                f"pretrain-{letter}", seed, run_s=38, expected_s=90, shows="fills this machine"
            )
            for seed, letter in enumerate("abcd", start=1)
        )

    def _special(self, deadline: str) -> tuple[DemoJob, ...]:
        return (
            self._job(
                "eval-at-home",
                5,
                run_s=4,
                expected_s=12,
                priority="low",
                where={"burst": "never"},
                shows="may not leave the premises",
                after_s=LATER_S,
            ),
            self._job(
                "vision-spot",
                6,
                run_s=45,
                expected_s=40,
                priority="high",
                where={"markets": ["spot"]},
                shows="loses its spot machine and resumes elsewhere",
                after_s=LATER_S,
            ),
            self._job(
                "speech-steady",
                7,
                run_s=100,
                expected_s=45,
                value_per_hour=300,
                where={"markets": ["on_demand"]},
                shows="bursts, and comes home when that is cheaper",
                after_s=LATER_S,
            ),
            self._job(
                "nvlink-pair",
                8,
                run_s=5,
                expected_s=12,
                resources={"gpus": 2, "gpu": {"link": "nvlink"}},
                where={"burst": "never"},
                shows="needs two GPUs joined by NVLink",
                after_s=LATER_S,
            ),
            self._job(
                "gang-of-two",
                9,
                run_s=7,
                expected_s=15,
                priority="high",
                resources={"nodes": 2, "gpus": 1},
                shows="two machines or none",
                after_s=LATER_S,
            ),
            self._job(
                "by-the-deadline",
                10,
                run_s=7,
                expected_s=15,
                deadline=deadline,
                shows="has a deadline",
                after_s=LATER_S,
            ),
            self._job(
                "impossible",
                11,
                run_s=1,
                expected_s=5,
                resources={"gpus": 1, "gpu": {"models": ["b300"]}},
                shows="asks for a GPU that nobody has",
                refused=True,
                after_s=LATER_S,
            ),
            self._job(
                "urgent-fix",
                30,
                run_s=4,
                expected_s=10,
                priority="urgent",
                shows="cannot wait",
                after_s=14.0,
            ),
        )

    def _sweep(self) -> tuple[DemoJob, ...]:
        return tuple(
            self._job(
                f"sweep-{index}",
                20 + index,
                run_s=4,
                expected_s=10,
                priority="low",
                shows="is in no hurry",
                after_s=LATER_S,
            )
            for index in range(4)
        )

    def _job(
        self,
        name: str,
        seed: int,
        *,
        run_s: float,
        expected_s: float,
        shows: str,
        after_s: float = 0.0,
        refused: bool = False,
        **fields: Any,
    ) -> DemoJob:
        resources = {"cpus": 0.5, "memory": "256MiB", **fields.pop("resources", {})}
        document: dict[str, Any] = {
            "name": name,
            "command": command(max(50, round(run_s * self._steps_per_s)), seed),
            "outputs": ["outputs"],
            "expected_runtime": f"{expected_s:g}s",
            "walltime": "10m",
            # measured: this training keeps a processor busy, whatever the GPU is called
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
        *("--work", str(WORK)),
        *("--checkpoint-every", str(max(25, steps // 20))),
        *("--log-every", "100"),
    ]
