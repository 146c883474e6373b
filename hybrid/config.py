"""Settings of a server: environment variables ``HYBRID_…`` over a YAML file over defaults.

The file is named by ``config_file`` (``HYBRID_CONFIG_FILE``); otherwise it is ``config.yaml`` in
the state directory, if there is one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from hybrid.domain.addresses import is_loopback
from hybrid.domain.job_spec import Name, Written
from hybrid.domain.quantities import Seconds
from hybrid.services.errors import StartupError

__all__ = ["ProviderSettings", "Settings", "StartupError", "load_settings"]

DEFAULT_PORT = 8440


def default_state_dir() -> Path:
    """``$XDG_DATA_HOME/hybrid``, or ``~/.local/share/hybrid``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "hybrid"


class ProviderSettings(Written):
    """One cloud account in one region, as pools name it.

    Credentials are not written here: they come from where the cloud's own library looks.
    """

    name: Name = Field(description="As pools refer to it.")
    kind: Name = Field(description="Which provider: the name of a `hybrid.providers` entry point.")
    region: Name = Field(description="One region; another one is another provider.")
    endpoint_url: Annotated[str, Field(pattern=r"^https?://", max_length=512)] | None = Field(
        default=None, description="Instead of the cloud's own: a private endpoint, or a sandbox."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="What only this kind of provider understands."
    )


class Settings(BaseSettings):
    """How a server runs. Frozen; an unknown key in the file is refused by name."""

    model_config = SettingsConfigDict(
        env_prefix="HYBRID_", extra="forbid", frozen=True, allow_inf_nan=False
    )

    state_dir: Path = Field(
        default_factory=default_state_dir,
        description="`$XDG_DATA_HOME/hybrid` if omitted, else `~/.local/share/hybrid`.",
    )
    config_file: Path | None = Field(
        default=None, description="The settings file; `config.yaml` in the state directory if any."
    )
    database_url: SecretStr | None = Field(
        default=None, description="SQLAlchemy URL; SQLite in the state directory if omitted."
    )
    host: str = Field(
        default="127.0.0.1", min_length=1, max_length=255, description="Address to listen on."
    )
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535, description="0: any free port.")
    advertise_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = Field(
        default=None, description="Where nodes and users reach the server."
    )
    tls_cert: Path | None = Field(default=None, description="Certificate chain in PEM.")
    tls_key: Path | None = Field(default=None, description="Its private key in PEM.")
    tls_ca: Path | None = Field(
        default=None, description="What nodes trust the server by, if no public CA signed for it."
    )
    behind_proxy: bool = Field(
        default=False, description="A proxy in front speaks TLS; bind off loopback without it."
    )

    tick_s: Seconds = Field(
        default=2.0, gt=0, le=300, description="Between two looks at the world."
    )
    run_lease_s: Seconds = Field(
        default=600.0, ge=5, le=86_400, description="How long a node goes on unheard."
    )
    source_deadline_s: Seconds = Field(
        default=20.0, gt=0, le=300, description="For one engine or cloud to answer the loop."
    )
    call_deadline_s: Seconds = Field(
        default=60.0, gt=0, le=600, description="For one engine or cloud to do what it is told."
    )
    replan_s: Seconds = Field(
        default=5.0, gt=0, le=300, description="Between plans while nothing changes."
    )
    planning_s: Seconds = Field(
        default=1.0, gt=0, le=60, description="What improving one plan may take."
    )
    list_every_s: Seconds = Field(
        default=5.0, gt=0, le=300, description="Between listings of a cloud with live claims."
    )
    list_idle_every_s: Seconds = Field(
        default=60.0, gt=0, le=3600, description="Between listings of a cloud without any."
    )
    offers_every_s: Seconds = Field(
        default=60.0, gt=0, le=3600, description="Between two looks at a cloud's prices."
    )
    loop_lease_s: Seconds = Field(
        default=15.0, ge=2, le=300, description="After so long another process takes the loop over."
    )
    silent_after_s: Seconds = Field(
        default=20.0, ge=1, le=3600, description="A node unheard for so long gets no new runs."
    )
    absent_grace_s: Seconds = Field(
        default=60.0, ge=1, le=3600, description="Two listings so far apart must miss a machine."
    )

    checkpoint_url: str | None = Field(
        default=None, description="Where checkpoints go (fsspec URL); a folder here if omitted."
    )
    checkpoints_kept_s: Seconds = Field(
        default=7 * 86_400.0, ge=0, description="Those of a job that has ended, before they go."
    )
    artifacts_url: str | None = Field(
        default=None, description="Where work folders and outputs go (fsspec URL)."
    )
    artifact_limit_gib: float = Field(default=4.0, gt=0, le=1024, description="Of one upload.")
    log_limit_mib: float = Field(default=64.0, gt=0, le=65_536, description="Kept of one rank.")

    providers: tuple[ProviderSettings, ...] = Field(
        default=(), description="Clouds that burst pools may name."
    )
    policy_file: Path | None = Field(
        default=None, description="The policy to begin with, while none has been set."
    )
    local_pool: bool = Field(
        default=True, description="Begin with a pool `local`, while there is no pool."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )
    log_json: bool = Field(default=False, description="One JSON object a line.")
    open_metrics: bool = Field(default=False, description="/metrics asks for no token.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if not is_loopback(self.host) and self.tls_cert is None and not self.behind_proxy:
            raise ValueError(
                f"host {self.host} can be reached from elsewhere: set tls_cert and tls_key, or"
                " behind_proxy if a proxy in front speaks TLS"
            )
        names = [provider.name for provider in self.providers]
        if len(set(names)) != len(names):
            raise ValueError("two providers have the same name")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the base class's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given in code, then the environment, then the file that these name."""
        above = {**env_settings(), **init_settings()}
        named = above.get("config_file")
        if named is not None and not Path(named).is_file():
            raise StartupError(f"there is no settings file {named}")
        file = named or Path(above.get("state_dir") or default_state_dir()) / "config.yaml"
        return (init_settings, env_settings, YamlConfigSettingsSource(settings_cls, Path(file)))

    @property
    def database(self) -> str:
        """The database's URL, which may hold a password."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.state_dir / 'hybrid.db'}"

    @property
    def checkpoints(self) -> str:
        """Where checkpoints go."""
        return self.checkpoint_url or f"file://{self.state_dir / 'checkpoints'}"

    @property
    def artifacts(self) -> str:
        """Where work folders and outputs go."""
        return self.artifacts_url or f"file://{self.state_dir / 'artifacts'}"

    def provider(self, name: str) -> ProviderSettings | None:
        """The provider of that name."""
        return next((each for each in self.providers if each.name == name), None)


def load_settings(**given: Any) -> Settings:
    """Settings from ``given`` over the environment over the file over defaults.

    None in ``given`` means not given. Raises StartupError, in one line, naming the setting.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "settings"
        said = first["msg"].removeprefix("Value error, ")
        raise StartupError(f"{where}: {said}") from problem
    except (SettingsError, yaml.YAMLError, OSError) as problem:
        said = " ".join(str(problem).split())
        raise StartupError(f"settings cannot be read: {said}") from problem
