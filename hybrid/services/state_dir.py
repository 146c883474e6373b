"""The folder a server keeps its own things in.

=================  ====================================================================
``secret.key``     32 random bytes, 0600: what join tokens of cloud machines are made of
``admin.token``    the first admin token, 0600: how the command line here finds its way in
``server.json``    ``{"url", "pid", "started_at", "version"}`` of the server running now
``server.lock``    held while a server runs
=================  ====================================================================

The folder is 0700. Whatever cannot be done here raises
:class:`~hybrid.services.errors.StartupError`.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.services.errors import StartupError

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class StateDir:
    """An opened state folder: it exists, is private and can be written to."""

    path: Path

    @classmethod
    def opened(cls, path: Path) -> StateDir:
        """The folder, made if it is not there."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o700)
            probe = path / f".probe-{secrets.token_hex(4)}"
            probe.touch(mode=0o600)
            probe.unlink()
        except OSError as problem:
            why = problem.strerror or str(problem)
            raise StartupError(f"the state directory {path} cannot be used: {why}") from problem
        return cls(path)

    def secret(self) -> bytes:
        """The installation's secret, drawn on first use."""
        found = self._kept("secret.key", secrets.token_bytes(SECRET_BYTES))
        if len(found) != SECRET_BYTES:
            raise StartupError(
                f"{self.path / 'secret.key'} is not a key of {SECRET_BYTES} bytes; restore it"
            )
        return found

    def admin_token(self) -> str | None:
        """The admin token kept for the command line, None if there is none."""
        try:
            return (self.path / "admin.token").read_text().strip() or None
        except FileNotFoundError:
            return None

    def keep_admin_token(self, token: str) -> None:
        """Keep the admin token for the command line, in place of any other."""
        self._replace("admin.token", token.encode() + b"\n")

    def announce(self, **facts: Any) -> None:
        """Say where the server is."""
        self._replace("server.json", json.dumps(facts, indent=2).encode() + b"\n")

    def announced(self) -> dict[str, Any] | None:
        """What a server here has said of itself, None if none runs or the file is no use."""
        try:
            facts = json.loads((self.path / "server.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def withdraw(self) -> None:
        """Take the announcement back, if it is this process's own."""
        facts = self.announced()
        if facts is not None and facts.get("pid") == os.getpid():
            with suppress(FileNotFoundError):
                (self.path / "server.json").unlink()

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the folder's lock; yields False when another server holds it."""
        descriptor = os.open(self.path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def _kept(self, name: str, fresh: bytes) -> bytes:
        """The file's content; ``fresh`` becomes it if there is none. Of two at once, one wins."""
        target = self.path / name
        with suppress(FileNotFoundError):
            return target.read_bytes()
        draft = self._draft(name, fresh)
        try:
            with suppress(FileExistsError):
                os.link(draft, target)
        finally:
            draft.unlink()
        return target.read_bytes()

    def _replace(self, name: str, content: bytes) -> None:
        self._draft(name, content).replace(self.path / name)

    def _draft(self, name: str, content: bytes) -> Path:
        draft = self.path / f".{name}-{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return draft
