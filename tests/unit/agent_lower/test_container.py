"""Command lines of docker, podman and apptainer, word for word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrid.agent.launch import (
    ContainerKind,
    ContainerRuntime,
    ContainerSpec,
    Contract,
    InvalidContainer,
    Launch,
    NoContainerRuntime,
    build_order,
    container_command,
    detect_container_runtime,
    detect_container_runtimes,
)

DOCKER = ContainerRuntime(ContainerKind.DOCKER, "/usr/bin/docker", "27")
PODMAN = ContainerRuntime(ContainerKind.PODMAN, "/usr/bin/podman", "5")
APPTAINER = ContainerRuntime(ContainerKind.APPTAINER, "/usr/bin/apptainer", "1.3")
SINGULARITY = ContainerRuntime(ContainerKind.APPTAINER, "/usr/bin/singularity", "3.8")

SPEC: dict[str, Any] = {
    "name": "hybrid-j.1-0",
    "image": "registry.example/train:1",
    "command": ("python", "train.py", "--x=1,2"),
    "workdir": Path("/s/work"),
    "mounts": (Path("/s/work"), Path("/s/ck"), Path("/s/work")),
    "env": {"B": "two, three", "A": "1"},
    "secrets": {"KEY": "hush"},
    "gpus": ("GPU-1", "GPU-2"),
    "user": 1000,
    "group": 100,
}

COMMON = (
    "--rm",
    "--init",
    "--name=hybrid-j.1-0",
    "--label=hybrid.run",
    "--network=host",
    "--user=1000:100",
    "--security-opt=no-new-privileges",
    "--shm-size=8g",
    "--ulimit=memlock=-1",
    "--stop-signal=SIGTERM",
    "--log-driver=none",
    "--workdir=/s/work",
    "--mount=type=bind,source=/s/ck,target=/s/ck",
    "--mount=type=bind,source=/s/work,target=/s/work",
)
TAIL = (
    "--env=A=1",
    "--env=B=two, three",
    "--env=KEY",
    "registry.example/train:1",
    "python",
    "train.py",
    "--x=1,2",
)


def test_docker() -> None:
    made = container_command(DOCKER, ContainerSpec(**SPEC))
    assert made.argv == (
        "/usr/bin/docker",
        "run",
        *COMMON,
        '--gpus="device=GPU-1,GPU-2"',
        *TAIL,
    )
    assert made.env == {}
    assert made.secrets == {"KEY": "hush"}
    assert made.cleanup == (("/usr/bin/docker", "rm", "--force", "hybrid-j.1-0"),)


def test_podman() -> None:
    made = container_command(PODMAN, ContainerSpec(**SPEC))
    assert made.argv == (
        "/usr/bin/podman",
        "run",
        *COMMON,
        "--security-opt=label=disable",
        "--device=nvidia.com/gpu=GPU-1",
        "--device=nvidia.com/gpu=GPU-2",
        *TAIL,
    )
    assert made.cleanup == (("/usr/bin/podman", "rm", "--force", "--ignore", "hybrid-j.1-0"),)


def test_apptainer() -> None:
    made = container_command(APPTAINER, ContainerSpec(**SPEC))
    assert made.argv == (
        "/usr/bin/apptainer",
        "exec",
        "--cleanenv",
        "--no-home",
        "--pwd=/s/work",
        "--bind=/s/ck:/s/ck",
        "--bind=/s/work:/s/work",
        "--nv",
        "docker://registry.example/train:1",
        "python",
        "train.py",
        "--x=1,2",
    )
    assert made.env == {"APPTAINERENV_A": "1", "APPTAINERENV_B": "two, three"}
    assert made.secrets == {"APPTAINERENV_KEY": "hush"}
    assert made.cleanup == ()


def test_singularity_reads_its_own_prefix() -> None:
    made = container_command(SINGULARITY, ContainerSpec(**SPEC))
    assert made.secrets == {"SINGULARITYENV_KEY": "hush"}


@pytest.mark.parametrize("image", ["docker://a/b", "/images/a.sif", "images/a.sif"])
def test_apptainer_takes_an_image_that_says_where_it_is(image: str) -> None:
    made = container_command(APPTAINER, ContainerSpec(**{**SPEC, "image": image}))
    assert image in made.argv


@pytest.mark.parametrize("runtime", [DOCKER, PODMAN, APPTAINER])
def test_without_gpus_none_are_asked_for(runtime: ContainerRuntime) -> None:
    words = container_command(runtime, ContainerSpec(**{**SPEC, "gpus": ()})).argv
    assert not [w for w in words if w.startswith(("--gpus", "--device", "--nv"))]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "--privileged"),
        ("image", ""),
        ("image", "a b"),
        ("workdir", Path("relative")),
        ("mounts", (Path("/a,readonly"),)),
        ("mounts", (Path("/a:/etc"),)),
        ("secrets", {"LD_PRELOAD": "x"}),
        ("secrets", {"DOCKER_HOST": "x"}),
        ("secrets", {"PATH": "x"}),
    ],
)
def test_what_could_steer_the_engine_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidContainer):
        container_command(DOCKER, ContainerSpec(**{**SPEC, field: value}))


@pytest.mark.parametrize("runtime", [DOCKER, PODMAN, APPTAINER])
def test_secrets_are_in_no_argument(runtime: ContainerRuntime) -> None:
    assert "hush" not in " ".join(container_command(runtime, ContainerSpec(**SPEC)).argv)


LAUNCH = Launch(
    contract=Contract(
        job_id="j",
        run_id="j.1",
        attempt=1,
        resume=False,
        checkpoint_dir=Path("/s/ck"),
        progress_file=Path("/s/contract/progress.json"),
        gpus=("GPU-v",),
    ),
    command=("python", "t.py"),
    workdir=Path("/s/work"),
    image="train",
    env={"DOCKER_HOST": "tcp://elsewhere"},
    virtual_gpus=True,
)


def test_a_container_order_mounts_the_contract_and_can_be_found_by_name() -> None:
    made = build_order(LAUNCH, DOCKER, base={"PATH": "/bin", "DOCKER_HOST": "unix:///d"})
    argv = made.order.argv
    for path in ("/s/ck", "/s/contract", "/s/work"):
        assert f"--mount=type=bind,source={path},target={path}" in argv
    assert "--name=hybrid-j.1-0" in argv
    assert "--env=HYBRID_CHECKPOINT_DIR=/s/ck" in argv
    assert "--env=CUDA_VISIBLE_DEVICES=GPU-v" in argv
    assert made.order.cleanup[0][-1] == "hybrid-j.1-0"
    # What the user calls DOCKER_HOST reaches the job, not the engine's client.
    assert made.order.env == {"PATH": "/bin", "DOCKER_HOST": "unix:///d"}
    assert "--env=DOCKER_HOST=tcp://elsewhere" in argv


def test_virtual_gpus_are_not_asked_of_the_engine() -> None:
    assert not [w for w in build_order(LAUNCH, DOCKER, base={}).order.argv if "--gpus" in w]


def test_a_node_without_an_engine_says_so() -> None:
    with pytest.raises(NoContainerRuntime, match="neither docker, podman nor apptainer"):
        build_order(LAUNCH, None, base={})


def _stand_in(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_only_engines_that_answer_are_found_in_order(tmp_path: Path) -> None:
    _stand_in(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    _stand_in(tmp_path, "singularity", "echo 'singularity-ce version 3.8.0'")
    _stand_in(tmp_path, "podman", "echo 5.2.1")

    def which(name: str) -> str | None:
        path = tmp_path / name
        return str(path) if path.exists() else None

    found = detect_container_runtimes(which)
    assert [(r.kind, r.version) for r in found] == [
        (ContainerKind.PODMAN, "5.2.1"),
        (ContainerKind.APPTAINER, "3.8.0"),
    ]
    assert detect_container_runtime(which) == found[0]


def test_a_node_with_nothing_has_no_engine() -> None:
    assert detect_container_runtime(lambda _: None) is None


def test_an_engine_that_cannot_be_executed_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "docker").write_bytes(b"\x7fELF garbage")
    (tmp_path / "docker").chmod(0o755)
    assert detect_container_runtimes(lambda n: str(tmp_path / n) if n == "docker" else None) == ()
