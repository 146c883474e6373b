"""Command lines for the container engines. Pure, but for looking which engine is there."""

from __future__ import annotations

import enum
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROBE_TIMEOUT_S = 5.0
_SHM_SIZE = "8g"  # a ceiling, taken as it is used; the engines' 64 MB break data loaders
_IMAGE = re.compile(r"[^\s\-][^\s]*\Z")
#: Variables that steer the engine's client, through whose environment secrets travel.
_CLIENTS_OWN = re.compile(
    r"(PATH|HOME|USER|TMPDIR|HTTPS?_PROXY|NO_PROXY|(LD|DOCKER|PODMAN|CONTAINERS?|BUILDAH|XDG|"
    r"APPTAINER|APPTAINERENV|SINGULARITY|SINGULARITYENV|REGISTRY|STORAGE)_.*)\Z",
    re.IGNORECASE,
)


class ContainerKind(enum.StrEnum):
    """The engines we can drive, in order of preference."""

    DOCKER = "docker"
    PODMAN = "podman"
    APPTAINER = "apptainer"


class InvalidContainer(ValueError):
    """A container that cannot be started safely; the message says why."""


class NoContainerRuntime(Exception):
    """The job names an image and this node has nothing to run it with."""


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """An engine that answers on this node."""

    kind: ContainerKind
    path: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What to run in a container.

    ``mounts`` appear inside under their own paths, so that the contract's paths mean the same on
    both sides. ``gpus`` are UUIDs; leave it empty when they are virtual. ``user`` and ``group``
    are numeric ids.
    """

    name: str
    image: str
    command: tuple[str, ...]
    workdir: Path
    mounts: tuple[Path, ...]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    gpus: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
    user: int
    group: int


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """How to start a container and how to remove it.

    ``env`` and ``secrets`` are for the engine's client, on top of what it needs itself; secrets
    appear in no argument. ``cleanup`` is safe to repeat.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    cleanup: tuple[tuple[str, ...], ...]


def container_command(runtime: ContainerRuntime, spec: ContainerSpec) -> ContainerCommand:
    """The command line for ``spec``; raises InvalidContainer.

    The client stays in the foreground: it passes signals on to the job and exits with its code.
    """
    if not _IMAGE.match(spec.image):
        raise InvalidContainer(f"image {spec.image!r} is not a name of an image")
    for path in (spec.workdir, *spec.mounts):
        if not path.is_absolute() or any(c in str(path) for c in ',:"\n'):
            raise InvalidContainer(f"{path} cannot be mounted: absolute, and without , : or quotes")
    if runtime.kind is ContainerKind.APPTAINER:
        return _apptainer(runtime, spec)
    for name in sorted(spec.secrets):
        if _CLIENTS_OWN.match(name):
            raise InvalidContainer(f"secret {name}: the name steers {runtime.kind} itself")
    return _docker_or_podman(runtime, spec)


def _docker_or_podman(runtime: ContainerRuntime, spec: ContainerSpec) -> ContainerCommand:
    argv = [
        runtime.path,
        "run",
        "--rm",
        "--init",  # passes signals to the job, which as process 1 would ignore them by default
        f"--name={spec.name}",
        "--label=hybrid.run",
        "--network=host",
        f"--user={spec.user}:{spec.group}",
        "--security-opt=no-new-privileges",
        f"--shm-size={_SHM_SIZE}",
        "--ulimit=memlock=-1",
        f"--stop-signal={spec.stop_signal}",
        "--log-driver=none",  # the guardian keeps the output, bounded
        f"--workdir={spec.workdir}",
    ]
    for path in sorted(set(spec.mounts)):
        argv.append(f"--mount=type=bind,source={path},target={path}")
    argv += _gpu_arguments(runtime.kind, spec.gpus)
    argv += [f"--env={name}={value}" for name, value in sorted(spec.env.items())]
    # Without a value the client takes it from its own environment: no secret in `ps`.
    argv += [f"--env={name}" for name in sorted(spec.secrets)]
    argv += [spec.image, *spec.command]
    remove = [runtime.path, "rm", "--force"]
    if runtime.kind is ContainerKind.PODMAN:
        remove.append("--ignore")
    return ContainerCommand(tuple(argv), {}, dict(spec.secrets), ((*remove, spec.name),))


def _gpu_arguments(kind: ContainerKind, gpus: tuple[str, ...]) -> list[str]:
    if not gpus:
        return []
    if kind is ContainerKind.DOCKER:
        # docker reads the value as CSV: the inner quotes keep the list of devices together.
        return [f'--gpus="device={",".join(gpus)}"']
    return [
        "--security-opt=label=disable",
        *(f"--device=nvidia.com/gpu={gpu}" for gpu in gpus),
    ]


def _apptainer(runtime: ContainerRuntime, spec: ContainerSpec) -> ContainerCommand:
    argv = [runtime.path, "exec", "--cleanenv", "--no-home", f"--pwd={spec.workdir}"]
    argv += [f"--bind={path}:{path}" for path in sorted(set(spec.mounts))]
    if spec.gpus:
        argv.append("--nv")
    image = spec.image
    if "://" not in image and not image.startswith("/") and not image.endswith((".sif", ".img")):
        image = f"docker://{image}"
    argv += [image, *spec.command]
    # The prefix carries values inside; --env would cut them at commas.
    prefix = Path(runtime.path).name.upper() + "ENV_"
    return ContainerCommand(
        tuple(argv),
        {prefix + name: value for name, value in spec.env.items()},
        {prefix + name: value for name, value in spec.secrets.items()},
        (),  # its processes are ordinary descendants, which the guardian ends itself
    )


_PROBES: tuple[tuple[ContainerKind, str, tuple[str, ...]], ...] = (
    (ContainerKind.DOCKER, "docker", ("version", "--format", "{{.Server.Version}}")),
    (ContainerKind.PODMAN, "podman", ("version", "--format", "{{.Client.Version}}")),
    (ContainerKind.APPTAINER, "apptainer", ("--version",)),
    (ContainerKind.APPTAINER, "singularity", ("--version",)),
)


def detect_container_runtimes(
    which: Callable[[str], str | None] = shutil.which,
) -> tuple[ContainerRuntime, ...]:
    """Every engine that is installed and answers, at most one of a kind, preferred first.

    A docker client whose server is away does not count: it could not run anything.
    """
    found: dict[ContainerKind, ContainerRuntime] = {}
    for kind, program, arguments in _PROBES:
        path = which(program)
        if path is None or kind in found:
            continue
        try:
            answer = subprocess.run(
                [path, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        words = answer.stdout.decode(errors="replace").split()
        if answer.returncode == 0 and words:
            found[kind] = ContainerRuntime(kind, path, words[-1])
    return tuple(found.values())


def detect_container_runtime(
    which: Callable[[str], str | None] = shutil.which,
) -> ContainerRuntime | None:
    """The preferred engine of this node, or None."""
    return next(iter(detect_container_runtimes(which)), None)
