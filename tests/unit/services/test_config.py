"""Settings and the registry."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from hybrid import registry
from hybrid.config import Settings, StartupError, load_settings
from hybrid.domain.addresses import is_loopback


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(__import__("os").environ):
        if name.startswith("HYBRID_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_defaults_are_safe_and_lie_in_the_state_directory(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.state_dir == tmp_path / "hybrid"
    assert (settings.host, settings.port) == ("127.0.0.1", 8440)
    assert settings.database == f"sqlite:///{tmp_path}/hybrid/hybrid.db"
    assert settings.checkpoints == f"file://{tmp_path}/hybrid/checkpoints"
    assert settings.artifacts == f"file://{tmp_path}/hybrid/artifacts"
    assert (settings.tick_s, settings.run_lease_s) == (2.0, 600.0)


def test_what_is_given_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("port: 1001\ntick_s: 1500ms\nhost: localhost\n")
    monkeypatch.setenv("HYBRID_CONFIG_FILE", str(file))
    monkeypatch.setenv("HYBRID_PORT", "1002")
    settings = load_settings(host=None, run_lease_s="5m")
    assert (settings.port, settings.tick_s, settings.host, settings.run_lease_s) == (
        1002,
        1.5,
        "localhost",
        300.0,
    )
    assert load_settings(port=1003).port == 1003


def test_a_file_in_the_state_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "providers: [{name: aws, kind: aws, region: us-east-1, endpoint_url: 'http://127.0.0.1:1'}]"
    )
    settings = load_settings(state_dir=tmp_path)
    found = settings.provider("aws")
    assert found is not None
    assert (found.region, found.endpoint_url) == ("us-east-1", "http://127.0.0.1:1")
    assert settings.provider("gcp") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tikc_s: 1", "tikc_s: Extra inputs are not permitted"),
        ("port: 70000", "port: Input should be less than or equal to 65535"),
        ("tick_s: soon", "tick_s: 'soon' is not a duration"),
        ("tls_cert: /x", "settings: tls_cert and tls_key go together"),
        ("host: 0.0.0.0", "settings: host 0.0.0.0 can be reached from elsewhere: set tls_cert"),
        ("port: [", "settings cannot be read: "),
        (
            "providers: [{name: a, kind: aws, region: r}, {name: a, kind: aws, region: s}]",
            "settings: two providers have the same name",
        ),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(StartupError) as caught:
        load_settings(state_dir=tmp_path)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_a_settings_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"there is no settings file .*/none\.yaml"):
        load_settings(config_file=tmp_path / "none.yaml")


def test_off_loopback_needs_tls_or_a_proxy_in_front() -> None:
    assert load_settings(host="0.0.0.0", behind_proxy=True).behind_proxy
    assert load_settings(host="::", tls_cert="/c", tls_key="/k").tls_cert == Path("/c")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_password_in_the_database_url_is_not_shown(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, database_url="postgresql://u:hush@db/hybrid")  # type: ignore[arg-type]
    assert "hush" not in repr(settings)
    assert settings.database == "postgresql://u:hush@db/hybrid"


# --- the registry --------------------------------------------------------------------------------


def test_what_is_installed_is_found_by_name() -> None:
    assert "aws" in registry.names(registry.Group.PROVIDERS)
    assert registry.load(registry.Group.ENGINES, "agent").__name__ == "create"


def test_an_unknown_name_gets_the_list_of_known_ones() -> None:
    with pytest.raises(StartupError, match=r"there is no provider of kind 'azure'; installed: aws"):
        registry.load(registry.Group.PROVIDERS, "azure")


def test_a_missing_library_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (real,) = importlib.metadata.entry_points(group="hybrid.providers", name="aws")

    class Missing:
        name, value, dist = real.name, real.value, real.dist

        def load(self) -> object:
            raise ModuleNotFoundError("No module named 'boto3'", name="boto3")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: (Missing(),))
    with pytest.raises(StartupError) as caught:
        registry.load(registry.Group.PROVIDERS, "aws")
    assert str(caught.value) == (
        "provider 'aws' needs the module boto3, which is not installed: pip install 'hybrid[aws]'"
    )
