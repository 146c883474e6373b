"""Runs that need a node, a store or a server of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid.domain.job import Checkpoint, StopCause
from hybrid.domain.job_spec import Checkpointing, JobSpec, Resources
from hybrid.ports.engine import RankPhase
from tests.doubles.node_server import NodeServer, wait_until
from tests.integration.agent.conftest import AgentProcess, python

pytestmark = pytest.mark.integration


def test_an_image_on_a_node_without_a_container_engine_is_a_problem_in_words(
    server: NodeServer, tmp_path: Path
) -> None:
    agent = AgentProcess(tmp_path / "bare", server)
    agent.environ["PATH"] = str(tmp_path)
    agent.start()
    try:
        ended = server.wait_ended(server.run(JobSpec(command=("true",), image="busybox")))
        assert ended.problem == (
            "image busybox: this node has neither docker, podman nor apptainer"
        )
    finally:
        agent.clean_up()


def test_a_checkpoint_store_that_cannot_be_written_is_told_and_the_run_goes_on(
    server: NodeServer, agent: AgentProcess
) -> None:
    server.checkpoints.parent.mkdir(exist_ok=True)
    server.checkpoints.write_text("a file where a folder should be")
    code = (
        "import os, time; from pathlib import Path;"
        "(Path(os.environ['HYBRID_CHECKPOINT_DIR']) / 'state').write_text('1'); time.sleep(60)"
    )
    run = server.run(python(code, checkpoint=Checkpointing(enabled=True, interval=0.5)))
    told = server.wait_for(run, lambda r: bool(r.checkpoint_problem), timeout_s=60)
    assert told.checkpoint_problem.startswith("the checkpoint store does not answer")
    assert told.phase is RankPhase.RUNNING


def test_a_stopped_run_is_over_only_when_its_last_save_is_in_the_store(
    server: NodeServer, agent: AgentProcess
) -> None:
    server.checkpoints.parent.mkdir(exist_ok=True)
    server.checkpoints.write_text("a file where a folder should be")
    code = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    (Path(os.environ["HYBRID_CHECKPOINT_DIR"]) / "state").write_text("7"); sys.exit(85)
signal.signal(signal.SIGTERM, save)
print("on", flush=True); time.sleep(60)
"""
    run = server.run(python(code, checkpoint=Checkpointing(enabled=True)))
    wait_until(lambda: server.printed(run) == "on\n")
    server.engine.stop(run, StopCause.RETURN, 20.0, 1)
    told = server.wait_for(run, lambda r: bool(r.checkpoint_problem), timeout_s=60)
    assert told.phase is RankPhase.STOPPING
    assert told.checkpoint_problem.startswith("the checkpoint store does not answer")
    server.checkpoints.unlink()
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.checkpoint_problem) == (85, "")
    assert ended.checkpoint is not None


def test_a_run_that_is_stopped_before_it_starts_never_does(
    server: NodeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    node = server.only_node()
    server.stop()  # the order and its stop reach the node together
    touched = tmp_path / "touched"
    run = server.run(python(f"open({str(touched)!r}, 'w')"), nodes=(node,))
    server.engine.stop(run, StopCause.CANCEL, 5.0, 1)
    server.start()
    ended = server.wait_ended(run)
    assert (ended.cause, ended.problem) == (StopCause.CANCEL, "stopped before it started")
    assert not touched.exists()


def test_the_ranks_of_a_gang_find_each_other_and_resume_at_their_common_step(
    server: NodeServer, agent: AgentProcess, tmp_path: Path
) -> None:
    server.gate.known["join-2"] = server.gate.known["join-1"]
    other = AgentProcess(tmp_path / "other", server, join_token="join-2")
    other.start()
    try:
        wait_until(lambda: len(server.mailbox.nodes()) == 2, 15)
        code = """
import os, sys
from pathlib import Path
d = Path(os.environ["HYBRID_CHECKPOINT_DIR"])
names = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES")
print(*(os.environ[n] for n in names), (d / "STEP").read_text() if (d / "STEP").exists() else "-")
(d / "STEP").write_text(os.environ["HYBRID_ATTEMPT"] + "0"); sys.exit(85)
"""
        spec = python(code, resources=Resources(nodes=2), checkpoint=Checkpointing(enabled=True))
        nodes = server.mailbox.nodes()
        run = server.run(spec, job="gang", nodes=nodes)
        ends = [server.wait_ended(run, rank=rank) for rank in (0, 1)]
        assert [end.exit_code for end in ends] == [85, 85]
        port = server.printed(run).split()[1]
        assert 20_000 <= int(port) < 30_000
        assert server.printed(run, 0) == f"127.0.0.1 {port} 0 2 -\n"
        assert server.printed(run, 1) == f"127.0.0.1 {port} 1 2 -\n"
        assert ends[1].checkpoint is not None
        server.engine.acknowledge(run)
        again = server.run(spec, job="gang", nodes=nodes, attempt=2, checkpoint=ends[1].checkpoint)
        for rank in (0, 1):
            assert server.wait_ended(again, rank=rank).first_step == 10
            assert server.printed(again, rank).endswith(f"{rank} 2 10\n")
    finally:
        other.clean_up()


def test_a_store_of_an_unknown_kind_is_told_and_a_fresh_run_goes_on(
    server: NodeServer, tmp_path: Path
) -> None:
    agent = AgentProcess(tmp_path / "agent", server, checkpoint_url="carrier-pigeon://loft")
    agent.start()
    try:
        spec = python("import time; time.sleep(60)", checkpoint=Checkpointing(enabled=True))
        run = server.run(spec)
        told = server.wait_for(run, lambda r: bool(r.checkpoint_problem))
        assert told.checkpoint_problem.startswith("the checkpoint store cannot be opened")
        assert told.phase is RankPhase.RUNNING
        server.engine.stop(run, StopCause.CANCEL, 1.0, 1)
        server.wait_ended(run)
    finally:
        agent.clean_up()


def test_a_checkpoint_that_is_gone_is_a_problem_and_nothing_starts(
    server: NodeServer, agent: AgentProcess
) -> None:
    saved = Checkpoint(seq=100_001, step=5, committed_at=1.0, size_bytes=1, commit_s=0.1)
    run = server.run(python("pass", checkpoint=Checkpointing(enabled=True)), checkpoint=saved)
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.started_at) == (None, None)
    assert ended.problem.startswith("the checkpoint cannot be restored: job ")
