"""The part of cloud-init that a sandbox machine does: ``write_files``, ``bootcmd``, ``runcmd``.

The order is cloud-init's own: boot commands come *before* files are written, so a boot command that
needs a written file fails here as it would in a cloud.
"""

from __future__ import annotations

import base64
import binascii
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HEADER = "#cloud-config"
FOLLOWED = frozenset({"bootcmd", "write_files", "runcmd"})


class InvalidUserData(ValueError):
    """The user data is not a cloud-config that this machine can follow."""


@dataclass(frozen=True, slots=True)
class FileToWrite:
    """One ``write_files`` entry; ``path`` is absolute in the machine's own eyes."""

    path: str
    content: bytes
    mode: int
    append: bool


@dataclass(frozen=True, slots=True)
class CloudConfig:
    """What the user data asks for. A command is an argv, or a string for a shell to read."""

    boot_commands: tuple[tuple[str, ...] | str, ...]
    files: tuple[FileToWrite, ...]
    run_commands: tuple[tuple[str, ...] | str, ...]
    ignored: tuple[str, ...]


def parse_user_data(user_data: bytes) -> CloudConfig:
    """Read user data. Raises ``InvalidUserData``; empty user data asks for nothing."""
    if user_data[:2] == b"\x1f\x8b":
        try:
            user_data = gzip.decompress(user_data)
        except (OSError, EOFError) as error:
            raise InvalidUserData(f"user data is not gzip: {error}") from error
    text = user_data.decode("utf-8", "replace")
    if not text.strip():
        return CloudConfig((), (), (), ())
    if text.splitlines()[0].strip() != HEADER:
        raise InvalidUserData(f"user data does not begin with {HEADER}")
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidUserData(f"user data is not YAML: {error}") from error
    if document is None:
        return CloudConfig((), (), (), ())
    if not isinstance(document, dict):
        raise InvalidUserData("a cloud-config is a mapping")
    return CloudConfig(
        boot_commands=_commands(document, "bootcmd"),
        files=tuple(_file(entry) for entry in _list(document, "write_files")),
        run_commands=_commands(document, "runcmd"),
        ignored=tuple(sorted(str(key) for key in document if key not in FOLLOWED)),
    )


def write_files(root: Path, files: tuple[FileToWrite, ...]) -> list[Path]:
    """Write every file below ``root``. Raises ``InvalidUserData`` for a path that leaves it."""
    written = []
    for entry in files:
        target = below(root, entry.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab" if entry.append else "wb") as stream:
            # the mode first: a secret is never readable by others, not even for a moment
            target.chmod(entry.mode)
            stream.write(entry.content)
        written.append(target)
    return written


def below(root: Path, path: str) -> Path:
    """Where an absolute path of the machine lies on this host. Raises ``InvalidUserData``."""
    if not path.startswith("/") or ".." in Path(path).parts:
        raise InvalidUserData(f"not an absolute path without '..': {path!r}")
    return root / path.lstrip("/")


def _list(document: dict[str, Any], key: str) -> list[Any]:
    entries = document.get(key) or []
    if not isinstance(entries, list):
        raise InvalidUserData(f"{key} is a list")
    return entries


def _commands(document: dict[str, Any], key: str) -> tuple[tuple[str, ...] | str, ...]:
    return tuple(
        tuple(str(word) for word in entry) if isinstance(entry, list) else str(entry)
        for entry in _list(document, key)
    )


def _file(entry: Any) -> FileToWrite:
    if not isinstance(entry, dict) or "path" not in entry:
        raise InvalidUserData(f"a write_files entry needs a path: {entry!r}")
    encoding = str(entry.get("encoding", "text/plain")).lower()
    content = str(entry.get("content", "")).encode()
    try:
        if encoding in ("b64", "base64", "gz+b64", "gz+base64", "gzip+b64", "gzip+base64"):
            content = base64.b64decode(content, validate=False)
        if encoding.startswith("gz"):
            content = gzip.decompress(content)
        mode = int(str(entry.get("permissions", "0644")), 8)
    except (binascii.Error, OSError, EOFError, ValueError) as error:
        raise InvalidUserData(f"write_files {entry['path']}: {error}") from error
    return FileToWrite(str(entry["path"]), content, mode, bool(entry.get("append", False)))
