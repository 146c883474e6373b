"""What a sandbox machine understands: unit files, systemctl lines, cloud-config, paths."""

from __future__ import annotations

import base64
import gzip
import os
import stat
import subprocess
from pathlib import Path

import pytest

from providers.sandbox.cloud_init import (
    FileToWrite,
    InvalidUserData,
    below,
    parse_user_data,
    write_files,
)
from providers.sandbox.machine_root import build_image, translate
from providers.sandbox.poweroff import main as poweroff
from providers.sandbox.units import InvalidUnit, Restart, parse_systemctl, parse_unit

AGENT = """
[Unit]
Description=Node agent
After=network-online.target
# a remark
StartLimitIntervalSec=0
[Service]
ExecStart=/opt/hybrid/bin/hybrid agent \\
    --config "/etc/hybrid/agent one.json"
Environment=A=1 "B=two words"
Environment=C=3
Restart=always
RestartSec=500ms
KillMode=process
ProtectSystem=strict
[Install]
WantedBy=multi-user.target
"""


def unit(service: str):
    return parse_unit("x.service", f"[Service]\n{service}\n")


def test_a_unit_is_read_as_systemd_reads_it() -> None:
    agent = parse_unit("hybrid-agent.service", AGENT)
    assert agent.exec_start == (
        "/opt/hybrid/bin/hybrid",
        "agent",
        "--config",
        "/etc/hybrid/agent one.json",
    )
    assert agent.environment == {"A": "1", "B": "two words", "C": "3"}
    assert (agent.restart, agent.restart_s, agent.limit_interval_s) == (Restart.ALWAYS, 0.5, 0.0)
    assert agent.leaves_children
    assert agent.ignored == ("ProtectSystem",)


def test_defaults_are_those_of_systemd() -> None:
    plain = unit("ExecStart=/bin/true")
    assert (plain.restart, plain.restart_s) == (Restart.NO, 0.1)
    assert (plain.limit_interval_s, plain.limit_burst) == (10.0, 5)
    assert not plain.leaves_children


def test_an_empty_environment_line_resets_what_came_before() -> None:
    assert unit("ExecStart=/x\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2").environment == {
        "B": "2"
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 2.0), ("2s", 2.0), ("1min", 60.0), ("250ms", 0.25), ("1.5 h", 5400.0)],
)
def test_time_spans_have_units(text: str, seconds: float) -> None:
    assert unit(f"ExecStart=/x\nRestartSec={text}").restart_s == seconds


@pytest.mark.parametrize(
    ("service", "complaint"),
    [
        ("Restart=always", "exactly one ExecStart"),
        ("ExecStart=/a\nExecStart=/b", "exactly one ExecStart"),
        ("ExecStart=", "is empty"),
        ("ExecStart=/x 'unclosed", "No closing quotation"),
        ("ExecStart=/x\nRestart=sometimes", "sometimes"),
        ("ExecStart=/x\nRestartSec=soon", "not a time span"),
        ("ExecStart=/x\nStartLimitBurst=few", "not a whole number"),
        ("ExecStart=/x\nEnvironment=A", "needs KEY=value"),
        ("ExecStart=/x\nnonsense", "not a setting"),
    ],
)
def test_a_unit_that_cannot_run_says_why(service: str, complaint: str) -> None:
    with pytest.raises(InvalidUnit, match=complaint):
        unit(service)


@pytest.mark.parametrize(
    ("service", "exit_code", "again"),
    [
        ("Restart=always", 0, True),
        ("Restart=always", -9, True),
        ("Restart=always\nType=oneshot", 0, False),
        ("Restart=on-failure", 0, False),
        ("Restart=on-failure", 1, True),
        ("Restart=no", 1, False),
    ],
)
def test_restart_follows_the_unit(service: str, exit_code: int, *, again: bool) -> None:
    assert unit(f"ExecStart=/x\n{service}").restarts_after(exit_code) is again


def test_enable_now_enables_and_starts() -> None:
    call = parse_systemctl(("systemctl", "enable", "--now", "hybrid-lease", "b.service"))
    assert call is not None
    assert (call.enable, call.start, call.stop) == (True, True, False)
    assert call.units == ("hybrid-lease.service", "b.service")


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("enable", (True, False, False)),
        ("start", (False, True, False)),
        ("restart", (False, True, True)),
        ("stop", (False, False, True)),
        ("daemon-reload", (False, False, False)),
    ],
)
def test_systemctl_verbs(verb: str, expected: tuple[bool, bool, bool]) -> None:
    call = parse_systemctl(("/usr/bin/systemctl", verb, "a"))
    assert call is not None
    assert (call.enable, call.start, call.stop) == expected


def test_other_commands_are_not_systemctl() -> None:
    assert parse_systemctl(("apt-get", "install", "systemctl")) is None
    assert parse_systemctl(()) is None


CONFIG = b"""#cloud-config
hostname: node-1
bootcmd:
- [systemctl, start, early.service]
write_files:
- path: /etc/hybrid/agent.json
  permissions: '0600'
  content: '{"a": 1}'
- {path: /opt/x, encoding: b64, content: aGVsbG8=}
runcmd:
- [echo, 1, true]
- "a shell line"
"""


def test_a_cloud_config_is_read_in_its_parts() -> None:
    config = parse_user_data(CONFIG)
    assert config.boot_commands == (("systemctl", "start", "early.service"),)
    assert config.run_commands == (("echo", "1", "True"), "a shell line")
    assert config.files == (
        FileToWrite("/etc/hybrid/agent.json", b'{"a": 1}', 0o600, append=False),
        FileToWrite("/opt/x", b"hello", 0o644, append=False),
    )
    assert config.ignored == ("hostname",)


def test_user_data_and_files_may_be_compressed() -> None:
    packed = base64.b64encode(gzip.compress(b"big")).decode()
    text = f"#cloud-config\nwrite_files: [{{path: /x, encoding: gz+b64, content: '{packed}'}}]\n"
    assert parse_user_data(gzip.compress(text.encode())).files[0].content == b"big"


@pytest.mark.parametrize("nothing", [b"", b"  \n", b"#cloud-config\n"])
def test_empty_user_data_asks_for_nothing(nothing: bytes) -> None:
    assert parse_user_data(nothing).run_commands == ()


@pytest.mark.parametrize(
    ("user_data", "complaint"),
    [
        (b"#!/bin/sh\nrm -rf /", "does not begin with"),
        (b"#cloud-config\n- a\n", "is a mapping"),
        (b"#cloud-config\na: [", "not YAML"),
        (b"#cloud-config\nruncmd: x\n", "runcmd is a list"),
        (b"#cloud-config\nwrite_files: [{content: x}]\n", "needs a path"),
        (b"#cloud-config\nwrite_files: [{path: /x, permissions: rwx}]\n", "write_files /x"),
        (b"#cloud-config\nwrite_files: [{path: /x, encoding: gzip, content: x}]\n", "write_files"),
        (b"\x1f\x8bnot gzip", "not gzip"),
    ],
)
def test_user_data_that_cannot_be_followed_says_why(user_data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidUserData, match=complaint):
        parse_user_data(user_data)


def test_files_are_written_below_the_root_with_their_modes(tmp_path: Path) -> None:
    write_files(tmp_path, parse_user_data(CONFIG).files)
    secret = tmp_path / "etc/hybrid/agent.json"
    assert secret.read_text() == '{"a": 1}'
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_appending_keeps_what_is_there(tmp_path: Path) -> None:
    first = FileToWrite("/x", b"a", 0o644, append=False)
    write_files(tmp_path, (first, FileToWrite("/x", b"b", 0o644, append=True)))
    assert (tmp_path / "x").read_bytes() == b"ab"


@pytest.mark.parametrize("path", ["relative", "/a/../../etc/passwd", ""])
def test_no_file_is_written_outside_the_root(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidUserData, match="absolute path"):
        below(tmp_path, path)


def test_paths_of_the_node_software_move_below_the_root(tmp_path: Path) -> None:
    assert translate(tmp_path, "/etc/hybrid/agent.json") == f"{tmp_path}/etc/hybrid/agent.json"
    assert (
        translate(tmp_path, "--config=/var/lib/hybrid/x") == f"--config={tmp_path}/var/lib/hybrid/x"
    )


def test_written_files_move_below_the_root_and_programs_of_the_host_do_not(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/script.sh").write_text("")
    assert translate(tmp_path, "/srv/script.sh") == f"{tmp_path}/srv/script.sh"
    assert translate(tmp_path, "/bin/sh") == "/bin/sh"
    assert translate(tmp_path, "plain") == "plain"
    assert translate(tmp_path, "/") == "/"
    assert translate(tmp_path, "/etc/hybrid-other") == "/etc/hybrid-other"


def test_the_image_carries_the_node_program(tmp_path: Path) -> None:
    build_image(tmp_path, ("/bin/echo", "it's"))
    ran = subprocess.run(
        [tmp_path / "opt/hybrid/bin/hybrid", "a b", "c"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "it's a b c\n"


def test_power_commands_of_the_image_never_reach_those_of_the_host(tmp_path: Path) -> None:
    build_image(tmp_path, ())
    for name in ("systemctl", "poweroff", "shutdown", "halt", "reboot"):
        assert os.access(tmp_path / "usr/sbin" / name, os.X_OK)


def test_switching_off_needs_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_POWEROFF_URL", raising=False)
    assert poweroff(["poweroff"]) == 1
    monkeypatch.setenv("HYBRID_POWEROFF_URL", "http://127.0.0.1:9/_sandbox/machines/i/poweroff")
    assert poweroff(["shutdown", "-h", "now"]) == 1


def test_systemctl_on_a_machine_only_knows_poweroff(monkeypatch: pytest.MonkeyPatch) -> None:
    assert poweroff(["systemctl", "stop", "sshd"]) == 2
