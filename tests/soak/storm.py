"""Real processes in a storm: a server, agents, a sandbox cloud and an object store, to which a
random generator does what happens to such things. In the end all is calm, and everything must have
come to rest with every promise kept."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.object_server import BUCKET, CREDENTIALS, object_server
from hybrid.client import ClientError, HybridClient, Problem
from hybrid.client import answers as said
from hybrid.demo import proof, scene
from hybrid.demo.cast import command
from hybrid.demo.stage import QUICK_PACE, Stage
from providers.sandbox.config import FaultRule
from providers.sandbox.control import ControlError, SandboxControl
from tests.soak.gateway import Gateway

STORM_S = 75.0
JOBS = 9
ENDED_WITHIN_S = 420.0
GONE_WITHIN_S = 150.0
DISK_MIB = 96
MONEY_SLACK = 0.05
"""Of what was billed: a cloud lists instants in whole seconds, and a life here is a minute."""


@dataclass(slots=True)
class Storm:
    """One round, from a seed."""

    seed: int
    stage: Stage
    client: HybridClient
    control: SandboxControl
    store: Gateway
    disk: Path | None
    rng: random.Random = field(init=False)
    jobs: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def rage(self) -> None:
        """Jobs come, and things happen, until the storm is over."""
        due = sorted(self.rng.uniform(0, STORM_S * 0.6) for _ in range(JOBS))
        while (now := time.monotonic() - self.began) < STORM_S:
            if due and due[0] <= now:
                due.pop(0)
                self._submit()
            if self.rng.random() < 0.6:
                self._happen()
            time.sleep(self.rng.uniform(0.5, 2.5))
        for _ in due:
            self._submit()

    def _happen(self) -> None:
        what = self.rng.choice(
            [
                self._kill_server, self._stop_server, self._kill_agent, self._stop_agent,
                self._interrupt, self._interrupt, self._terminate, self._freeze,
                self._kill_machines_agent, self._lose_a_launch, self._throttle,
                self._fail_a_termination, self._sell_out, self._slow_store, self._shut_store,
                self._fill_the_disk,
            ]
        )  # fmt: skip
        self._tell(what.__name__.strip("_").replace("_", " "))
        with contextlib.suppress(ControlError, httpx.HTTPError):
            what()

    def _tell(self, words: str) -> None:
        self.told.append(f"{time.monotonic() - self.began:6.1f} s  {words}")

    # --- people ---------------------------------------------------------------------------------

    def _submit(self) -> None:
        number = len(self.jobs)
        nodes = 2 if number % 5 == 4 else 1
        saves = number % 4 != 3
        document: dict[str, Any] = {
            "name": f"storm-{self.seed}-{number}",
            "command": command(self.rng.choice((80, 200, 500)), number),
            "expected_runtime": "40s",
            "walltime": "10m",
            "speeds": {"a100-80gb": 1.0, "a10g": 1.0},
            "priority": self.rng.choice(("normal", "high", "low")),
            "checkpoint": {"enabled": saves, "interval": "3s", "size": "1MiB"},
            "stop": {"grace": "4s"},
            "retries": {"max": 20, "backoff": "1s", "on_spot_restart": True},
            "resources": {"cpus": 0.5, "memory": "256MiB", "nodes": nodes, "gpus": 1},
            "where": {} if number % 3 else {"pools": ["spot", "steady"]},
        }
        while True:  # the server may be away: the same key is the same job
            try:
                job, _ = self.client.submit(document, key=document["name"])
                break
            except Problem:
                raise
            except ClientError:
                time.sleep(0.5)
        self.jobs.append(job.id)
        self._tell(f"{document['name']} is {job.id}")

    # --- processes ------------------------------------------------------------------------------

    def _kill_server(self) -> None:
        self.stage.kill_server()
        time.sleep(self.rng.uniform(0, 4))
        self.stage.start_server()

    def _stop_server(self) -> None:
        self._stand_still(self.stage.server, self.rng.choice((1.0, 4.0, 9.0)))

    def _kill_agent(self) -> None:
        self.stage.kill_agent()
        time.sleep(self.rng.uniform(0, 4))
        self.stage.start_agent()

    def _stop_agent(self) -> None:
        self._stand_still(self.stage.agent, self.rng.choice((2.0, 8.0, 20.0)))

    def _stand_still(self, process: subprocess.Popen[bytes] | None, seconds: float) -> None:
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)

    # --- the cloud ------------------------------------------------------------------------------

    def _machine(self, market: str | None = None) -> str | None:
        live = [
            each.instance_id
            for each in self.control.instances()
            if each.state == "running" and market in (None, each.market)
        ]
        return self.rng.choice(live) if live else None

    def _interrupt(self) -> None:
        machine = self._machine("spot")
        if machine is not None:
            self.control.interrupt(machine, self.rng.choice((None, 3.0)))

    def _terminate(self) -> None:
        machine = self._machine()
        if machine is not None:
            self.control.terminate(machine)

    def _freeze(self) -> None:
        machine = self._machine()
        if machine is not None:
            self.control.freeze(machine)
            time.sleep(self.rng.choice((2.0, 10.0, 20.0)))
            self.control.thaw(machine)

    def _kill_machines_agent(self) -> None:
        machine = self._machine()
        if machine is not None:
            self.control.kill_agent(machine)

    def _lose_a_launch(self) -> None:
        self.control.fault(FaultRule(action="RunInstances", execute_then_lose=True))

    def _throttle(self) -> None:
        rule = {"action": "DescribeInstances", "code": "RequestLimitExceeded", "http_status": 503}
        self.control.fault(FaultRule(**rule, times=3))

    def _fail_a_termination(self) -> None:
        rule = {"action": "TerminateInstances", "code": "InternalError", "http_status": 500}
        self.control.fault(FaultRule(**rule, times=2))

    def _sell_out(self) -> None:
        market = self.rng.choice(("spot", "on_demand"))
        self.control.exhaust(market=market)
        time.sleep(self.rng.uniform(2, 8))
        self.control.restore(market=market)

    # --- storage --------------------------------------------------------------------------------

    def _slow_store(self) -> None:
        self.store.delay_s = 0.3
        time.sleep(self.rng.uniform(3, 8))
        self.store.delay_s = 0.0

    def _shut_store(self) -> None:
        self.store.shut = True
        time.sleep(self.rng.uniform(2, 8))
        self.store.shut = False

    def _fill_the_disk(self) -> None:
        if self.disk is None:
            return
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(b"\0" * (1 << 20)):
                pass
        time.sleep(self.rng.uniform(3, 8))
        ballast.unlink(missing_ok=True)

    # --- afterwards -----------------------------------------------------------------------------

    def calm(self) -> None:
        """Everything works again; faults that were not met are gone."""
        self.control.clear_faults()
        self._tell("calm")
        self._until(lambda: all(job.state.ended for job in self._jobs()), ENDED_WITHIN_S)
        self._until(lambda: not self.control.state().live and not self._claims(), GONE_WITHIN_S)

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(ClientError):
                if done():
                    return
            time.sleep(0.5)

    def _jobs(self) -> list[said.Job]:
        return [self.client.job(job_id) for job_id in self.jobs]

    def _claims(self) -> list[str]:
        return [claim.id for claim in self.client.claims().claims if not claim.state.over]

    def broken(self) -> list[str]:
        """Every promise that does not hold. Ends the stage's agents and server."""
        jobs = self._jobs()
        found = [f"{job.id} is {job.state}: {_why(job)}" for job in jobs if not job.state.ended]
        found += [
            f"{j.id} failed without a word" for j in jobs if j.state == "failed" and not j.reason
        ]
        budget = self.client.budgets().budgets[0]
        found += [f"claim {claim} is not over" for claim in self._claims()]
        bill = self.control.bill()
        found += [f"machine {each.instance_id} is left" for each in self.control.state().live]
        charged, billed = float(budget.charged_usd), float(bill.total_usd)
        if budget.held_usd:
            found.append(f"${budget.held_usd} is still held")
        if budget.charged_usd > budget.limit_usd:
            found.append(f"the cap is passed: ${charged} of ${budget.limit_usd}")
        if abs(charged - billed) > MONEY_SLACK * max(billed, 1.0):
            found.append(f"${charged:.4f} charged, ${billed:.4f} billed")
        ends = {line.instance_id: line.ended_at for line in bill.lines if line.ended_at}
        self.stage.end_nodes(keep_server=False)
        found += [f"process {pid} is left" for pid in self.stage.agents_left()]
        lived = proof.lives(self.stage.folder, ends)
        found += proof.overlaps(lived)
        found += shared_gpus(jobs, lived)
        self._tell(
            f"{sum(job.state == 'succeeded' for job in jobs)} of {len(jobs)} succeeded,"
            f" {sum(len(each) for each in lived.values())} lives, ${charged:.2f} charged,"
            f" ${billed:.2f} billed"
        )
        return found


def _why(job: said.Job) -> str:
    return job.reason or (job.decision.sentence if job.decision else "nothing was decided")


def shared_gpus(jobs: list[said.Job], lived: dict[str, list[proof.Life]]) -> list[str]:
    """Where two runs lived on one device at the same time, by the guardians' own records."""
    slots = {run.id: run.slots for job in jobs for run in job.runs}
    on: dict[str, list[tuple[float, float, str]]] = {}
    for rank_of_job, lives in lived.items():
        rank = int(rank_of_job.rpartition("/")[2])
        for life in lives:
            if life.run_id in slots and rank < len(slots[life.run_id]):
                for gpu in slots[life.run_id][rank].gpu_ids:
                    on.setdefault(gpu, []).append((life.began_s, life.ended_s, life.run_id))
    found = []
    for gpu, spans in on.items():
        spans.sort()
        for first, second in pairwise(spans):
            if second[0] < first[1]:
                found.append(f"{gpu} has {second[2]} while {first[2]} still lives")
    return found


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A small file system of its own for the agent; None where only root may have one."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def weather(seed: int, keep: Path | None = None) -> tuple[list[str], list[str]]:
    """One round: what broke, and what happened."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="hybrid-storm-")))
        folder = (keep or folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        objects = held.enter_context(object_server())
        store = Gateway(urlsplit(objects.url).port or 0)
        held.callback(store.close)
        variables = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": store.url}
        os.environ.update(variables)
        cloud = scene.cloud().model_copy(update={"machine_environment": variables})
        settings = {**QUICK_PACE, "checkpoint_url": f"s3://{BUCKET}/storm-{seed}"}
        stage = Stage(folder, cloud=cloud, settings=settings)
        disk = held.enter_context(small_disk(stage.agent_dir))
        held.callback(stage.end)
        handle = stage.start_cloud()
        stage.start_server()
        client = held.enter_context(contextlib.closing(HybridClient(stage.url, stage.admin_token)))
        control = held.enter_context(handle.control())
        seen = control.state()
        client.apply_pool(scene.local_pool())
        for name, market in (("spot", "spot"), ("steady", "on_demand")):
            client.apply_pool(scene.burst_pool(name, market, seen.image_id, seen.subnets))
        client.apply_policy(scene.policy(), why="the storm's")
        stage.start_agent(client.create_token({"role": "node", "pool": "local"}).secret)
        storm = Storm(seed, stage, client, control, store, disk)
        if disk is None:
            storm.told.append("no small disk: that needs root, so none is filled")
        try:
            storm.rage()
            storm.calm()
            return storm.broken(), storm.told
        except Exception as error:
            error.add_note("\n".join(storm.told))
            raise
