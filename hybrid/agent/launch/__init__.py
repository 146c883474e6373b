"""Builds what a guardian runs: command line, environment, container; reads what a job reports."""

from __future__ import annotations

from hybrid.agent.launch.container import (
    ContainerCommand,
    ContainerKind,
    ContainerRuntime,
    ContainerSpec,
    InvalidContainer,
    NoContainerRuntime,
    container_command,
    detect_container_runtime,
    detect_container_runtimes,
)
from hybrid.agent.launch.environment import (
    Contract,
    Gang,
    GpuPart,
    ReservedName,
    SecretSources,
    SecretUnavailable,
    build_environment,
)
from hybrid.agent.launch.order import Launch, Launchable, build_order, container_name
from hybrid.agent.launch.progress import read_progress

__all__ = [
    "ContainerCommand",
    "ContainerKind",
    "ContainerRuntime",
    "ContainerSpec",
    "Contract",
    "Gang",
    "GpuPart",
    "InvalidContainer",
    "Launch",
    "Launchable",
    "NoContainerRuntime",
    "ReservedName",
    "SecretSources",
    "SecretUnavailable",
    "build_environment",
    "build_order",
    "container_command",
    "container_name",
    "detect_container_runtime",
    "detect_container_runtimes",
    "read_progress",
]
