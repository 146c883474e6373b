"""Machines of the sandbox: cloud-init, services, metadata, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from botocore.credentials import InstanceMetadataProvider
from botocore.utils import InstanceMetadataFetcher

from providers.sandbox import processes
from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.cloud_core import UnknownInstance, WrongState
from providers.sandbox.config import SandboxConfig
from providers.sandbox.views import UnitView

from .conftest import eventually, launch

pytestmark = pytest.mark.integration
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}
AGENT = "hybrid-agent.service"

# Stands in for a node agent: it starts what a guardian and its job are, in sessions of their own,
# with and without the environment that they inherited.
SCRIPT = """
echo "$@" > "$HYBRID_ROOT/run/hybrid/arguments"
env > "$HYBRID_ROOT/run/hybrid/environment"
setsid sh -c 'setsid sleep 900 & exec sleep 901' &
env -i setsid sh -c 'exec sleep 902' &
exec sleep 903
"""


def user_data(
    service: str = "Restart=always\nRestartSec=0.1\nKillMode=process",
    script: str = SCRIPT,
    **more: Any,
) -> str:
    start = "/bin/sh /opt/hybrid/agent.sh --config /etc/hybrid/agent.json"
    unit = f"[Service]\nExecStart={start}\n{service}\n"
    document = {
        "write_files": [
            {"path": f"/etc/systemd/system/{AGENT}", "content": unit},
            {"path": "/opt/hybrid/agent.sh", "content": script},
            {"path": "/etc/hybrid/agent.json", "content": "{}", "permissions": "0600"},
        ],
        "runcmd": [["apt-get", "install", "-y", "x"], ["systemctl", "enable", "--now", AGENT]],
        **more,
    }
    return f"#cloud-config\n{yaml.safe_dump(document)}"


def agent(cloud: SandboxCloud, instance_id: str) -> UnitView | None:
    units = cloud.instance(instance_id).units
    return next((unit for unit in units if unit.name == AGENT), None)


def runs(cloud: SandboxCloud, instance_id: str) -> bool:
    unit = agent(cloud, instance_id)
    return unit is not None and unit.pid is not None


def boot(cloud: SandboxCloud, data: str, machine_type: str = "g5.12xlarge", **more: Any) -> str:
    instance_id = launch(cloud, machine_type, UserData=data, **more)
    eventually(lambda: runs(cloud, instance_id))
    return instance_id


def root(tmp_path: Path, instance_id: str) -> Path:
    return tmp_path / "machines" / instance_id / "root"


def init_of(instance_id: str) -> int:
    (init,) = (
        pid
        for pid in processes.processes()
        if processes.marked_as(pid) == instance_id
        and "machine_init" in Path(f"/proc/{pid}/cmdline").read_text()
    )
    return init


def pids_of(instance_id: str, count: int) -> set[int]:
    """Every process of a machine once there are ``count`` of them, found by descent."""
    found: set[int] = set()

    def complete() -> bool:
        init = init_of(instance_id)
        found.clear()
        found.update({init} | processes.descendants(init, processes.processes()))
        return len(found) == count

    eventually(complete)
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if processes.process(pid) is not None}


# -- boot -----------------------------------------------------------------------------------


def test_cloud_init_writes_files_and_runs_the_units(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data())
    home = root(tmp_path, instance_id)
    eventually((home / "run/hybrid/environment").exists)
    assert (home / "etc/hybrid/agent.json").stat().st_mode & 0o777 == 0o600
    arguments = (home / "run/hybrid/arguments").read_text()
    assert arguments == f"--config {home}/etc/hybrid/agent.json\n"
    console = machine_cloud.console(instance_id)
    assert "not executed: ('apt-get', 'install', '-y', 'x')" in console
    assert f"Started {AGENT}" in console


def test_a_machine_sees_its_own_surroundings_and_not_ours(
    machine_cloud: SandboxCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    instance_id = boot(machine_cloud, user_data())
    written = root(tmp_path, instance_id) / "run/hybrid/environment"
    eventually(lambda: written.exists() and "PATH=" in written.read_text())
    environment = dict(line.split("=", 1) for line in written.read_text().splitlines() if line)
    assert environment["HYBRID_VIRTUAL_GPUS"] == "a10g:4:pcie"
    assert environment["HYBRID_ROOT"] == str(root(tmp_path, instance_id))
    endpoint = environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
    assert endpoint == f"{machine_cloud.url}/imds/{instance_id}"
    assert environment["AWS_ENDPOINT_URL"] == machine_cloud.url
    assert environment["PATH"].startswith(f"{root(tmp_path, instance_id)}/usr/sbin:")
    assert "SECRET_OF_THE_HOST" not in environment
    assert not any(name.startswith("AWS_ACCESS") for name in environment)


def test_a_boot_command_comes_before_the_files_as_in_a_cloud(machine_cloud: SandboxCloud) -> None:
    data = user_data(bootcmd=[["systemctl", "start", AGENT]])
    instance_id = boot(machine_cloud, data)
    console = machine_cloud.console(instance_id)
    assert f"Unit {AGENT} not found." in console
    assert console.index("not found") < console.index("wrote /etc/systemd/system")


def test_user_data_that_cannot_be_followed_shows_on_the_console(
    machine_cloud: SandboxCloud,
) -> None:
    instance_id = launch(machine_cloud, UserData="#!/bin/sh\ntouch /tmp/owned")
    ec2 = machine_cloud.client("ec2")
    eventually(
        lambda: "cloud-init failed" in ec2.get_console_output(InstanceId=instance_id)["Output"]
    )
    assert machine_cloud.instance(instance_id).state == "running"


def test_a_machine_boots_after_its_delay(tmp_path: Path) -> None:
    with SandboxCloud(SandboxConfig(boot_s=0.5), state_dir=tmp_path) as cloud:
        instance_id = launch(cloud, UserData=user_data())
        assert cloud.instance(instance_id).state == "running"
        eventually(lambda: runs(cloud, instance_id))
        view = cloud.instance(instance_id)
        assert view.booted_at is not None
        assert view.booted_at - view.launched_at >= 0.5


def test_no_more_machines_run_than_this_host_may_carry(tmp_path: Path) -> None:
    from botocore.exceptions import ClientError

    with SandboxCloud(SandboxConfig(machine_limit=1), state_dir=tmp_path) as cloud:
        launch(cloud)
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            launch(cloud)


# -- services -------------------------------------------------------------------------------


def test_a_killed_agent_is_started_again_and_its_children_live_on(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data())
    before = pids_of(instance_id, 5)
    killed = machine_cloud.kill_agent(instance_id)

    def started_again() -> bool:
        unit = agent(machine_cloud, instance_id)
        return unit is not None and unit.pid not in (None, killed) and unit.restarts == 1

    eventually(started_again)
    assert alive(before) == before - {killed}


def test_without_kill_mode_process_the_children_of_a_killed_agent_die(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    data = user_data(service="Restart=no")
    instance_id = boot(machine_cloud, data)
    before = pids_of(instance_id, 5)
    killed = machine_cloud.kill_agent(instance_id)
    marked = {pid for pid in before if processes.marked_as(pid, processes.UNIT_MARKER) == AGENT}
    eventually(lambda: not alive(marked | {killed}))
    assert "processes it left behind" in machine_cloud.console(instance_id)


def test_a_service_that_keeps_failing_is_given_up_as_systemd_does(
    machine_cloud: SandboxCloud,
) -> None:
    data = user_data(service="Restart=on-failure\nRestartSec=0.01", script="exit 3")
    instance_id = launch(machine_cloud, UserData=data)
    eventually(lambda: "Start request repeated too quickly" in machine_cloud.console(instance_id))
    unit = agent(machine_cloud, instance_id)
    assert unit is not None
    assert (unit.state, unit.restarts, unit.pid) == ("failed", 5, None)
    with pytest.raises(WrongState, match="does not run"):
        machine_cloud.kill_agent(instance_id)


def test_a_service_that_ends_well_is_not_restarted_on_failure(machine_cloud: SandboxCloud) -> None:
    data = user_data(service="Type=oneshot\nRestart=on-failure", script="exit 0")
    instance_id = launch(machine_cloud, UserData=data)
    eventually(lambda: f"{AGENT}: ended with 0" in machine_cloud.console(instance_id))
    eventually(lambda: (unit := agent(machine_cloud, instance_id)) is not None and not unit.pid)
    unit = agent(machine_cloud, instance_id)
    assert unit is not None
    assert (unit.state, unit.restarts) == ("inactive", 0)


def test_a_program_that_is_not_there_fails_with_203(machine_cloud: SandboxCloud) -> None:
    unit = "[Service]\nExecStart=/opt/hybrid/bin/nothing\n"
    data = yaml.safe_dump(
        {
            "write_files": [{"path": f"/etc/systemd/system/{AGENT}", "content": unit}],
            "runcmd": [["systemctl", "start", AGENT, "missing.service"]],
        }
    )
    instance_id = launch(machine_cloud, UserData=f"#cloud-config\n{data}")
    eventually(lambda: f"{AGENT}: ended with 203" in machine_cloud.console(instance_id))
    eventually(lambda: "missing.service not found" in machine_cloud.console(instance_id))


def test_a_stopped_machine_starts_its_enabled_units_again(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data())
    marker = root(tmp_path, instance_id) / "var/lib/hybrid/kept"
    marker.write_text("kept")
    ec2 = machine_cloud.client("ec2")
    ec2.stop_instances(InstanceIds=[instance_id])
    eventually(lambda: machine_cloud.instance(instance_id).state == "stopped")
    assert machine_cloud.instance(instance_id).processes == 0
    ec2.start_instances(InstanceIds=[instance_id])
    eventually(lambda: runs(machine_cloud, instance_id))
    assert marker.read_text() == "kept"


# -- the end --------------------------------------------------------------------------------


def test_ending_an_instance_ends_every_process_of_it(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data())
    other = boot(machine_cloud, user_data())
    # init, the agent, a shell's child and its own child, and one without the marker
    pids = pids_of(instance_id, 5)
    others = pids_of(other, 5)
    assert len({os.getsid(pid) for pid in pids}) >= 4
    assert {processes.marked_as(pid) for pid in pids} == {instance_id, None}
    assert machine_cloud.instance(instance_id).processes == 5
    machine_cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    assert alive(pids) == set()
    assert alive(others) == others


def test_a_frozen_machine_stands_still_and_can_still_be_ended(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    # many at a time, each begun by one that may not stand still yet
    beats_once = '(sleep 0.05; date +%N > "$HYBRID_ROOT/run/hybrid/beat") &'
    script = f"while :; do {beats_once} sleep 0.002; done"
    instance_id = boot(machine_cloud, user_data(script=script))
    beat = root(tmp_path, instance_id) / "run/hybrid/beat"
    eventually(beat.exists)

    def beats(during_s: float) -> bool:
        before = beat.stat().st_mtime_ns
        time.sleep(during_s)
        return beat.stat().st_mtime_ns != before

    assert machine_cloud.freeze(instance_id) >= 2
    assert machine_cloud.instance(instance_id).frozen
    assert not beats(0.2)
    machine_cloud.thaw(instance_id)
    eventually(lambda: beats(0.1))
    machine_cloud.freeze(instance_id)
    machine_cloud.terminate(instance_id)
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    assert machine_cloud.instance(instance_id).processes == 0


def test_a_machine_whose_init_dies_has_a_failed_host(
    machine_cloud: SandboxCloud, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data())
    pids = pids_of(instance_id, 5)
    os.kill(init_of(instance_id), signal.SIGKILL)
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    assert machine_cloud.instance(instance_id).end_code == "Server.InternalError"
    assert alive(pids) == set()


def test_a_process_far_from_home_is_found_by_what_ties_are_left(tmp_path: Path) -> None:
    home = tmp_path / "i-1"
    home.mkdir()
    ties = processes.Ties("i-1", home, None)
    marked = subprocess.Popen(["sleep", "60"], env={processes.MARKER: "i-1"}, cwd="/")
    working = subprocess.Popen(["sleep", "60"], env={}, cwd=home, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "60"], env={processes.MARKER: "i-2"}, cwd=home)
    try:
        eventually(lambda: set(processes.members(ties)) == {marked.pid, working.pid})
        assert processes.kill_until_none(ties, {}, 5.0) == set()
        assert stranger.poll() is None
    finally:
        for each in (marked, working, stranger):
            each.kill()
            each.wait()


@pytest.mark.parametrize(
    "command",
    ["exec $HYBRID_POWEROFF_COMMAND", "exec systemctl poweroff", "exec shutdown -h now"],
)
def test_a_machine_can_end_itself(machine_cloud: SandboxCloud, command: str) -> None:
    instance_id = launch(
        machine_cloud,
        UserData=user_data(script=command),
        InstanceInitiatedShutdownBehavior="terminate",
    )
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    assert machine_cloud.instance(instance_id).end_code == "Client.InstanceInitiatedShutdown"


def test_closing_the_cloud_ends_every_machine(tmp_path: Path) -> None:
    with SandboxCloud(SandboxConfig(), state_dir=tmp_path) as cloud:
        instance_id = boot(cloud, user_data())
        pids = pids_of(instance_id, 5)
        assert alive(pids) == pids
    assert alive(pids) == set()


# -- metadata -------------------------------------------------------------------------------


class Metadata:
    """A machine's metadata service, as seen from inside it."""

    def __init__(self, cloud: SandboxCloud, instance_id: str) -> None:
        self.url = f"{cloud.url}/imds/{instance_id}/latest"
        self.http = httpx.Client(timeout=5, trust_env=False)

    def token(self, ttl: str = "60") -> httpx.Response:
        header = {"X-aws-ec2-metadata-token-ttl-seconds": ttl}
        return self.http.put(f"{self.url}/api/token", headers=header)

    def get(self, path: str, token: str | None = None) -> httpx.Response:
        known = self.token().text if token is None else token
        return self.http.get(f"{self.url}/{path}", headers={"X-aws-ec2-metadata-token": known})


@pytest.fixture
def metadata(machine_cloud: SandboxCloud):
    opened: list[Metadata] = []

    def open_metadata(instance_id: str) -> Metadata:
        opened.append(Metadata(machine_cloud, instance_id))
        return opened[-1]

    yield open_metadata
    for each in opened:
        each.http.close()


def test_metadata_tells_a_machine_who_it_is(machine_cloud: SandboxCloud, metadata) -> None:
    instance_id = launch(machine_cloud, UserData="#cloud-config\n", **SPOT)
    imds = metadata(instance_id)
    told = {
        path: imds.get(f"meta-data/{path}").text
        for path in ("instance-id", "instance-type", "instance-life-cycle", "local-ipv4")
    }
    assert told == {
        "instance-id": instance_id,
        "instance-type": "g5.xlarge",
        "instance-life-cycle": "spot",
        "local-ipv4": "127.0.0.1",
    }
    assert imds.get("meta-data/placement/availability-zone").text == "us-east-1a"
    assert imds.get("user-data").text == "#cloud-config\n"
    identity = imds.get("dynamic/instance-identity/document").json()
    assert identity["instanceId"] == instance_id
    assert identity["accountId"] == machine_cloud.account_id
    assert imds.get("meta-data/nothing").status_code == 404


def test_metadata_needs_a_session_of_the_same_machine(
    machine_cloud: SandboxCloud, metadata
) -> None:
    one, other = metadata(launch(machine_cloud)), metadata(launch(machine_cloud))
    assert one.get("meta-data/instance-id", token="").status_code == 401
    assert one.get("meta-data/instance-id", token=other.token().text).status_code == 401
    assert one.token("0").status_code == 400
    assert one.token("soon").status_code == 400
    assert one.http.post(f"{one.url}/meta-data/instance-id").status_code == 405
    short = one.token("2").text
    assert one.get("meta-data/instance-id", token=short).status_code == 200
    eventually(lambda: one.get("meta-data/instance-id", token=short).status_code == 401)


def test_a_machine_without_user_data_has_none(machine_cloud: SandboxCloud, metadata) -> None:
    assert metadata(launch(machine_cloud)).get("user-data").status_code == 404


def test_a_spot_notice_arms_the_metadata_then_ends_the_machine(
    machine_cloud: SandboxCloud, metadata, tmp_path: Path
) -> None:
    instance_id = boot(machine_cloud, user_data(), **SPOT)
    pids = pids_of(instance_id, 5)
    imds = metadata(instance_id)
    assert imds.get("meta-data/spot/instance-action").status_code == 404
    assert imds.get("meta-data/spot/termination-time").status_code == 404
    end_at = machine_cloud.interrupt(instance_id)  # this cloud's notice: 2 s
    told = imds.get("meta-data/spot/instance-action").json()
    assert told["action"] == "terminate"
    assert 0 <= end_at - datetime.fromisoformat(told["time"]).timestamp() < 1
    assert alive(pids) == pids
    assert machine_cloud.instance(instance_id).state == "running"
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    view = machine_cloud.instance(instance_id)
    assert view.ended_at is not None
    assert 0 <= view.ended_at - end_at < 2
    assert view.end_code == "Server.SpotInstanceTermination"
    assert alive(pids) == set()
    assert imds.get("meta-data/instance-id", token="any").status_code == 404


def test_a_rebalance_recommendation_is_only_a_word(machine_cloud: SandboxCloud, metadata) -> None:
    instance_id = launch(machine_cloud, **SPOT)
    imds = metadata(instance_id)
    path = "meta-data/events/recommendations/rebalance"
    assert imds.get(path).status_code == 404
    at = machine_cloud.recommend_rebalance(instance_id)
    told = datetime.fromisoformat(imds.get(path).json()["noticeTime"]).timestamp()
    assert 0 <= at - told < 1
    assert imds.get("meta-data/spot/instance-action").status_code == 404
    assert machine_cloud.instance(instance_id).state == "running"
    with pytest.raises(WrongState):
        machine_cloud.recommend_rebalance(launch(machine_cloud))


def test_an_sdk_on_a_machine_finds_its_role(machine_cloud: SandboxCloud) -> None:
    instance_id = launch(machine_cloud)
    endpoint = f"{machine_cloud.url}/imds/{instance_id}"
    fetcher = InstanceMetadataFetcher(
        timeout=5, num_attempts=1, config={"ec2_metadata_service_endpoint": endpoint}
    )
    credentials = InstanceMetadataProvider(iam_role_fetcher=fetcher).load()
    assert credentials is not None
    assert credentials.get_frozen_credentials().access_key.startswith("ASIA")


def test_machines_that_are_not_there_cannot_be_touched(machine_cloud: SandboxCloud) -> None:
    with pytest.raises(UnknownInstance):
        machine_cloud.freeze("i-0")
    instance_id = launch(machine_cloud)
    machine_cloud.terminate(instance_id)
    eventually(lambda: machine_cloud.instance(instance_id).state == "terminated")
    with pytest.raises((WrongState, UnknownInstance)):
        machine_cloud.thaw(instance_id)


def test_boot_facts_are_for_the_owner_only(machine_cloud: SandboxCloud, tmp_path: Path) -> None:
    instance_id = boot(machine_cloud, user_data())
    directory = tmp_path / "machines" / instance_id
    assert directory.stat().st_mode & 0o777 == 0o700
    facts = json.loads((directory / "boot.json").read_text())
    assert facts["instance_id"] == instance_id
