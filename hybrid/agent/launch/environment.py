"""The environment a job sees: the job contract, the user's variables, and secrets by reference."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hybrid.domain.job_spec import SecretRef

#: What a process inherits of the node's environment; everything else is the agent's own business.
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "XDG_RUNTIME_DIR",
    "CUDA_MPS_PIPE_DIRECTORY",
)
#: Set by the contract, so nobody else may.
RESERVED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"},
)
RESERVED_PREFIX = "HYBRID_"
MAX_SECRET_BYTES = 64 << 10
#: The agent's own credentials, which no job may ask for.
_AGENTS_OWN = ("HYBRID_", "AWS_", "GOOGLE_", "AZURE_", "KUBE")


class ReservedName(ValueError):
    """A user's variable has a name that the system sets itself."""

    def __init__(self, name: str, why: str = "is set by the system") -> None:
        self.name = name
        super().__init__(f"{name}: this variable {why}; choose another name")


class SecretUnavailable(Exception):
    """A secret cannot be had on this node. The message never holds its value."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"secret {name}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """One rank's place in a gang of ``nnodes`` machines, as ``torchrun`` wants to know it."""

    master_addr: str
    master_port: int
    node_rank: int
    nnodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """What a run has of its one GPU. ``computing`` says that its threads are limited too: it asked
    for a share of the GPU, not of its memory alone."""

    share: float
    memory_gib: float | None = None
    computing: bool = True

    def variables(self) -> dict[str, str]:
        """For the program; and for CUDA's multi-process service, which holds every process of the
        run to them where it runs. Without it nobody does."""
        told = {"HYBRID_GPU_SHARE": f"{self.share:g}"}
        if self.memory_gib is not None:
            told["HYBRID_GPU_MEMORY_GIB"] = f"{self.memory_gib:g}"
            # of device 0 of those visible, in whole MiB
            told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(self.memory_gib * 1024)}M"
        if self.computing:
            told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{max(self.share * 100, 1):.4g}"
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the job contract tells a process. ``gpus`` are UUIDs as CUDA writes them."""

    job_id: str
    run_id: str
    attempt: int
    resume: bool
    checkpoint_dir: Path
    progress_file: Path
    gpus: tuple[str, ...] = ()
    part: GpuPart | None = None
    stop_signal: str = "SIGTERM"
    gang: Gang | None = None
    checkpoint_interval_s: float = 0.0

    def variables(self) -> dict[str, str]:
        """The contract's variables. Without GPUs none is visible, rather than all."""
        variables = {
            "HYBRID_JOB_ID": self.job_id,
            "HYBRID_RUN_ID": self.run_id,
            "HYBRID_ATTEMPT": str(self.attempt),
            "HYBRID_CHECKPOINT_DIR": str(self.checkpoint_dir),
            "HYBRID_RESUME": "1" if self.resume else "0",
            "HYBRID_PROGRESS_FILE": str(self.progress_file),
            "HYBRID_STOP_SIGNAL": self.stop_signal,
            "HYBRID_CHECKPOINT_INTERVAL_S": f"{self.checkpoint_interval_s:g}",
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
        }
        if self.part is not None:
            variables |= self.part.variables()
        if self.gang is not None:
            variables |= {
                "MASTER_ADDR": self.gang.master_addr,
                "MASTER_PORT": str(self.gang.master_port),
                "NODE_RANK": str(self.gang.node_rank),
                "NNODES": str(self.gang.nnodes),
            }
        return variables


def refuse_reserved(names: Mapping[str, object]) -> None:
    """Raise ReservedName for the first name, in order, that the contract sets."""
    for name in sorted(names):
        if name in RESERVED or name.startswith(RESERVED_PREFIX):
            raise ReservedName(name)


def inherited_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of the node's environment that a process may see."""
    base = os.environ if base is None else base
    return {name: base[name] for name in INHERITED if name in base}


def build_environment(
    contract: Contract, user: Mapping[str, str], base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a process, without secrets; raises ReservedName."""
    refuse_reserved(user)
    return {**inherited_environment(base), **user, **contract.variables()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSources:
    """Where this node takes secrets from.

    ``directories`` limits files to what lies in one of them (links resolved); empty allows any
    file that the agent can read, which a job running as the agent's user could read anyway.
    """

    environ: Mapping[str, str]
    directories: tuple[Path, ...] = ()

    def resolve(self, references: Mapping[str, SecretRef]) -> dict[str, str]:
        """Values by variable name; raises ReservedName or SecretUnavailable."""
        refuse_reserved(references)
        return {name: self._value(name, references[name]) for name in sorted(references)}

    def _value(self, name: str, reference: SecretRef) -> str:
        if reference.env is not None:
            if reference.env.startswith(_AGENTS_OWN):
                raise SecretUnavailable(name, f"{reference.env} belongs to the agent")
            if reference.env not in self.environ:
                raise SecretUnavailable(name, f"this node has no variable {reference.env}")
            return self.environ[reference.env]
        assert reference.file is not None
        return self._read(name, Path(reference.file))

    def _read(self, name: str, path: Path) -> str:
        try:
            real = path.resolve(strict=True)
            if self.directories and not any(
                real.is_relative_to(directory.resolve()) for directory in self.directories
            ):
                raise SecretUnavailable(name, f"{path} is not in a directory for secrets")
            if not stat.S_ISREG(real.stat().st_mode):
                raise SecretUnavailable(name, f"{path} is not a file")
            with real.open("rb") as file:
                data = file.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise SecretUnavailable(name, f"{path}: {error.strerror}") from None
        if len(data) > MAX_SECRET_BYTES:
            raise SecretUnavailable(name, f"{path} is larger than {MAX_SECRET_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise SecretUnavailable(name, f"{path} is not UTF-8 text") from None
        if "\0" in text:
            raise SecretUnavailable(name, f"{path} holds a zero byte")
        return text.removesuffix("\n")
