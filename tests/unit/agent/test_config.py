"""How an agent is told what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrid.agent.config import (
    AgentConfigError,
    Cloud,
    MachineKind,
    load_config,
    metadata_url,
    rooted,
)
from hybrid.agent.identity import IdentityFile
from hybrid.agent.virtual import declared_gpus

SERVER = "https://hybrid.example:8440"


def test_flags_come_before_the_file_and_the_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"server": SERVER, "pool": "rack", "virtual_gpus": "a100:2"}))
    config = load_config(
        file, {"pool": "lab", "rack": None}, {"HYBRID_VIRTUAL_GPUS": "t4", "HYBRID_JOIN_TOKEN": "x"}
    )
    assert (config.server, config.pool, config.virtual_gpus) == (SERVER, "lab", "a100:2")
    assert config.token_to_join() == "x"
    assert (config.machine, config.cloud) == (MachineKind.OWNED, Cloud.NONE)


def test_the_root_of_a_machine_goes_in_front_of_its_paths_once(tmp_path: Path) -> None:
    etc = tmp_path / "etc/hybrid"
    etc.mkdir(parents=True)
    (etc / "agent.json").write_text(json.dumps({"server": SERVER}))
    environ = {"HYBRID_ROOT": str(tmp_path)}
    config = load_config(Path("/etc/hybrid/agent.json"), {}, environ)
    assert config.state_dir == tmp_path / "var/lib/hybrid/agent"
    assert config.lease_file == tmp_path / "var/lib/hybrid/lease"
    assert rooted(config.state_dir, environ) == config.state_dir
    assert rooted(Path("relative"), environ) == Path("relative")


def test_the_command_that_ends_the_machine_is_split_as_a_shell_would(tmp_path: Path) -> None:
    environ = {"HYBRID_POWEROFF_COMMAND": "/bin/off --why 'the lease is over'"}
    config = load_config(None, {"server": SERVER}, environ)
    assert config.poweroff_command == ("/bin/off", "--why", "the lease is over")
    with pytest.raises(AgentConfigError, match="HYBRID_POWEROFF_COMMAND"):
        load_config(None, {"server": SERVER}, {"HYBRID_POWEROFF_COMMAND": "'"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"server": "ftp://x"}', "server: "),
        ('{"server": "http://x", "colour": 1}', "colour: "),
        ('{"pool": "rack"}', "server: Field required"),
        ('{"server": "http://x", "heartbeat": "0s"}', "heartbeat: "),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "agent.json"
    file.write_text(text)
    with pytest.raises(AgentConfigError) as caught:
        load_config(file, {}, {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match=r"none\.json: No such file or directory"):
        load_config(tmp_path / "none.json", {}, {})


def test_the_join_token_may_lie_in_a_file_that_is_gone_later(tmp_path: Path) -> None:
    token = tmp_path / "token"
    config = load_config(None, {"server": SERVER, "join_token_file": token}, {})
    assert config.token_to_join() is None
    token.write_text("hush-hush\n")
    assert config.token_to_join() == "hush-hush"
    given = {"server": SERVER, "join_token": "hush-hush"}
    assert "hush-hush" not in repr(load_config(None, given, {}))


def test_metadata_are_where_the_environment_says(tmp_path: Path) -> None:
    aws = load_config(None, {"server": SERVER, "cloud": "aws"}, {})
    gcp = load_config(None, {"server": SERVER, "cloud": "gcp"}, {})
    assert metadata_url(aws, {}) == "http://169.254.169.254"
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://x/imds/", "GCE_METADATA_HOST": "y:80"}
    assert metadata_url(aws, environ) == "http://x/imds"
    assert metadata_url(gcp, environ) == "http://y:80"
    assert metadata_url(gcp, {}) == "http://metadata.google.internal"
    own = load_config(None, {"server": SERVER, "metadata_url": "http://z/"}, {})
    assert metadata_url(own, environ) == "http://z"


@pytest.mark.parametrize(
    ("server", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://10.0.0.1:1", False),
        ("http://example.org", False),
    ],
)
def test_a_local_server_is_reached_without_a_proxy(server: str, local: bool) -> None:
    assert load_config(None, {"server": server}, {}).server_is_local is local


# --- identity and declared devices -------------------------------------------------------------


def test_an_identity_is_drawn_once_and_kept(tmp_path: Path) -> None:
    config = load_config(None, {"server": SERVER}, {})
    first = IdentityFile(tmp_path).of(config)
    assert IdentityFile(tmp_path).of(config) == first
    assert first.token not in repr(first)
    assert len(first.token) >= 40
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600
    IdentityFile(tmp_path).joined(first)
    kept = IdentityFile(tmp_path).of(config)
    assert (kept.node_id, kept.token, kept.joined) == (first.node_id, first.token, True)


def test_a_machine_of_another_claim_does_not_keep_the_identity_on_its_disk(tmp_path: Path) -> None:
    def claim(id_: str):  # type: ignore[no-untyped-def]
        return load_config(None, {"server": SERVER, "claim_id": id_}, {})

    first = IdentityFile(tmp_path).of(claim("c-1"))
    second = IdentityFile(tmp_path).of(claim("c-2"))
    assert (first.node_id, second.node_id) == ("n-c-1", "n-c-2")
    assert first.token != second.token


def test_a_damaged_identity_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"node_id": "x"}')
    assert IdentityFile(tmp_path).of(load_config(None, {"server": SERVER}, {})).node_id != "x"


def test_declared_devices_have_ids_of_their_node_and_the_links_of_their_preset() -> None:
    here = declared_gpus("a100-80gb:4:nvlink-pairs", "n1").read()
    assert [gpu.model for gpu in here.gpus] == ["a100-pcie-80gb"] * 4
    assert all(gpu.virtual and gpu.memory_gib > 79 for gpu in here.gpus)
    assert here.links_gbps[0][1] > 200 > here.links_gbps[1][2] > 0
    assert declared_gpus("a100-80gb:4:nvlink-pairs", "n1").read() == here
    there = declared_gpus("a100-80gb:4:nvlink-pairs", "n2").read()
    assert not {gpu.id for gpu in here.gpus} & {gpu.id for gpu in there.gpus}
    assert declared_gpus(None, "n1").read().gpus == ()


def test_a_declaration_that_cannot_be_read_is_one_clear_line() -> None:
    with pytest.raises(AgentConfigError, match=r"virtual_gpus: 'a100:many': the number of GPUs"):
        declared_gpus("a100:many", "n1")
