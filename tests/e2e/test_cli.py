"""The product as a newcomer meets it: `hybrid up` on an empty folder, and jobs on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.guardian.processes import all_processes

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-cli")]

REPOSITORY = Path(__file__).resolve().parents[2]
HYBRID = [sys.executable, "-m", "hybrid"]
LONG_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Place:
    """A state directory, the environment of commands there, and the server when it is up."""

    folder: Path
    up: subprocess.Popen[str] | None = None
    said: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def environ(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("HYBRID_")}
        return {
            **mine,
            "HOME": str(self.folder),
            "HYBRID_STATE_DIR": str(self.state_dir),
            "PYTHONPATH": str(REPOSITORY),
        }

    def start(self, *arguments: str) -> float:
        """Start `hybrid up` and wait until it says where it is; its CPU seconds until then."""
        with (self.folder / "up.err").open("a") as errors:
            self.up = self._started([*HYBRID, "up", "--port", "0", *arguments], stderr=errors)
        assert self.up.stdout is not None
        first = self.up.stdout.readline()
        spent_s = _cpu_s(self.up.pid)
        assert first.startswith("hybrid serves at http://127.0.0.1:"), (first, self.errors())
        self.said = [first.rstrip()]
        return spent_s

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to `hybrid up` and wait; its exit code."""
        assert self.up is not None
        self.up.send_signal(number)
        code = self.up.wait(LONG_S)
        assert self.up.stdout is not None
        self.said += self.up.stdout.read().splitlines()
        return code

    def errors(self) -> str:
        return (self.folder / "up.err").read_text()

    def hybrid(
        self, *arguments: str, cwd: Path | None = None, timeout_s: float = LONG_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HYBRID, *arguments],
            env=self.environ,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @property
    def url(self) -> str:
        return str(json.loads((self.state_dir / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.state_dir / "admin.token").read_text().strip()

    def curl(self, path: str, *arguments: str) -> subprocess.Popen[str]:
        return self._started(
            ["curl", "--silent", "--show-error", "--no-buffer", "--max-time", str(LONG_S),
             "--header", f"Authorization: Bearer {self.token}", *arguments, f"{self.url}{path}"],
        )  # fmt: skip

    def _started(self, command: list[str], **settings: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env=self.environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            **settings,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """`hybrid run`, while it goes on."""
        return self.started_hybrid("run", *arguments)

    def started_hybrid(self, *arguments: str) -> subprocess.Popen[str]:
        """A command, while it goes on."""
        return self._started([*HYBRID, *arguments], stderr=subprocess.PIPE)

    def wait_for_node(self) -> None:
        deadline = time.monotonic() + LONG_S
        while '"ready"' not in self.hybrid("nodes", "list", "-o", "json").stdout:
            assert time.monotonic() < deadline, self.errors()
            time.sleep(0.2)

    def wait_until_running(self, job: str) -> None:
        """What a job prints may come before the loop has looked at what its node says of it."""
        deadline = time.monotonic() + LONG_S
        while (shown := json.loads(self.hybrid("show", job, "-o", "json").stdout))[
            "state"
        ] == "placed":
            assert time.monotonic() < deadline, shown
        assert shown["state"] == "running"

    def left(self) -> list[int]:
        """Processes of this place that are still there."""
        marker = str(self.folder).encode()
        return [each.pid for each in all_processes() if marker in _seen_of(each.pid)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _seen_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=LONG_S)
    deadline = time.monotonic() + 10
    while (pids := place.left()) and time.monotonic() < deadline:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def lines_until(stream: subprocess.Popen[str], wanted: str) -> list[str]:
    """What comes, up to a line."""
    assert stream.stdout is not None
    seen = []
    while line := stream.stdout.readline():
        seen.append(line.rstrip("\n"))
        if seen[-1] == wanted:
            return seen
    raise AssertionError(f"{wanted!r} did not come: {seen}")


def test_up_serves_an_empty_folder_at_once_and_runs_what_curl_submits(
    place: Place, tmp_path: Path
) -> None:
    spent_s = place.start()
    assert spent_s < 3.0  # of CPU: what else the machine does does not count

    # a job that cannot end before its first line has been read from the stream
    gate = tmp_path / "gate"
    script = f"echo first; while [ ! -e {gate} ]; do sleep 0.1; done; echo second >&2"
    spec = {"command": ["bash", "-c", script], "resources": {"gpus": 0}}
    submitted = place.curl(
        "/v1/jobs", "--header", "Content-Type: application/json", "--data", json.dumps(spec)
    )
    job = json.loads(submitted.communicate(timeout=LONG_S)[0])["id"]
    logs = place.curl(f"/v1/jobs/{job}/logs?follow=true")
    assert lines_until(logs, "first") == ["first"]
    place.wait_until_running(job)
    gate.touch()
    assert logs.communicate(timeout=LONG_S)[0] == "second\n"
    followed = place.hybrid("logs", "--follow", job)
    assert (followed.returncode, followed.stdout) == (0, "first\nsecond\n")

    assert place.end() == 0
    assert place.said[1] == f"admin token (shown once): {place.token}"
    assert place.said[2].endswith(str(place.state_dir / "admin.token"))
    assert place.errors() == ""
    assert place.left() == []


def test_run_sends_the_folder_ends_with_the_jobs_code_and_its_outputs_come_back(
    place: Place,
) -> None:
    place.start("--virtual-gpus", "a100-80gb:4:nvlink-pairs")
    project = place.folder / "project"
    project.mkdir()
    (project / "secret.txt").write_text("stays here")
    (project / ".gitignore").write_text("secret.txt\n")
    (project / "train.py").write_text(
        "import os, sys\n"
        "print(sorted(os.listdir('.')), sys.argv[1:], os.environ['LR'])\n"
        "print(len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 'devices')\n"
        "os.makedirs('out'); open('out/weights', 'w').write('42')\n"
        "sys.exit(7)\n"
    )
    ran = place.hybrid(
        "run", "--gpus", "2", "--link", "nvlink", "--env", "LR=0.1", "--output-path", "out",
        "--", sys.executable, "train.py", "--epochs", "3", cwd=project,
    )  # fmt: skip
    assert ran.returncode == 7, ran.stderr
    assert ran.stdout == "['.gitignore', 'train.py'] ['--epochs', '3'] 0.1\n2 devices\n"
    assert ran.stderr.splitlines()[0].startswith("packed .: 2 entries, ")
    job = ran.stderr.splitlines()[1].split()[0]
    assert ran.stderr.splitlines()[-1].endswith(": exited with code 7")

    brought = place.hybrid("outputs", job, "-d", "back")
    assert brought.returncode == 0, brought.stderr
    assert (place.folder / "back" / "out" / "weights").read_text() == "42"
    again = place.hybrid("outputs", job, "-d", "back")
    assert (again.returncode, again.stderr) == (
        2, "hybrid: back is not empty; name another with -d DIR\n",
    )  # fmt: skip
    nodes = place.hybrid("nodes", "list").stdout
    assert "4× A100 PCIe 80GB (virtual)" in nodes
    assert place.end(signal.SIGINT) == 0


def test_a_run_outlives_up_killed_at_any_moment_and_the_next_up_takes_over(place: Place) -> None:
    place.start()
    gate = place.folder / "gate"
    script = f"echo began $$; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended"
    job = place.hybrid("submit", "--gpus", "0", "--", "bash", "-c", script).stdout.strip()
    lines = place.curl(f"/v1/jobs/{job}/logs?follow=true")
    assert lines.stdout is not None
    began = lines.stdout.readline()
    assert place.up is not None
    place.up.kill()
    place.up.wait(LONG_S)
    lines.communicate(timeout=LONG_S)
    place.start()
    gate.touch()
    followed = place.hybrid("logs", "--follow", job)
    assert (followed.returncode, followed.stdout) == (0, f"{began}ended\n")
    shown = json.loads(place.hybrid("show", job, "-o", "json").stdout)
    assert (shown["state"], shown["attempts"]) == ("succeeded", 1)
    assert place.end() == 0


def test_a_job_that_is_running_is_cancelled_and_up_leaves_nothing_behind(place: Place) -> None:
    place.start()
    job = place.hybrid("submit", "--gpus", "0", "--", "bash", "-c", "echo on; sleep 600")
    job_id = job.stdout.strip()
    lines_until(place.curl(f"/v1/jobs/{job_id}/logs?follow=true"), "on")
    assert place.hybrid("cancel", job_id).stdout == f"{job_id} is being cancelled\n"
    assert place.hybrid("logs", "--follow", job_id).returncode == 1
    assert json.loads(place.hybrid("show", job_id, "-o", "json").stdout)["state"] == "cancelled"
    assert place.end() == 0
    assert place.left() == []


def test_draining_stops_the_runs_and_the_next_up_runs_them_again(place: Place) -> None:
    place.start("--drain")
    command = ("bash", "-c", "echo on; sleep 600")
    job = place.hybrid("submit", "--gpus", "0", "--", *command).stdout.strip()
    lines_until(place.curl(f"/v1/jobs/{job}/logs?follow=true"), "on")
    assert place.end() == 0
    assert "stopping 1 run; Ctrl-C again leaves them" in place.errors()
    assert place.left() == []
    place.start()
    place.wait_for_node()
    second = place.curl(f"/v1/jobs/{job}/logs?follow=true")
    lines_until(second, "on")
    shown = json.loads(place.hybrid("show", job, "-o", "json").stdout)
    assert shown["attempts"] == 2
    place.hybrid("cancel", job)
    assert place.hybrid("logs", "--follow", job).returncode == 1
    assert place.end() == 0


def test_drain_waits_until_a_node_is_empty_and_undrain_lets_runs_in_again(place: Place) -> None:
    place.start()
    place.wait_for_node()
    (node,) = json.loads(place.hybrid("nodes", "list", "-o", "json").stdout)["nodes"]
    gate = place.folder / "gate"
    script = f"echo on; while [ ! -e {gate} ]; do sleep 0.1; done"
    first = place.hybrid("submit", "--gpus", "0", "--", "bash", "-c", script).stdout.strip()
    lines_until(place.curl(f"/v1/jobs/{first}/logs?follow=true"), "on")

    drain = place.started_hybrid("drain", node["id"], "--within", "10m", "--why", "new fans")
    assert drain.stderr is not None
    assert drain.stderr.readline() == f"{node['id']}: 1 run left on 1 node\n"
    second = place.hybrid("submit", "--gpus", "0", "--", "echo", "ran").stdout.strip()
    told = place.hybrid("show", second).stdout
    assert "pending" in told
    gate.touch()  # it ends in time by itself, so it is let be
    said, more = drain.communicate(timeout=LONG_S)
    assert (drain.returncode, said, more) == (0, f"{node['id']} is empty\n", "")
    assert json.loads(place.hybrid("show", first, "-o", "json").stdout)["state"] == "succeeded"
    assert json.loads(place.hybrid("show", second, "-o", "json").stdout)["state"] == "pending"
    assert "new fans" in place.hybrid("nodes", "list").stdout

    undrained = place.hybrid("undrain", node["id"])
    assert undrained.stdout == f"{node['id']} takes runs again on 1 node\n"
    followed = place.hybrid("logs", "--follow", second)
    assert (followed.returncode, followed.stdout) == (0, "ran\n")
    assert place.end() == 0


def test_draining_a_pool_stops_what_does_not_end_in_time_and_it_goes_on_afterwards(
    place: Place,
) -> None:
    place.start()
    place.wait_for_node()
    (node,) = json.loads(place.hybrid("nodes", "list", "-o", "json").stdout)["nodes"]
    job = place.hybrid("submit", "--gpus", "0", "--", "bash", "-c", "echo on; sleep 600")
    job_id = job.stdout.strip()
    lines_until(place.curl(f"/v1/jobs/{job_id}/logs?follow=true"), "on")
    asked = place.hybrid("drain", node["pool"], "--within", "5s", "--no-wait")
    assert asked.stdout == f"{node['pool']} is being emptied within 5s\n"
    drained = place.hybrid("drain", node["pool"], "--within", "5s", "-o", "json")
    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout)["runs_left"] == 0
    shown = json.loads(place.hybrid("show", job_id, "-o", "json").stdout)
    assert (shown["state"], shown["runs"][0]["stop_cause"]) == ("pending", "drain")

    assert place.hybrid("undrain", node["pool"]).returncode == 0
    deadline = time.monotonic() + LONG_S
    while (shown := json.loads(place.hybrid("show", job_id, "-o", "json").stdout))["attempts"] < 2:
        assert time.monotonic() < deadline, shown
    nowhere = place.hybrid("drain", "nowhere")
    assert nowhere.returncode != 0
    assert "there is neither a node nor a pool nowhere" in nowhere.stderr
    place.hybrid("cancel", job_id)
    assert place.hybrid("logs", "--follow", job_id).returncode == 1
    assert place.end() == 0


def test_ctrl_c_without_a_terminal_leaves_the_job(place: Place) -> None:
    place.start()
    run = place.run("--gpus", "0", "--no-workdir", "--", "bash", "-c", "echo on; sleep 600")
    lines_until(run, "on")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=LONG_S)
    assert run.returncode == 130
    job = errors.split()[0]
    assert errors.splitlines()[-1] == f"{job} goes on; `hybrid logs --follow {job}` shows the rest"
    place.wait_until_running(job)
    place.hybrid("cancel", job)
    assert place.hybrid("logs", "--follow", job).returncode == 1
    assert place.end() == 0
