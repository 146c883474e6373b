"""The same agent over the store that the product really has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import Checkpointing
from hybrid.ports.engine import RankPhase
from hybrid.store import SqlStore
from tests.doubles.node_server import NodeServer, wait_until
from tests.integration.agent.conftest import AgentProcess, python

pytestmark = pytest.mark.integration


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NodeServer]:
    servers: list[NodeServer] = []
    store = SqlStore.open(
        f"sqlite:///{tmp_path / 'hybrid.db'}",
        work_changed=lambda node: [each.bell.ring(f"node:{node}") for each in servers],
    )
    server = NodeServer(tmp_path / "server", mailbox=store)
    servers.append(server)
    server.start()
    yield server
    server.stop()
    store.close()


def test_runs_end_are_stopped_are_acknowledged_and_are_forgotten_over_sql(
    server: NodeServer, agent: AgentProcess
) -> None:
    done = server.run(python("print('hello')"), job="j1")
    assert server.wait_ended(done).exit_code == 0
    assert server.printed(done) == "hello\n"

    code = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    (Path(os.environ["HYBRID_CHECKPOINT_DIR"]) / "STEP").write_text("12"); sys.exit(85)
signal.signal(signal.SIGTERM, save); print("on", flush=True); time.sleep(60)
"""
    saving = server.run(python(code, checkpoint=Checkpointing(enabled=True)), job="j2")
    wait_until(lambda: server.printed(saving) == "on\n")
    assert server.wait_running(saving).phase is RankPhase.RUNNING
    server.engine.stop(saving, StopCause.RETURN, 10.0, server.epoch)
    ended = server.wait_ended(saving)
    assert (ended.exit_code, ended.cause) == (85, StopCause.RETURN)
    assert ended.checkpoint is not None
    assert ended.checkpoint.step == 12

    for run in (done, saving):
        server.engine.acknowledge(run)
    wait_until(lambda: agent.run_dirs() == [])
    assert server.engine.list_runs() == ()
