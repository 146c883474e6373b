"""How a server starts, what may be in its way, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from api.server import Server
from hybrid.config import Settings, StartupError, load_settings
from tests.integration.api.conftest import Running, run_server, until

pytestmark = pytest.mark.integration

SERVE = """
import sys
from api.server import serve
from hybrid.config import StartupError, load_settings
try:
    serve(load_settings(state_dir=sys.argv[1], port=int(sys.argv[2])),
          lambda ready: print(ready.url, flush=True))
except StartupError as problem:
    print(problem, file=sys.stderr)
    sys.exit(2)
"""


def start(state: Path, port: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, str(state), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Its exit status and what it said on standard error."""
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    return process.returncode, said


def test_a_server_says_where_it_is_keeps_it_private_and_ends_in_order(tmp_path: Path) -> None:
    process = start(tmp_path / "state")
    url = url_of(process)
    facts = json.loads((tmp_path / "state" / "server.json").read_text())
    assert (facts["url"], facts["pid"]) == (url, process.pid)
    token = (tmp_path / "state" / "admin.token").read_text().strip()
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        until(lambda: client.get(f"{url}/readyz").status_code == 200)
        assert client.get(f"{url}/v1/whoami").json()["role"] == "admin"
    for private in ("hybrid.db", "secret.key", "admin.token", "server.json"):
        assert (tmp_path / "state" / private).stat().st_mode & 0o077 == 0, private
    begun = time.monotonic()
    status, said = end(process)
    assert time.monotonic() - begun < 5
    assert status == 0, said
    assert token not in said
    assert not (tmp_path / "state" / "server.json").exists()


def test_a_server_that_was_killed_leads_again_at_once_and_keeps_its_token(tmp_path: Path) -> None:
    first = start(tmp_path)
    url = url_of(first)
    until(lambda: httpx.get(f"{url}/readyz").json()["loop"] == "leads")
    token = (tmp_path / "admin.token").read_text()
    end(first, signal.SIGKILL)
    second = start(tmp_path)
    url = url_of(second)
    begun = time.monotonic()
    until(lambda: httpx.get(f"{url}/readyz").json()["loop"] == "leads")
    assert time.monotonic() - begun < 5  # the dead one's lease of 15 s is not waited for
    assert (tmp_path / "admin.token").read_text() == token
    assert end(second)[0] == 0


def test_a_second_server_on_the_same_state_stands_by(running: Running, tmp_path: Path) -> None:
    until(lambda: running.client().get("/readyz").json()["loop"] == "leads")
    settings = Settings(state_dir=tmp_path / "state", port=0, tick_s=0.2)  # type: ignore[arg-type]
    second = run_server(settings)
    assert second.ready.admin_token is None
    client = second.client(running.ready.admin_token or "")
    until(lambda: client.get("/readyz").status_code == 200)
    assert client.get("/readyz").json() == {"ready": True, "store": "ok", "loop": "stands_by"}
    job = client.post("/v1/jobs", json={"command": ["x"]}).json()
    assert running.client().get(f"/v1/jobs/{job['id']}").status_code == 200
    facts = json.loads((tmp_path / "state" / "server.json").read_text())
    assert facts["url"] == running.ready.url
    second.stop()
    assert (tmp_path / "state" / "server.json").exists()
    assert running.client().get("/readyz").json()["loop"] == "leads"


def test_a_port_in_use_is_one_clear_line_and_a_status(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(tmp_path, port)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said == (
        f"port {port} on 127.0.0.1 is in use: something else listens there; end it, or choose"
        " another --port\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_program_is_one_clear_line(tmp_path: Path) -> None:
    Server(Settings(state_dir=tmp_path, port=0)).close()
    with sqlite3.connect(tmp_path / "hybrid.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(StartupError) as caught:
        Server(Settings(state_dir=tmp_path, port=0))
    assert "is newer than this program" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"state_dir": "/proc/nowhere"}, "the state directory /proc/nowhere cannot be used: "),
        ({"database_url": "oracle://x"}, "oracle"),
        ({"host": "no.such.host.invalid", "behind_proxy": True}, "host no.such.host.invalid is"),
        ({"tls_cert": "/none.pem", "tls_key": "/none.key"}, "tls_cert and tls_key cannot be used"),
        ({"tls_ca": "/none.pem"}, "tls_ca cannot be read"),
        ({"policy_file": "/none.yaml"}, "policy_file cannot be read"),
        ({"artifacts_url": "nosuch://x"}, "the artifact store nosuch://x cannot be used"),
        (
            {"providers": [{"name": "x", "kind": "azure", "region": "r"}]},
            "there is no provider of kind 'azure'",
        ),
        (
            {"providers": [{"name": "x", "kind": "aws", "region": "r", "options": {"colour": 1}}]},
            "provider x cannot be set up: ",
        ),
    ],
)
def test_what_is_in_the_way_is_said_in_one_line(
    tmp_path: Path, given: dict[str, object], says: str
) -> None:
    with pytest.raises(StartupError) as caught:
        Server(load_settings(**{"state_dir": tmp_path, "port": 0, **given}))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_file_is_the_first_policy_and_not_the_second(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("budgets: [{name: all, limit_usd: 5}]\n")
    settings = load_settings(state_dir=tmp_path / "s", port=0, policy_file=file)
    server = Server(settings)
    assert [b.name for b in server.app.store.balances(now=0.0)] == ["all"]
    server.app.policies.replace("", over=1, by="root")
    server.close()
    again = Server(settings)
    assert (again.app.store.policy().version, again.app.store.balances(now=0.0)) == (2, ())
    again.close()


def test_a_policy_file_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("brust: {}\n")
    with pytest.raises(StartupError, match="policy_file: line 1, column 1: brust"):
        Server(load_settings(state_dir=tmp_path / "s", port=0, policy_file=file))


def test_over_tls_the_server_answers_and_nodes_are_told_what_to_trust(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    settings = load_settings(
        state_dir=tmp_path / "s", port=0, tls_cert=cert, tls_key=key, tls_ca=cert
    )
    served = run_server(settings)
    assert served.ready.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=str(cert))
    with httpx.Client(base_url=served.ready.url, verify=trusting) as client:
        answer = client.get("/healthz")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert served.server.app.loop.tick.boot.server_ca_pem == cert.read_text()
    served.stop()


def test_a_server_is_up_after_less_than_two_and_a_half_seconds_of_work(tmp_path: Path) -> None:
    """So that it is up within three on a machine that has nothing else to do; how much else this
    one has to do nobody knows."""
    process = start(tmp_path)
    url = url_of(process)
    assert httpx.get(f"{url}/healthz").status_code == 200
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    worked_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    end(process)
    assert 0 < worked_s < 2.5


def test_no_cloud_library_is_loaded_without_a_cloud(tmp_path: Path) -> None:
    code = (
        "import sys; from api.server import Server; from hybrid.config import load_settings;"
        f"Server(load_settings(state_dir={str(tmp_path)!r}, port=0)).close();"
        "print([m for m in ('boto3', 'botocore', 'google.cloud.compute', 'fsspec', 'kubernetes')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ},
    )  # fmt: skip
    assert done.stdout.strip().splitlines()[-1] == "[]"
