"""A job sees its contract and nothing of the agent; secrets come from where the node allows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hybrid.agent.launch import (
    Contract,
    Gang,
    GpuPart,
    Launch,
    ReservedName,
    SecretSources,
    SecretUnavailable,
    build_environment,
    build_order,
)
from hybrid.domain.job_spec import SecretRef

CONTRACT = Contract(
    job_id="j",
    run_id="j.2",
    attempt=2,
    resume=True,
    checkpoint_dir=Path("/state/checkpoint"),
    progress_file=Path("/state/contract/progress.json"),
    gpus=("GPU-a", "GPU-b"),
    gang=Gang(master_addr="10.0.0.1", master_port=29500, node_rank=1, nnodes=2),
)


def test_the_contract_is_complete() -> None:
    assert build_environment(
        CONTRACT, {"LR": "0.1"}, base={"PATH": "/bin", "TOKEN": "agent's"}
    ) == {
        "PATH": "/bin",
        "LR": "0.1",
        "HYBRID_JOB_ID": "j",
        "HYBRID_RUN_ID": "j.2",
        "HYBRID_ATTEMPT": "2",
        "HYBRID_CHECKPOINT_DIR": "/state/checkpoint",
        "HYBRID_RESUME": "1",
        "HYBRID_PROGRESS_FILE": "/state/contract/progress.json",
        "HYBRID_STOP_SIGNAL": "SIGTERM",
        "HYBRID_CHECKPOINT_INTERVAL_S": "0",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "NODE_RANK": "1",
        "NNODES": "2",
    }


def test_a_job_without_gpus_sees_none_and_no_gang() -> None:
    contract = Contract(
        job_id="j",
        run_id="j.1",
        attempt=1,
        resume=False,
        checkpoint_dir=Path("/c"),
        progress_file=Path("/p"),
    )
    env = build_environment(contract, {}, base={})
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["HYBRID_RESUME"] == "0"
    assert "NNODES" not in env


def test_a_part_of_a_gpu_is_told_to_the_program_and_to_cudas_service() -> None:
    part = GpuPart(share=0.126, memory_gib=10.0, computing=False)
    env = build_environment(
        replace(CONTRACT, gang=None, gpus=("GPU-a",), part=part),
        {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=80G"},
        base={"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"},
    )
    assert env["HYBRID_GPU_SHARE"] == "0.126"
    assert env["HYBRID_GPU_MEMORY_GIB"] == "10"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env


@pytest.mark.parametrize(("share", "percent"), [(0.5, "50"), (0.125, "12.5"), (0.001, "1")])
def test_a_share_of_a_gpu_limits_threads_too(share: float, percent: str) -> None:
    told = GpuPart(share=share, memory_gib=79.5 * share).variables()
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percent
    assert told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={int(79.5 * share * 1024)}M"


@pytest.mark.parametrize(
    "name", ["HYBRID_RUN_ID", "HYBRID_ANYTHING", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "NODE_RANK"]
)
def test_a_user_cannot_set_what_the_system_sets(name: str) -> None:
    with pytest.raises(ReservedName) as refused:
        build_environment(CONTRACT, {"FINE": "1", name: "x"}, base={})
    assert refused.value.name == name
    launch = Launch(contract=CONTRACT, command=("true",), workdir=Path("/"), secrets={name: "x"})
    with pytest.raises(ReservedName):
        build_order(launch, base={})


def test_a_user_may_set_an_inherited_variable() -> None:
    assert build_environment(CONTRACT, {"PATH": "/mine"}, base={"PATH": "/bin"})["PATH"] == "/mine"


def test_secrets_come_from_files_and_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from file\n")
    sources = SecretSources(environ={"NODE_KEY": "from env"}, directories=(tmp_path,))
    assert sources.resolve(
        {"A": SecretRef(file=str(tmp_path / "key")), "B": SecretRef(env="NODE_KEY")}
    ) == {"A": "from file", "B": "from env"}


def _bad_secret(tmp_path: Path, kind: str) -> SecretRef:
    inside = tmp_path / "secrets"
    inside.mkdir()
    path = inside / "key"
    match kind:
        case "missing":
            pass
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "large":
            path.write_bytes(b"x" * 70_000)
        case "binary":
            path.write_bytes(b"\xff\xfe")
        case "zero":
            path.write_bytes(b"a\0b")
        case "link out":
            (tmp_path / "outside").write_text("private")
            path.symlink_to(tmp_path / "outside")
    return SecretRef(file=str(path))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("missing", "No such file"),
        ("directory", "not a file"),
        ("pipe", "not a file"),
        ("large", "larger than"),
        ("binary", "not UTF-8"),
        ("zero", "zero byte"),
        ("link out", "not in a directory for secrets"),
    ],
)
def test_a_secret_that_cannot_be_had_says_why(tmp_path: Path, kind: str, why: str) -> None:
    reference = _bad_secret(tmp_path, kind)
    sources = SecretSources(environ={}, directories=(tmp_path / "secrets",))
    with pytest.raises(SecretUnavailable, match=why) as refused:
        sources.resolve({"KEY": reference})
    assert refused.value.name == "KEY"


@pytest.mark.parametrize("name", ["HYBRID_TOKEN", "AWS_SECRET_ACCESS_KEY", "UNSET"])
def test_the_agents_own_credentials_are_nobodys_secret(name: str) -> None:
    sources = SecretSources(environ={"HYBRID_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k"})
    with pytest.raises(SecretUnavailable) as refused:
        sources.resolve({"KEY": SecretRef(env=name)})
    assert refused.value.why != "t"


def test_a_process_order_carries_the_contract_and_keeps_secrets_beside_it() -> None:
    launch = Launch(
        contract=CONTRACT,
        command=("python", "train.py"),
        workdir=Path("/work"),
        secrets={"KEY": "hush"},
        grace_s=7,
        walltime_s=60,
        rank=1,
    )
    made = build_order(launch, base={"PATH": "/bin"})
    assert made.secrets == {"KEY": "hush"}
    assert "hush" not in repr(made.order)
    assert (made.order.argv, made.order.cwd) == (("python", "train.py"), "/work")
    assert (made.order.grace_s, made.order.walltime_s, made.order.rank) == (7, 60, 1)
    assert made.order.cleanup == ()
