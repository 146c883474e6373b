"""How long a job whose spot machine is taken is away, and how much of its work is lost.

``python -m benchmarks.recovery [--quick]`` starts a server with its default settings, the sandbox
cloud and an object server, and lets 20 jobs with checkpoints of 100 MB lose their machine after a
notice, one after the other. From the notice until the job runs again on another machine, what the
provider (launch to first process), the job (stop signal to exit) and the object server (its
requests) took is theirs; what is left of the wall time is ours. What a job had done and what it
began again from stands in a file that the job itself writes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.comparison import Compared
from benchmarks.machine import Stopwatch, print_line
from benchmarks.object_server import BUCKET, CREDENTIALS, ObjectServer, Span, object_server
from hybrid.client import HybridClient
from hybrid.client.answers import Job
from hybrid.demo.stage import Stage
from providers.sandbox.config import SandboxConfig
from providers.sandbox.control import SandboxControl

JOBS, QUICK_JOBS = 20, 2
STATE_BYTES = 100_000_000
NOTICE_S = 30.0
WAIT_S = 180.0
OWN_WANTED_S, LOST_WANTED = 2.0, 1
MACHINE, REGION = "g5.xlarge", "us-east-1"
POLICY = """
priority_classes: {normal: {value_per_hour: 100}}
budgets: [{name: all, scope: org, period: lifetime, limit_usd: 1000}]
spot: {max_interruptions_per_hour: 30}
"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recovery:
    """One job's: seconds of wall time, of that what others took, and steps done but not kept."""

    wall_s: float
    others_s: float
    lost_steps: int

    @property
    def own_s(self) -> float:
        return self.wall_s - self.others_s


def covered_s(spans: Iterable[Span], window: Span) -> float:
    """Seconds of a window in which at least one span was going on."""
    begin, end = window
    total, reached = 0.0, begin
    for began, ended in sorted(spans):
        began, ended = max(began, reached), min(ended, end)
        if ended > began:
            total += ended - began
            reached = ended
    return total


def steps_lost(trace: Sequence[str], attempt: int) -> int:
    """Steps done before the ``attempt``-th beginning (from 0) that were not kept for it."""
    done, begun = 0, -1
    for line in trace:
        word, step, _ = line.split()
        if word == "begin":
            begun += 1
            if begun == attempt:
                return done - int(step)
        else:
            done = int(step)
    raise ValueError(f"there was no beginning {attempt}")


def job_span(machines: Path, run_id: str) -> Span:
    """From the stop signal to the end of the last process, by the guardian's own journal."""
    at: dict[str, float] = {}
    for file in machines.rglob("journal.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["run_id"] == run_id:
                at.setdefault(event["event"], float(event["at"]))
    return at["stopping"], at["ended"]


class Bench:
    """The processes, and one client to each."""

    def __init__(self, stage: Stage, client: HybridClient, control: SandboxControl) -> None:
        self.stage, self.client, self.control = stage, client, control

    def recover(self, number: int, objects: ObjectServer) -> Recovery:
        """One job: submit, let it save, take its machine, wait until it runs again."""
        trace = self.stage.folder / f"trace-{number}"
        trace.touch()
        job_id = self.client.submit(_document(number, trace), key=f"job-{number}")[0].id
        before = _until(lambda: self._saved_and_going_on(job_id, trace), f"job {number} to save")
        first = before.runs[-1]
        machine = self._machine_of(first.slots[0].node_id)
        noticed_at = time.time()
        self.control.interrupt(machine)
        again = _until(lambda: self._running_again(job_id, first.attempt), f"job {number} again")
        run = again.runs[-1]
        assert run.started_at is not None
        running_at = run.started_at.timestamp()
        window = (noticed_at, running_at)
        node = self.control.state()
        launched = [
            (each.launched_at, each.booted_at)
            for each in node.instances
            if each.instance_id == self._machine_of(run.slots[0].node_id) and each.booted_at
        ]
        stopped = job_span(self.stage.folder / "cloud", first.id)
        others_s = covered_s([*launched, stopped, *objects.spans()], window)
        begun = _until(lambda: _beginnings(trace) >= 2, f"job {number} to begin again")
        assert begun
        lost = steps_lost(trace.read_text(encoding="ascii").splitlines(), 1)
        self.client.cancel(job_id)
        _until(lambda: self.client.job(job_id).state.ended, f"job {number} to end")
        return Recovery(running_at - noticed_at, others_s, lost)

    def _saved_and_going_on(self, job_id: str, trace: Path) -> Job | None:
        """The job once it has committed, and has gone on for some steps since."""
        job = self.client.job(job_id)
        if job.state.ended:
            raise RuntimeError(f"job {job_id} ended: {job.reason}")
        return job if job.checkpoint is not None and len(_lines(trace)) > 10 else None

    def _running_again(self, job_id: str, attempt: int) -> Job | None:
        job = self.client.job(job_id)
        run = job.runs[-1]
        return job if run.attempt > attempt and run.started_at is not None else None

    def _machine_of(self, node_id: str) -> str:
        claims = self.client.claims().claims
        return next(c.machine_id for c in claims if c.node_id == node_id and c.machine_id)


def _lines(trace: Path) -> list[str]:
    return trace.read_text(encoding="ascii").splitlines()


def _beginnings(trace: Path) -> int:
    return sum(line.startswith("begin ") for line in _lines(trace))


def _until(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise RuntimeError(f"waited {WAIT_S:g} s in vain for {what}")


def _document(number: int, trace: Path) -> dict[str, Any]:
    return {
        "name": f"saving-{number}",
        "command": [
            *(sys.executable, "-m", "benchmarks.saving_job"),
            *("--trace", str(trace), "--state-bytes", str(STATE_BYTES)),
        ],
        "env": {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        "expected_runtime": "30m",
        "walltime": "2h",
        "speeds": {"a10g": 1.0},
        "resources": {"cpus": 0.5, "memory": "512MiB"},
        "checkpoint": {"enabled": True, "interval": "5s", "size": "96MiB"},
        "stop": {"grace": "20s"},
        "where": {"markets": ["spot"]},
    }


@contextlib.contextmanager
def _bench(folder: Path, objects: ObjectServer) -> Iterator[Bench]:
    machine_environment = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": objects.url}
    cloud = SandboxConfig(
        region=REGION,
        machine_types=(MACHINE,),
        boot_s=1.0,
        spot_notice_s=NOTICE_S,
        machine_environment=machine_environment,
        hybrid_command=(sys.executable, "-m", "hybrid"),
    )
    stage = Stage(folder, cloud=cloud, settings={"checkpoint_url": f"s3://{BUCKET}/recovery"})
    try:
        handle = stage.start_cloud()
        stage.start_server()
        client = HybridClient(stage.url, stage.admin_token)
        with contextlib.closing(client), handle.control() as control:
            seen = control.state()
            client.apply_pool(_pool(seen.image_id, seen.subnets))
            client.apply_policy(POLICY, why="the benchmark's")
            yield Bench(stage, client, control)
    finally:
        stage.end()


def _pool(image: str, subnets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "kind": "burst",
        "name": "spot",
        "provider": "sandbox",
        "region": REGION,
        "zones": [{"name": zone, "subnet": subnet} for zone, subnet in subnets.items()],
        "template": {"image": image},
        "machine_types": [MACHINE],
        "markets": ["spot"],
        "ceilings": {"machines": 4, "usd_per_hour": "10"},
        "notice": f"{NOTICE_S:g}s",
        "disk": 0,
    }


def figures(recoveries: Sequence[Recovery]) -> dict[str, Any]:
    """The line."""
    return {
        "own_seconds_per_job": round(statistics.mean(each.own_s for each in recoveries), 3),
        "own_seconds_max": round(max(each.own_s for each in recoveries), 3),
        "wall_seconds_per_job": round(statistics.mean(each.wall_s for each in recoveries), 3),
        "lost_steps_max": max(each.lost_steps for each in recoveries),
        "jobs": len(recoveries),
        "notice_s": NOTICE_S,
        "checkpoint_bytes": STATE_BYTES,
    }


def compare(line: Mapping[str, Any]) -> list[Compared]:
    """The rows of the results file."""
    own, lost = line["own_seconds_per_job"], line["lost_steps_max"]
    return [
        Compared("wall time from notice to running again", "", f"{line['wall_seconds_per_job']} s"),
        Compared("own time a job", "", f"{own} s", f"≤ {OWN_WANTED_S:g} s", own <= OWN_WANTED_S),
        Compared("steps lost at most", "", f"{lost}", f"≤ {LOST_WANTED}", lost <= LOST_WANTED),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.recovery", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two jobs instead of twenty")
    arguments = parser.parse_args(argv)
    watch = Stopwatch()
    recoveries = []
    with (
        tempfile.TemporaryDirectory(prefix="hybrid-recovery-") as folder,
        object_server() as objects,
        _bench(Path(folder).resolve(), objects) as bench,
    ):
        for number in range(QUICK_JOBS if arguments.quick else JOBS):
            recoveries.append(bench.recover(number, objects))
            print(f"job {number}: {recoveries[-1]}", flush=True)
    print_line("recovery", watch, figures(recoveries))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
