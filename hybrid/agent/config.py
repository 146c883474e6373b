"""How an agent is told what it is: a JSON file, flags over it, a few environment variables.

Environment: ``HYBRID_ROOT`` stands for ``/`` in front of absolute paths (a machine whose disk is a
directory); ``HYBRID_VIRTUAL_GPUS`` declares GPUs where there is no driver;
``HYBRID_POWEROFF_COMMAND`` ends the machine; ``HYBRID_JOIN_TOKEN`` lets it in;
``AWS_EC2_METADATA_SERVICE_ENDPOINT`` and ``GCE_METADATA_HOST`` say where its metadata are.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, ValidationError

from hybrid.domain.addresses import is_loopback
from hybrid.domain.job_spec import Name, Written
from hybrid.domain.quantities import Seconds

DEFAULT_STATE_DIR = Path("/var/lib/hybrid/agent")
DEFAULT_LEASE_FILE = Path("/var/lib/hybrid/lease")
AWS_METADATA = "http://169.254.169.254"
GCE_METADATA = "http://metadata.google.internal"


class AgentConfigError(Exception):
    """The configuration cannot be used; one line says why."""


class MachineKind(StrEnum):
    """``owned`` machines are never shut down; ``burst`` ones end themselves with their lease."""

    OWNED = "owned"
    BURST = "burst"


class Cloud(StrEnum):
    """Whose metadata service tells of interruptions."""

    NONE = "none"
    AWS = "aws"
    GCP = "gcp"


class AgentConfig(Written):
    """Everything an agent needs. Paths are those of this host (``HYBRID_ROOT`` is applied)."""

    server: Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=2048)] = Field(
        description="The server's URL."
    )
    join_token: SecretStr | None = Field(default=None, description="Lets it in, the first time.")
    join_token_file: Path | None = Field(
        default=None, description="A file that holds it; it may be gone later."
    )
    pool: Name = Field(default="local", description="The pool it joins.")
    claim_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] | (
        None
    ) = Field(default=None, description="The claim that this cloud machine is for.")
    machine: MachineKind = Field(
        default=MachineKind.OWNED, description="A burst machine ends itself with its lease."
    )
    cloud: Cloud = Field(default=Cloud.NONE, description="Whose notices it listens for.")
    metadata_url: str | None = Field(
        default=None, description="Instead of the cloud's own metadata service."
    )
    state_dir: Path = Field(default=DEFAULT_STATE_DIR, description="Where it keeps its runs.")
    lease_file: Path = Field(
        default=DEFAULT_LEASE_FILE, description="Tells the lease timer until when to let it be."
    )
    virtual_gpus: str | None = Field(
        default=None,
        max_length=512,
        description="GPUs to declare where there is no driver.",
        examples=["a100-80gb:4:nvlink-pairs"],
    )
    address: str | None = Field(
        default=None, max_length=255, description="Where other nodes reach this one."
    )
    block: str = Field(default="", max_length=255, description="Network block it is in.")
    rack: str = Field(default="", max_length=255, description="Rack it is in.")
    checkpoint_url: str | None = Field(
        default=None, max_length=2048, description="Instead of what orders say."
    )
    server_ca_pem: str | None = Field(
        default=None, max_length=65_536, description="Whom to trust for TLS; public CAs if omitted."
    )
    secret_directories: tuple[Path, ...] = Field(
        default=(), max_length=16, description="Where jobs' secret files may lie; empty: anywhere."
    )
    poweroff_command: tuple[str, ...] = Field(
        default=("systemctl", "poweroff"), min_length=1, description="Ends a burst machine."
    )
    poweroff_url: str | None = Field(default=None, description="POSTed to instead of the command.")
    heartbeat: Seconds = Field(default=2.0, gt=0, le=60, description="While it has runs.")
    idle_heartbeat: Seconds = Field(default=5.0, gt=0, le=60, description="While it has none.")
    join_deadline: Seconds = Field(
        default=86_400.0, gt=0, description="For a server that cannot be reached yet."
    )
    end_tail: Seconds = Field(
        default=5.0, description="Kept free before a lease ends, for the machine's own end."
    )
    log_limit_mib: float = Field(default=64.0, ge=1, le=65_536, description="Kept of one run.")

    @property
    def log_limit_bytes(self) -> int:
        """As the guardian counts it."""
        return int(self.log_limit_mib * (1 << 20))

    @property
    def server_is_local(self) -> bool:
        """Whether the server is on this very machine."""
        return is_loopback(urlsplit(self.server).hostname or "")

    def token_to_join(self) -> str | None:
        """The join token, from where it is kept; None if there is none. Raises AgentConfigError."""
        if self.join_token is not None:
            return self.join_token.get_secret_value()
        if self.join_token_file is None:
            return None
        try:
            return self.join_token_file.read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None  # it may be removed once it has been used
        except (OSError, ValueError) as error:
            raise AgentConfigError(f"{self.join_token_file}: {error}") from error


def rooted(path: Path, environ: Mapping[str, str]) -> Path:
    """``path`` below ``HYBRID_ROOT``, unless it is relative or lies there already."""
    root = environ.get("HYBRID_ROOT")
    if not root or not path.is_absolute() or path.is_relative_to(root):
        return path
    return Path(root, *path.parts[1:])


_PATHS = ("state_dir", "lease_file", "join_token_file")


def load_config(
    file: Path | None, given: Mapping[str, Any], environ: Mapping[str, str]
) -> AgentConfig:
    """The configuration: ``given`` (None: not given) over the file over the environment.

    Raises AgentConfigError, in one line.
    """
    values: dict[str, Any] = dict(_from_environment(environ))
    if file is not None:
        values |= _from_file(rooted(file, environ))
    values |= {name: value for name, value in given.items() if value is not None}
    for name in _PATHS:
        default = AgentConfig.model_fields[name].default
        value = values.get(name, default)
        if value is not None:
            values[name] = rooted(Path(value), environ)
    values["secret_directories"] = tuple(
        rooted(Path(each), environ) for each in values.get("secret_directories", ())
    )
    try:
        return AgentConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "agent"
        raise AgentConfigError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise AgentConfigError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise AgentConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise AgentConfigError(f"{file} holds no JSON object")
    return document


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if environ.get("HYBRID_VIRTUAL_GPUS"):
        values["virtual_gpus"] = environ["HYBRID_VIRTUAL_GPUS"]
    if environ.get("HYBRID_JOIN_TOKEN"):
        values["join_token"] = environ["HYBRID_JOIN_TOKEN"]
    if environ.get("HYBRID_POWEROFF_COMMAND"):
        try:
            values["poweroff_command"] = tuple(shlex.split(environ["HYBRID_POWEROFF_COMMAND"]))
        except ValueError as error:
            raise AgentConfigError(f"HYBRID_POWEROFF_COMMAND: {error}") from error
    return values


def metadata_url(config: AgentConfig, environ: Mapping[str, str]) -> str:
    """Where the machine's metadata service is, without a trailing slash."""
    if config.metadata_url:
        return config.metadata_url.rstrip("/")
    if config.cloud is Cloud.GCP:
        host = environ.get("GCE_METADATA_HOST")
        return f"http://{host}".rstrip("/") if host else GCE_METADATA
    return environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", AWS_METADATA).rstrip("/")
