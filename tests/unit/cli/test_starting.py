"""What keeps a server or an agent from starting is one line, and 6."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hybrid.bootstrap import build
from hybrid.cli.exits import Exit
from hybrid.config import Settings
from tests.unit.cli.conftest import Ended, Hybrid


def cannot_start(ended: Ended, said: str) -> None:
    assert ended.code == Exit.CANNOT_START, ended.err
    assert said in ended.err
    assert ended.err.startswith("hybrid: ")
    assert ended.err.count("\n") == 1
    assert ended.out == ""


def port_of(serving: Path) -> str:
    url = json.loads((serving / "server.json").read_text())["url"]
    return str(url.rpartition(":")[2])


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_port_in_use(hybrid: Hybrid, serving: Path, tmp_path: Path, command: str) -> None:
    port = port_of(serving)
    ended = hybrid(command, "--port", port, "--state-dir", str(tmp_path / "other"))
    cannot_start(ended, f"port {port} on 127.0.0.1 is in use")


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_state_directory_that_cannot_be_used(
    hybrid: Hybrid, tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").write_text("")
    ended = hybrid(command, "--port", "0", "--state-dir", str(tmp_path / "file"))
    cannot_start(ended, f"the state directory {tmp_path / 'file'} cannot be used")


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_database_newer_than_the_program(hybrid: Hybrid, tmp_path: Path, command: str) -> None:
    build(Settings(state_dir=tmp_path / "state"), url="http://127.0.0.1:1").stop()
    with closing(sqlite3.connect(tmp_path / "state" / "hybrid.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    cannot_start(hybrid(command, "--port", "0", "--state-dir", str(tmp_path / "state")), "9999")


def test_a_second_server_on_one_state_directory(hybrid: Hybrid, serving: Path) -> None:
    ended = hybrid("up", "--port", "0", "--state-dir", str(serving))
    cannot_start(ended, f"a server runs in {serving} already (http://127.0.0.1:")


def test_virtual_gpus_that_cannot_be_read(hybrid: Hybrid, tmp_path: Path) -> None:
    ended = hybrid(
        "up", "--port", "0", "--state-dir", str(tmp_path / "s"), "--virtual-gpus", "a100:many"
    )
    cannot_start(ended, "--virtual-gpus 'a100:many': the number of GPUs is not a number")
    assert not (tmp_path / "s").exists()


def test_an_address_that_others_reach_without_tls(hybrid: Hybrid, tmp_path: Path) -> None:
    ended = hybrid("serve", "--host", "0.0.0.0", "--state-dir", str(tmp_path / "s"))
    cannot_start(ended, "host 0.0.0.0 can be reached from elsewhere: set tls_cert and tls_key")


def test_a_setting_that_is_no_setting(hybrid: Hybrid, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("ports: 1\n")
    ended = hybrid("serve", "--config", str(file), "--state-dir", str(tmp_path / "s"))
    cannot_start(ended, "ports")


def test_an_agent_without_a_join_token(hybrid: Hybrid, serving: Path, tmp_path: Path) -> None:
    url = json.loads((serving / "server.json").read_text())["url"]
    ended = hybrid("agent", "--server", url, "--state-dir", str(tmp_path / "agent"))
    cannot_start(ended, "a join token is needed")


def test_an_agent_without_a_server(hybrid: Hybrid, tmp_path: Path) -> None:
    cannot_start(hybrid("agent", "--state-dir", str(tmp_path / "agent")), "server: ")


def test_an_agent_whose_file_is_not_there(hybrid: Hybrid, tmp_path: Path) -> None:
    ended = hybrid("agent", "--config", str(tmp_path / "agent.json"))
    cannot_start(ended, f"{tmp_path / 'agent.json'}: No such file")
