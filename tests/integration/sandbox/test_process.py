"""The sandbox as a process of its own: it starts, is found, is told what to do, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import boto3
import httpx
import pytest

from providers.sandbox import processes
from providers.sandbox.config import (
    CapacityRule,
    FaultRule,
    Market,
    QuotaRule,
    SandboxConfig,
    SpotPrice,
)
from providers.sandbox.control import ControlError, SandboxControl
from providers.sandbox.process import (
    SandboxHandle,
    SandboxNotRunning,
    find_sandbox,
    start_sandbox,
)

from .conftest import LAUNCH, eventually

pytestmark = pytest.mark.integration
AGENT = "hybrid-agent.service"
USER_DATA = f"""#cloud-config
write_files:
- path: /etc/systemd/system/{AGENT}
  content: |
    [Service]
    ExecStart=/bin/sh /opt/hybrid/agent.sh
    Restart=always
    RestartSec=0.1
- path: /opt/hybrid/agent.sh
  content: |
    setsid sh -c 'setsid sleep 900 & exec sleep 901' &
    env -i setsid sleep 902 &
    exec sleep 903
runcmd:
- [systemctl, enable, --now, {AGENT}]
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxHandle]:
    config = SandboxConfig(spot_notice_s=0.5)
    handle = start_sandbox(tmp_path / "cloud", config, until_pid=os.getpid())
    yield handle
    handle.stop()


@pytest.fixture
def control(sandbox: SandboxHandle) -> Iterator[SandboxControl]:
    with sandbox.control() as control:
        yield control


def run_machine(sandbox: SandboxHandle, control: SandboxControl, **more: object) -> str:
    ec2 = boto3.client(
        "ec2",
        endpoint_url=sandbox.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    reply = ec2.run_instances(**LAUNCH, InstanceType="g5.xlarge", UserData=USER_DATA, **more)
    instance_id: str = reply["Instances"][0]["InstanceId"]
    ec2.close()
    eventually(lambda: control.state().instances[-1].processes == 5)
    return instance_id


def everything_below(handle: SandboxHandle) -> set[int]:
    found: set[int] = set()

    def complete() -> bool:
        found.clear()
        found.update(processes.descendants(handle.pid, processes.processes()))
        return len(found) == 5

    eventually(complete)
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if processes.process(pid) is not None}


def test_the_control_api_does_what_operators_do(
    sandbox: SandboxHandle, control: SandboxControl
) -> None:
    market = {"InstanceMarketOptions": {"MarketType": "spot"}}
    instance_id = run_machine(sandbox, control, **market)
    state = control.state()
    (view,) = state.live
    assert (view.instance_id, view.market, view.state) == (instance_id, Market.SPOT, "running")
    assert state.subnets.keys() == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert state.spot_notice_s == 0.5
    assert state.image_id.startswith("ami-")

    control.exhaust(zone="us-east-1b")
    control.set_capacity(CapacityRule(zone="us-east-1c", machines=2))
    control.set_quota(QuotaRule(group="P", market=Market.SPOT, vcpus=8))
    fault_id = control.fault(FaultRule(action="RunInstances", code="InternalError"))
    price = SpotPrice(zone="us-east-1a", machine_type="g5.xlarge", usd_per_hour=Decimal("0.9"))
    control.script_spot_prices([price])
    state = control.state()
    assert [rule.machines for rule in state.capacities] == [0, 2]
    assert [rule.vcpus for rule in state.quotas] == [8]
    assert [fault.fault_id for fault in state.faults] == [fault_id]
    control.restore(zone="us-east-1b")
    assert control.clear_faults(fault_id) == 1
    assert control.clear_faults() == 0
    assert [rule.machines for rule in control.state().capacities] == [2]

    old = control.kill_agent(instance_id)
    eventually(lambda: control.instances()[0].units[0].pid not in (None, old))
    assert control.freeze(instance_id) >= 2
    assert control.instances()[0].frozen
    assert control.thaw(instance_id) >= 2
    assert f"Started {AGENT}" in control.console(instance_id)

    assert control.recommend_rebalance(instance_id) > 0
    end_at = control.interrupt(instance_id, rebalance=True)
    eventually(lambda: control.instances()[0].state == "terminated")
    (line,) = control.bill().lines
    assert line.ended_at == pytest.approx(end_at, abs=2)
    assert line.usd == control.bill().total_usd > 0


def test_orders_that_make_no_sense_are_refused_with_words(
    sandbox: SandboxHandle, control: SandboxControl
) -> None:
    def status(order: object, *arguments: object) -> int:
        with pytest.raises(ControlError) as caught:
            order(*arguments)  # type: ignore[operator]
        assert str(caught.value)
        return caught.value.status

    instance_id = run_machine(sandbox, control)
    assert status(control.interrupt, "i-0") == 404
    assert status(control.console, "i-0") == 404
    assert status(control.interrupt, instance_id) == 409
    assert status(control.kill_agent, instance_id, "no.service") == 409
    url = f"{sandbox.url}/_sandbox"
    with httpx.Client(timeout=5, trust_env=False) as http:
        assert http.post(f"{url}/faults", content=b"{").status_code == 422
        assert http.post(f"{url}/faults", json={"action": "X", "kode": "Y"}).status_code == 422
        assert http.post(f"{url}/nonsense", json={}).status_code == 404
        assert http.post(f"{url}/faults", content=b"x" * 2_000_000).status_code == 413
        assert http.get(f"{url}/state", headers={"Origin": "http://evil"}).status_code == 403
        assert http.get(f"{url}/state", headers={"Host": "evil.example"}).status_code == 403
        assert http.post(f"{sandbox.url}/moto-api/reset").status_code == 404
    control.terminate(instance_id)
    eventually(lambda: control.instances()[0].state == "terminated")
    assert status(control.freeze, instance_id) == 409


def test_sigterm_leaves_nothing(sandbox: SandboxHandle, control: SandboxControl) -> None:
    run_machine(sandbox, control)
    run_before = everything_below(sandbox)
    assert len(run_before) == 5
    sandbox.stop()
    assert not sandbox.alive()
    assert alive(run_before) == set()
    with pytest.raises(SandboxNotRunning):
        find_sandbox(sandbox.state_dir)


def test_shutdown_by_control_leaves_nothing(
    sandbox: SandboxHandle, control: SandboxControl
) -> None:
    run_machine(sandbox, control)
    pids = everything_below(sandbox)
    control.shutdown()
    sandbox_gone = lambda: not sandbox.alive()  # noqa: E731
    eventually(sandbox_gone)
    assert alive(pids) == set()


def test_machines_lose_their_power_when_the_sandbox_is_killed(
    sandbox: SandboxHandle, control: SandboxControl
) -> None:
    run_machine(sandbox, control)
    pids = everything_below(sandbox)
    os.kill(sandbox.pid, signal.SIGKILL)
    eventually(lambda: not alive(pids))


def test_a_sandbox_outlives_its_starter_and_is_found_again(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from providers.sandbox.process import start_sandbox\n"
        f"handle = start_sandbox(pathlib.Path(sys.argv[1]), until_pid={os.getpid()})\n"
        "print(handle.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    handle = find_sandbox(tmp_path)
    try:
        assert handle.pid == int(done.stdout)
        with handle.control() as control:
            assert control.state().instances == ()
        assert handle.environment()["AWS_ENDPOINT_URL"] == handle.url
        with pytest.raises(SandboxNotRunning, match="another sandbox serves"):
            start_sandbox(tmp_path)
        assert find_sandbox(tmp_path).pid == handle.pid
    finally:
        handle.stop()


def test_a_sandbox_ends_with_the_process_it_is_tied_to(tmp_path: Path) -> None:
    tied = subprocess.Popen(["sleep", "60"])
    try:
        handle = start_sandbox(tmp_path, until_pid=tied.pid)
        assert handle.alive()
    finally:
        tied.kill()
        tied.wait()
    eventually(lambda: not handle.alive())
    handle.stop()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [("zones: [nowhere]", "not in region"), ("[", "not YAML"), ("zone: x", "Extra inputs")],
)
def test_a_bad_configuration_is_one_message_and_exit_code_2(
    tmp_path: Path, config: str, complaint: str
) -> None:
    document = tmp_path / "cloud.yaml"
    document.write_text(config)
    done = subprocess.run(
        [sys.executable, "-m", "providers.sandbox", "--state", tmp_path, "--config", document],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_said_and_exit_code_4(sandbox: SandboxHandle, tmp_path: Path) -> None:
    with pytest.raises(SandboxNotRunning, match=r"ended with 4(.|\n)*cannot serve on port"):
        start_sandbox(tmp_path / "other", port=sandbox.endpoint.port)


def test_nobody_is_found_where_nothing_was_started(tmp_path: Path) -> None:
    with pytest.raises(SandboxNotRunning, match="no sandbox was started"):
        find_sandbox(tmp_path)
