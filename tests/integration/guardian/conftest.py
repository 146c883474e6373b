"""Real guardians around real processes, all of them ended with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hybrid.agent.guardian import (
    Ended,
    GuardianHandle,
    RunOrder,
    RunPhase,
    RunStatus,
    boottime_s,
)
from hybrid.agent.guardian.processes import marked_with


class Node:
    """Starts runs under one directory, as an agent would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.handles: list[GuardianHandle] = []

    def order(self, run_id: str, *argv: str, **fields: object) -> RunOrder:
        env = {"PATH": os.environ["PATH"], "HYBRID_RUN_ID": run_id}
        extra = fields.pop("env", {})
        assert isinstance(extra, Mapping)
        return RunOrder(
            run_id=run_id,
            job_id="job-1",
            attempt=1,
            argv=argv,
            env={**env, **extra},
            cwd=str(self.root),
            **{"grace_s": 5.0, **fields},  # type: ignore[arg-type]
        )

    def spawn(self, order: RunOrder, *, lease_s: float = 60.0, **kw: object) -> GuardianHandle:
        handle = GuardianHandle.spawn(
            self.root / order.run_id,
            order,
            lease_until_boottime_s=boottime_s() + lease_s,
            **kw,  # type: ignore[arg-type]
        )
        self.handles.append(handle)
        return handle

    def python(self, run_id: str, code: str, **fields: object) -> RunOrder:
        return self.order(run_id, sys.executable, "-S", "-c", code, **fields)


def wait_for(what: Callable[[], object], timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def wait_phase(handle: GuardianHandle, phase: RunPhase) -> RunStatus:
    wait_for(lambda: handle.status().phase is phase)
    return handle.status()


def wait_ended(handle: GuardianHandle) -> Ended:
    ended = wait_phase(handle, RunPhase.ENDED).ended
    assert ended is not None
    wait_for(lambda: not handle.is_alive())
    return ended


def wait_output(handle: GuardianHandle, text: str) -> None:
    log = handle.run_dir / "output.log"
    wait_for(lambda: log.exists() and text in log.read_text(errors="replace"))


@contextlib.contextmanager
def ended_with_it(node: Node) -> Iterator[Node]:
    """Nothing of the node outlives the test."""
    try:
        yield node
    finally:
        _end(node)


def _end(node: Node) -> None:
    for handle in node.handles:
        guardian = handle.status().guardian
        if guardian is not None:
            guardian.send(signal.SIGKILL)
        wait_for(lambda h=handle: not h.is_alive())  # type: ignore[misc]
        for stat in marked_with(handle.run_dir):
            os.kill(stat.pid, signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with ended_with_it(Node(tmp_path)) as node:
        yield node
