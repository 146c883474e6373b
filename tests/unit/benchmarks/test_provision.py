"""The provisioning benchmark counts what the cloud counts, and judges by what is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.provision import compare, provisioned
from providers.sandbox.config import SandboxConfig
from providers.sandbox.process import SandboxHandle, start_sandbox

pytestmark = pytest.mark.xdist_group("sandbox-cloud")


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxHandle]:
    handle = start_sandbox(tmp_path / "cloud", SandboxConfig(machines=False), until_pid=os.getpid())
    for name, value in handle.environment().items():
        monkeypatch.setenv(name, value)
    yield handle
    handle.stop()


def test_every_claim_is_a_machine_and_one_launch(cloud: SandboxHandle, tmp_path: Path) -> None:
    figures = provisioned(cloud, tmp_path, 3)
    with cloud.control() as control:
        state = control.state()
    assert (figures["claims"], len(state.live)) == (3, 3)
    assert state.calls["RunInstances"] == 3
    assert figures["api_calls_per_claim"] == round(sum(state.calls.values()) / 3, 2)
    assert figures["own_ms_per_claim"] > 0


def test_too_many_calls_and_too_slow_a_sweep_are_told() -> None:
    line = {
        "own_ms_per_claim": 5.0,
        "api_calls_per_claim": 3.5,
        "sweep_2000_s": 2.5,
        "sweep_2000_gcp_s": 0.1,
    }
    assert [row.reached for row in compare(line)] == [None, False, False, True]
