"""``python -m tests.soak.recoveries``: how long it takes until all is as before, fault by fault,
with real processes at the server's default pace. The figures stand in ``docs/reliability.md``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hybrid.client import ClientError, HybridClient
from hybrid.client.answers import Job
from hybrid.demo import scene
from hybrid.demo.cast import command
from hybrid.demo.stage import Stage

LIMIT_S = 120.0


def until(holds: Callable[[], object]) -> float:
    """Seconds until something holds; raises RuntimeError when it never does."""
    began = time.monotonic()
    while time.monotonic() - began < LIMIT_S:
        with contextlib.suppress(ClientError):
            if holds():
                return time.monotonic() - began
        time.sleep(0.05)
    raise RuntimeError("it never came to that")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hybrid-recoveries-") as folder:
        stage = Stage(Path(folder).resolve(), settings={})
        try:
            for words, seconds in measured(stage):
                sys.stdout.write(f"{words}: {seconds:.1f} s\n")
        finally:
            stage.end()
    return 0


def measured(stage: Stage) -> list[tuple[str, float]]:
    """Each fault and its time, one after the other on one installation."""
    cloud = stage.start_cloud()
    stage.start_server()
    client = HybridClient(stage.url, stage.admin_token)
    control = cloud.control()
    seen = control.state()
    client.apply_pool(scene.local_pool())
    pool = scene.burst_pool("steady", "on_demand", seen.image_id, seen.subnets)
    client.apply_pool(pool)
    client.apply_policy(scene.policy(), why="to be measured")
    stage.start_agent(client.create_token({"role": "node", "pool": "local"}).secret)
    until(lambda: client.nodes().nodes)
    document = {
        "command": command(200_000, 1),
        "expected_runtime": "20m",
        "walltime": "1h",
        "speeds": {"a100-80gb": 1.0, "a10g": 1.0},
        "checkpoint": {"enabled": True, "interval": "3s", "size": "1MiB"},
        "retries": {"max": 9, "backoff": "1s"},
        "resources": {"cpus": 0.5, "memory": "256MiB"},
    }
    home = client.submit({**document, "where": {"burst": "never"}}, key="home")[0].id
    away = client.submit({**document, "where": {"pools": ["steady"]}}, key="away")[0].id
    until(lambda: _saved(client.job(home)) and _saved(client.job(away)))
    found = []

    stage.kill_server()
    began = time.monotonic()
    stage.start_server()
    until(lambda: client.ready().ready)
    found.append(("server killed, until the next one leads", time.monotonic() - began))

    stage.kill_agent()
    step = _step(client.job(home))
    stage.start_agent()
    found.append(
        (
            "agent killed, until it reports the run again",
            until(lambda: _step(client.job(home)) > step),
        )
    )

    attempt = client.job(home).attempts
    os.kill(_guardian(stage), signal.SIGKILL)
    found.append(
        (
            "guardian killed, until the job runs again",
            until(lambda: _runs(client.job(home), attempt)),
        )
    )

    machine = control.state().live[0].instance_id
    attempt = client.job(away).attempts
    control.terminate(machine)
    found.append(
        (
            "machine ended by hand, until the job runs again",
            until(lambda: _runs(client.job(away), attempt)),
        )
    )
    for job_id in (home, away):
        client.cancel(job_id)
    until(lambda: all(client.job(job_id).state.ended for job_id in (home, away)))
    return found


def _saved(job: Job) -> bool:
    return job.checkpoint is not None


def _step(job: Job) -> int:
    progress = job.runs[-1].progress if job.runs else None
    return 0 if progress is None else progress.step


def _runs(job: Job, attempt: int) -> bool:
    return job.attempts > attempt and job.runs[-1].started_at is not None


def _guardian(stage: Stage) -> int:
    """The pid of the guardian of the run at home, by the file in which it claimed the run."""
    claimed = min(stage.agent_dir.rglob("claimed"))
    return int(json.loads(claimed.read_text())["pid"])


if __name__ == "__main__":
    sys.exit(main())
