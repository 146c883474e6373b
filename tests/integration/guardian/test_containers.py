"""The container command lines work through a guardian, with a stand-in for the engine."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from hybrid.agent.guardian import GuardianHandle, LeftoversRemain, boottime_s, recover
from hybrid.agent.launch import (
    ContainerKind,
    ContainerRuntime,
    Contract,
    Launch,
    build_order,
    detect_container_runtime,
)

from .conftest import Node, wait_ended, wait_for, wait_output

pytestmark = pytest.mark.integration

#: Understands the words we use. Like docker, it runs the job outside of the client's process tree
#: and session, in an environment of its own, passes signals on, and removes by name.
ENGINE = """\
#!{python} -S
import json, os, signal, subprocess, sys
state = os.path.dirname(os.path.abspath(__file__)) + "/containers"
os.makedirs(state, exist_ok=True)
verb, words = sys.argv[1], sys.argv[2:]
if verb == "version":
    print("27.0")
    sys.exit(0)
if verb == "rm":
    if os.path.exists(state + "/.refuse"):
        sys.exit("daemon is away")
    path = state + "/" + words[-1]
    if os.path.exists(path):
        pid = int(open(path).read())
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.unlink(path)
    sys.exit(0)
env, options = {{}}, {{}}
while words and words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    if name == "--env":
        key, is_set, given = value.partition("=")
        env[key] = given if is_set else os.environ[key]
    else:
        options.setdefault(name, []).append(value)
image, command = words[0], words[1:]
with open(state + "/.last", "w") as file:
    json.dump({{"image": image, "options": options, "argv": sys.argv}}, file)
job = subprocess.Popen(
    command, env=env, cwd=options["--workdir"][0], start_new_session=True
)
for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda number, _: job.send_signal(number))
open(state + "/" + options["--name"][0], "w").write(str(job.pid))
code = job.wait()
os.unlink(state + "/" + options["--name"][0])
sys.exit(code if code >= 0 else 128 - code)
"""


@pytest.fixture
def engine(tmp_path: Path) -> ContainerRuntime:
    path = tmp_path / "docker"
    path.write_text(ENGINE.format(python=sys.executable))
    path.chmod(0o755)
    found = detect_container_runtime(lambda name: str(path) if name == "docker" else None)
    assert found == ContainerRuntime(ContainerKind.DOCKER, str(path), "27.0")
    return found


def start(node: Node, engine: ContainerRuntime, code: str, grace_s: float = 5.0) -> GuardianHandle:
    work = node.root / "work"
    work.mkdir()
    launch = Launch(
        contract=Contract(
            job_id="job-1",
            run_id="job-1.1",
            attempt=1,
            resume=False,
            checkpoint_dir=node.root / "ck",
            progress_file=node.root / "contract" / "progress.json",
            gpus=("GPU-1",),
        ),
        command=(sys.executable, "-S", "-c", code),
        workdir=work,
        image="train:1",
        env={"COLOUR": "blue"},
        secrets={"KEY": "hush"},
        grace_s=grace_s,
    )
    made = build_order(launch, engine, base={"PATH": os.environ["PATH"]})
    handle = GuardianHandle.spawn(
        node.root / "run",
        made.order,
        lease_until_boottime_s=boottime_s() + 60,
        secrets=made.secrets,
    )
    node.handles.append(handle)
    return handle


def container_pid(node: Node) -> int:
    path = node.root / "containers" / "hybrid-job-1.1-0"
    wait_for(path.exists)
    wait_for(path.read_text)
    return int(path.read_text())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_job_runs_in_its_container_with_contract_and_secret(
    node: Node, engine: ContainerRuntime
) -> None:
    code = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"
    handle = start(node, engine, code)
    ended = wait_ended(handle)
    assert (ended.exit_code, ended.error) == (0, None)
    cwd, env = json.loads((handle.run_dir / "stdout.log").read_text())
    assert cwd == str(node.root / "work")
    assert (env["COLOUR"], env["KEY"]) == ("blue", "hush")
    assert (env["HYBRID_RUN_ID"], env["CUDA_VISIBLE_DEVICES"]) == ("job-1.1", "GPU-1")
    assert "PATH" not in env
    told = json.loads((node.root / "containers" / ".last").read_text())
    assert told["options"]["--gpus"] == ['"device=GPU-1"']
    assert "hush" not in json.dumps(told["argv"])


def test_a_container_gets_the_stop_signal_and_its_exit_code_counts(
    node: Node, engine: ContainerRuntime
) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    handle = start(node, engine, code)
    wait_output(handle, "ready")
    container_pid(node)
    handle.request_stop("preempt")
    ended = wait_ended(handle)
    assert (ended.exit_code, ended.cause, ended.killed) == (85, "preempt", False)


def test_a_container_that_ignores_its_signal_is_removed(
    node: Node, engine: ContainerRuntime
) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    handle = start(node, engine, code, grace_s=0.3)
    wait_output(handle, "ready")
    pid = container_pid(node)
    handle.request_stop("cancel")
    ended = wait_ended(handle)
    assert (ended.cause, ended.killed, ended.error) == ("cancel", True, None)
    assert not is_running(pid)


def test_a_container_whose_guardian_died_is_removed_by_name(
    node: Node, engine: ContainerRuntime
) -> None:
    handle = start(node, engine, "import time; print('ready', flush=True); time.sleep(60)")
    wait_output(handle, "ready")
    pid = container_pid(node)
    guardian = handle.status().guardian
    assert guardian is not None
    guardian.send(signal.SIGKILL)
    wait_for(lambda: not handle.is_alive())
    assert is_running(pid)
    refuse = node.root / "containers" / ".refuse"
    refuse.touch()
    with pytest.raises(LeftoversRemain, match="daemon is away"):
        recover(handle.run_dir, timeout_s=0.3)
    assert handle.status().ended is None
    refuse.unlink()
    assert recover(handle.run_dir).cause == "node_lost"
    wait_for(lambda: not is_running(pid))
