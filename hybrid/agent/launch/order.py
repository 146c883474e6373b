"""From what a job asks for to what a guardian runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hybrid.agent.guardian import RunOrder
from hybrid.agent.guardian.records import DEFAULT_OUTPUT_LIMIT_BYTES
from hybrid.agent.launch.container import (
    ContainerRuntime,
    ContainerSpec,
    NoContainerRuntime,
    container_command,
)
from hybrid.agent.launch.environment import (
    Contract,
    build_environment,
    inherited_environment,
    refuse_reserved,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One rank's process on this node.

    ``secrets`` are values, resolved already. ``virtual_gpus`` tells that the GPUs of the contract
    do not exist, so that no container engine is asked for them.
    """

    contract: Contract
    command: tuple[str, ...]
    workdir: Path
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0
    walltime_s: float | None = None
    virtual_gpus: bool = False
    rank: int = 0
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Launchable:
    """Ready for ``GuardianHandle.spawn``: the order, and the secrets that travel beside it."""

    order: RunOrder
    secrets: Mapping[str, str]


def build_order(
    launch: Launch,
    runtime: ContainerRuntime | None = None,
    base: Mapping[str, str] | None = None,
) -> Launchable:
    """The order for ``launch``, as a process or, when it names an image, in a container.

    ``base`` is the node's environment (default: this process's). Raises ReservedName,
    InvalidContainer, NoContainerRuntime, or InvalidOrder.
    """
    refuse_reserved(launch.env)
    refuse_reserved(launch.secrets)
    if launch.image is None:
        return Launchable(
            _order(launch, launch.command, build_environment(launch.contract, launch.env, base)),
            dict(launch.secrets),
        )
    if runtime is None:
        raise NoContainerRuntime(
            f"image {launch.image}: this node has neither docker, podman nor apptainer"
        )
    contract = launch.contract
    made = container_command(
        runtime,
        ContainerSpec(
            name=container_name(contract.run_id, launch.rank),
            image=launch.image,
            command=launch.command,
            workdir=launch.workdir,
            mounts=(launch.workdir, contract.checkpoint_dir, contract.progress_file.parent),
            env={**launch.env, **contract.variables()},
            secrets=launch.secrets,
            gpus=() if launch.virtual_gpus else contract.gpus,
            stop_signal=contract.stop_signal,
            user=os.getuid(),
            group=os.getgid(),
        ),
    )
    env = {**inherited_environment(base), **made.env}
    source = os.environ if base is None else base
    if "DOCKER_HOST" in source:
        env["DOCKER_HOST"] = source["DOCKER_HOST"]
    return Launchable(_order(launch, made.argv, env, made.cleanup), made.secrets)


def container_name(run_id: str, rank: int) -> str:
    """The name under which a run's container can be found when its guardian is gone."""
    return f"hybrid-{run_id}-{rank}"


def _order(
    launch: Launch,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    cleanup: tuple[tuple[str, ...], ...] = (),
) -> RunOrder:
    contract = launch.contract
    return RunOrder(
        run_id=contract.run_id,
        job_id=contract.job_id,
        attempt=contract.attempt,
        argv=argv,
        env=env,
        cwd=str(launch.workdir),
        grace_s=launch.grace_s,
        stop_signal=contract.stop_signal,
        walltime_s=launch.walltime_s,
        cleanup=cleanup,
        output_limit_bytes=launch.output_limit_bytes,
        rank=launch.rank,
    )
