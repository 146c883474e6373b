"""Sandbox clouds for the tests: in this process, on a port of their own, gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from providers.sandbox.cloud import SandboxCloud
from providers.sandbox.config import SandboxConfig

BuildCloud = Callable[..., SandboxCloud]
LAUNCH = {"ImageId": SandboxConfig().image_id, "MinCount": 1, "MaxCount": 1}


@pytest.fixture
def build_cloud() -> Iterator[BuildCloud]:
    """Clouds of rows only, as configured."""
    with ExitStack() as stack:

        def build(**config: Any) -> SandboxCloud:
            declared = SandboxConfig.model_validate({"machines": False, **config})
            return stack.enter_context(SandboxCloud(declared))

        yield build


@pytest.fixture
def cloud(build_cloud: BuildCloud) -> SandboxCloud:
    return build_cloud()


@pytest.fixture
def machine_cloud(tmp_path: Path) -> Iterator[SandboxCloud]:
    """A cloud whose instances are machines; notices are scaled down."""
    with SandboxCloud(SandboxConfig(spot_notice_s=2.0), state_dir=tmp_path) as cloud:
        yield cloud


def launch(cloud: SandboxCloud, machine_type: str = "g5.xlarge", **more: Any) -> str:
    """RunInstances for one machine; returns its id."""
    reply = cloud.client("ec2").run_instances(**{**LAUNCH, "InstanceType": machine_type, **more})
    instance_id: str = reply["Instances"][0]["InstanceId"]
    return instance_id


def eventually(holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Wait until something holds; fails with the time it was given."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"did not hold within {timeout_s:g} s"
        time.sleep(0.02)
