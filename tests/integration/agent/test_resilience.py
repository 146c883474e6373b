"""Servers, agents and guardians that go away, and what a run makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hybrid.agent.guardian import boottime_s
from hybrid.domain.ids import ClaimId, RunId
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import Checkpointing, JobSpec, Stopping
from hybrid.ports.engine import RankPhase
from tests.doubles.metadata_server import MetadataServer
from tests.doubles.node_server import POOL, NodeServer, wait_until
from tests.integration.agent.conftest import AgentProcess, python

pytestmark = pytest.mark.integration

GO_ON = "import time\nfor i in range(3000): print(i, flush=True); time.sleep(0.02)"


def guardian_of(agent: AgentProcess, run: RunId) -> int:
    record = json.loads((agent.state / "runs" / run / "0" / "guard" / "claimed").read_text())
    return int(record["pid"])


def starts_of(agent: AgentProcess, run: RunId) -> int:
    lines = agent.journal()
    own = agent.state / "runs" / run / "0" / "guard" / "journal.jsonl"
    if own.exists():
        lines += [json.loads(line) for line in own.read_text().splitlines()]
    return sum(line["event"] == "started" and line["run_id"] == run for line in lines)


def test_a_run_outlives_the_server_and_its_result_is_delivered_afterwards(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("import time; print('a', flush=True); time.sleep(2); print('b')"))
    server.wait_running(run)
    server.stop()
    time.sleep(3)
    server.start()
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.problem) == (0, "")
    assert server.printed(run) == "a\nb\n"


def test_a_run_outlives_its_agent_and_is_taken_over_by_the_next(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("import time; print('a', flush=True); time.sleep(3); print('b')"))
    before = server.wait_running(run)
    pid = guardian_of(agent, run)
    agent.kill()
    agent.start()
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.started_at) == (0, before.started_at)
    assert server.printed(run) == "a\nb\n"
    assert guardian_of(agent, run) == pid
    assert starts_of(agent, run) == 1
    assert len(server.mailbox.nodes()) == 1  # the same node, without a new join token


def test_an_agent_that_is_told_to_end_leaves_its_runs_alone(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python(GO_ON))
    server.wait_running(run)
    assert agent.end() == 0
    assert Path(f"/proc/{guardian_of(agent, run)}").exists()
    agent.start()
    server.engine.stop(run, StopCause.CANCEL, 2.0, 1)
    assert server.wait_ended(run).cause is StopCause.CANCEL


def test_a_run_whose_end_was_not_heard_is_reported_by_the_next_agent(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("import time; time.sleep(1.5); raise SystemExit(4)"))
    server.wait_running(run)
    server.stop()
    wait_until(lambda: (agent.state / "runs" / run / "0" / "guard" / "ended.json").exists())
    agent.kill()
    server.start()
    agent.start()
    assert server.wait_ended(run).exit_code == 4


def test_a_killed_guardian_takes_its_run_with_it_and_that_is_reported(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python(GO_ON))
    server.wait_running(run)
    os.kill(guardian_of(agent, run), signal.SIGKILL)
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.cause) == (None, StopCause.NODE_LOST)
    assert ended.problem == "its guardian was killed"


def test_after_a_restart_of_the_machine_its_runs_are_reported_as_lost(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python(GO_ON))
    server.wait_running(run)
    pid = guardian_of(agent, run)
    agent.kill()
    os.kill(pid, signal.SIGKILL)
    claimed = agent.state / "runs" / run / "0" / "guard" / "claimed"
    record = json.loads(claimed.read_text())
    claimed.write_text(json.dumps({**record, "boot_id": "another-boot"}))
    agent.start()
    ended = server.wait_ended(run)
    assert (ended.cause, ended.problem) == (StopCause.NODE_LOST, "the machine was restarted")


def test_a_folder_that_was_being_made_when_the_agent_died_is_removed(
    server: NodeServer, agent: AgentProcess
) -> None:
    server.only_node()
    agent.kill()
    (agent.state / "runs/half.1/0").mkdir(parents=True)
    agent.start()
    wait_until(lambda: agent.run_dirs() == [])


def test_a_run_that_is_remembered_is_reported_again_and_never_started_again(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("raise SystemExit(6)"))
    server.wait_ended(run)
    server.engine.acknowledge(run)
    wait_until(lambda: agent.run_dirs() == [])
    server.memory.lose_track_of(run)  # as after a restore from an old backup
    assert server.run(python("raise SystemExit(7)"), job=run.rpartition(".")[0]) == run
    assert server.wait_ended(run).exit_code == 6
    assert starts_of(agent, run) == 1


def test_a_run_that_the_server_names_no_more_does_not_go_on(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python(GO_ON, stop=Stopping(grace=60)))
    server.wait_running(run)
    pid = guardian_of(agent, run)
    server.engine.acknowledge(run)
    wait_until(lambda: agent.run_dirs() == [])
    assert not Path(f"/proc/{pid}").exists()


def test_orders_of_a_former_leader_are_ignored(server: NodeServer, agent: AgentProcess) -> None:
    server.epoch = 5
    run = server.run(python(GO_ON))
    server.wait_running(run)
    row = server.memory.row_of(server.only_node().id)
    row.epoch, row.revision = 4, row.revision + 1
    server.memory.drop_order(run)  # would end the run, if it were believed
    server.bell.ring()
    wait_until(lambda: "stale orders ignored" in agent.log())
    assert Path(f"/proc/{guardian_of(agent, run)}").exists()


def test_without_the_server_a_run_ends_with_its_run_lease(tmp_path: Path) -> None:
    server = NodeServer(tmp_path / "server", run_lease_s=2.0)
    server.start()
    agent = AgentProcess(tmp_path / "agent", server)
    agent.start()
    try:
        run = server.run(python(GO_ON))
        server.wait_running(run)
        server.stop()
        wait_until(lambda: (agent.state / "runs" / run / "0" / "guard" / "ended.json").exists(), 8)
        server.start()
        ended = server.wait_ended(run)
        assert ended.cause is StopCause.LEASE
    finally:
        agent.clean_up()
        server.stop()


def test_draining_stops_the_runs_delivers_their_ends_and_says_goodbye(
    server: NodeServer, agent: AgentProcess
) -> None:
    node = server.only_node()
    agent.end()
    agent.start("--drain")
    run = server.run(python(GO_ON), nodes=(node,))
    server.wait_running(run)
    agent.process.terminate()
    ended = server.wait_ended(run)
    assert ended.cause is StopCause.DRAIN
    assert agent.process.poll() is None  # not before it has been heard
    server.engine.acknowledge(run)
    assert agent.process.wait(15) == 0
    assert server.only_node().left


# --- joining -----------------------------------------------------------------------------------


def test_an_unknown_join_token_ends_the_agent_with_one_clear_line(
    server: NodeServer, tmp_path: Path
) -> None:
    agent = AgentProcess(tmp_path / "agent", server, join_token="wrong")
    agent.start()
    assert agent.process.wait(15) != 0
    assert "join_unknown_token: the join token is refused: unknown_token" in agent.log()
    assert "wrong" not in agent.log()


def test_a_join_token_lets_in_one_machine_only(
    server: NodeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    server.only_node()
    second = AgentProcess(tmp_path / "second", server)
    second.start()
    assert second.process.wait(15) != 0
    assert "join_token_used" in second.log()


def test_an_agent_waits_for_a_server_that_is_not_there_yet(
    server: NodeServer, tmp_path: Path
) -> None:
    server.failing = 503
    agent = AgentProcess(tmp_path / "agent", server)
    agent.start()
    try:
        wait_until(lambda: "waiting for the server" in agent.log(), 15)
        server.failing = 0
        server.only_node()
        identity = agent.state / "identity.json"
        assert identity.stat().st_mode & 0o777 == 0o600
    finally:
        agent.clean_up()


def test_two_agents_do_not_share_a_state_directory(server: NodeServer, agent: AgentProcess) -> None:
    server.only_node()
    first = agent.process
    agent.start()
    assert agent.process.wait(15) != 0
    assert "AlreadyRunning: another agent works in" in agent.log()
    agent._process = first


# --- machines that are taken or not paid for any more ---------------------------------------------


@pytest.fixture
def burst(server: NodeServer, tmp_path: Path) -> AgentProcess:
    server.gate.known["join-c"] = (POOL, ClaimId("c-job-1-0-0"))
    agent = AgentProcess(
        tmp_path / "burst",
        server,
        join_token="join-c",
        claim_id="c-job-1-0-0",
        machine="burst",
        end_tail=1,
    )
    agent.environ["HYBRID_POWEROFF_COMMAND"] = f"touch '{tmp_path / 'powered off'}'"
    return agent


def test_a_machine_of_a_claim_has_the_claims_own_node_id(
    server: NodeServer, burst: AgentProcess
) -> None:
    burst.start()
    try:
        node = server.only_node()
        assert (node.id, node.claim_id) == ("n-c-job-1-0-0", "c-job-1-0-0")
    finally:
        burst.clean_up()


def test_the_watchdogs_file_holds_the_end_of_the_claims_lease_and_moves_with_it(
    server: NodeServer, burst: AgentProcess
) -> None:
    burst.start()
    try:
        node = server.only_node()
        lease = burst.folder / "lease"
        for length_s in (100.0, 300.0):
            server.engine.extend_lease(node.id, time.time() + length_s, 1)
            expected = boottime_s() + length_s
            wait_until(
                lambda e=expected: lease.exists() and abs(int(lease.read_text()) - e) <= 2  # type: ignore[misc]
            )
    finally:
        burst.clean_up()


def test_without_the_server_a_burst_machine_saves_its_work_and_ends_within_its_lease(
    server: NodeServer, burst: AgentProcess, tmp_path: Path
) -> None:
    burst.start()
    try:
        node = server.only_node()
        server.engine.extend_lease(node.id, time.time() + 14.0, 1)
        paid_until = time.time() + 14.0
        code = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    (Path(os.environ["HYBRID_CHECKPOINT_DIR"]) / "state").write_text("1"); sys.exit(85)
signal.signal(signal.SIGTERM, save); print("on", flush=True); time.sleep(60)
"""
        spec = python(
            code,
            checkpoint=Checkpointing(enabled=True, size=0.01),
            stop=Stopping(grace=2),
        )
        run = server.run(spec)
        wait_until(lambda: server.printed(run) == "on\n")
        server.stop()
        off = tmp_path / "powered off"
        wait_until(off.exists, 20)
        assert time.time() < paid_until
        final = json.loads((burst.state / "runs" / run / "0" / "final.json").read_text())
        assert (final["exit_code"], final["cause"]) == (85, "lease")
        assert final["checkpoint"]["size_bytes"] == 1
    finally:
        burst.clean_up()


def test_an_owned_machine_is_never_switched_off(server: NodeServer, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path / "owned", server)
    agent.environ["HYBRID_POWEROFF_COMMAND"] = f"touch '{tmp_path / 'powered off'}'"
    agent.start()
    try:
        server.engine.extend_lease(server.only_node().id, time.time() - 10, 1)
        time.sleep(2)
        assert not (tmp_path / "powered off").exists()
    finally:
        agent.clean_up()


def test_a_notice_of_the_cloud_is_told_at_once_and_heeded_if_the_server_does_not(
    server: NodeServer, burst: AgentProcess
) -> None:
    metadata = MetadataServer()
    config = json.loads(burst.config.read_text())
    burst.config.write_text(json.dumps({**config, "cloud": "aws"}))
    burst.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = metadata.url
    burst.start()
    try:
        run = server.run(python(GO_ON, stop=Stopping(grace=2)))
        server.wait_running(run)
        assert server.only_node().machine_id == "i-0123456789"
        at = int(time.time()) + 10
        metadata.interrupt(at)
        wait_until(lambda: server.only_node().notice_at == at, 5)
        ended = server.wait_ended(run)
        assert ended.cause is StopCause.INTERRUPTION
        assert ended.ended_at is not None
        assert ended.ended_at < at
    finally:
        burst.clean_up()
        metadata.close()


def test_an_order_that_comes_while_the_lease_is_over_is_answered_and_not_begun(
    server: NodeServer, burst: AgentProcess, tmp_path: Path
) -> None:
    burst.start()
    try:
        node = server.only_node()
        server.engine.extend_lease(node.id, time.time() + 0.5, 1)
        wait_until((tmp_path / "powered off").exists)
        ended = server.wait_ended(server.run(JobSpec(command=("true",))))
        assert (ended.phase, ended.cause) == (RankPhase.ENDED, StopCause.LEASE)
        assert ended.started_at is None
    finally:
        burst.clean_up()


def test_a_full_disk_keeps_no_run_alive_and_no_end_from_being_reported(
    server: NodeServer, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a small tmpfs cannot be mounted: run as root")
    agent = AgentProcess(tmp_path / "agent", server, state_dir=str(disk / "state"))
    agent.state = disk / "state"
    agent.start()
    code = """
import os, time
try:
    while True: os.write(os.open("big", os.O_WRONLY | os.O_CREAT | os.O_APPEND), b"x" * 65536)
except OSError: pass
print("full", flush=True); time.sleep(60)
"""
    try:
        run = server.run(python(code, stop=Stopping(grace=1)))
        server.wait_running(run)
        full = lambda: shutil.disk_usage(disk).free < 4096  # noqa: E731
        wait_until(full)
        server.engine.stop(run, StopCause.CANCEL, 1.0, 1)
        assert server.wait_ended(run).exit_code in (-15, -9)
        server.engine.acknowledge(run)
        wait_until(lambda: agent.run_dirs() == [])
        assert not full()
        assert server.wait_ended(server.run(python("pass"))).exit_code == 0
    finally:
        agent.clean_up()
        subprocess.run(["umount", "-l", str(disk)], check=False)
