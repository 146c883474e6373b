"""Runs from the order to the acknowledged end, with a real agent process and real guardians."""

from __future__ import annotations

import sys

from hybrid.agent.protocol import StopOrder
from hybrid.domain.job import StopCause
from hybrid.domain.job_spec import JobSpec
from tests.doubles.node_server import NodeServer, wait_until
from tests.integration.agent.conftest import AgentProcess


def python(code: str, **fields: object) -> JobSpec:
    return JobSpec(command=(sys.executable, "-u", "-c", code), **fields)


def test_a_run_prints_ends_is_reported_and_is_forgotten_once_acknowledged(
    server: NodeServer, agent: AgentProcess
) -> None:
    run = server.run(python("print('hello'); print('bye')"))
    ended = server.wait_ended(run)
    assert (ended.exit_code, ended.cause, ended.problem, ended.tail) == (0, None, "", "")
    assert ended.started_at is not None and ended.ended_at is not None
    assert ended.started_at <= ended.ended_at
    assert server.printed(run) == "hello\nbye\n"
    server.engine.acknowledge(run)
    wait_until(lambda: agent.run_dirs() == [])
    assert [line["event"] for line in agent.journal()] == ["claimed", "started", "ended"]
