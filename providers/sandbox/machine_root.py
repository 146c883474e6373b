"""A machine's disk: a directory that stands for ``/``, and what the image puts on it.

No mount namespace is used (that needs root), so paths are translated where processes are started:
an argument or environment value that names an absolute path is moved below the machine's root when
it lies in one of the directories that the node software owns, or when the moved path exists, as
files written by cloud-init do. Programs of the host (``/bin/sh``, the Python interpreter) stay
where they are. What a script names *inside* its text is not translated: node scripts prefix
``$HYBRID_ROOT`` themselves.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

OWNED = ("/etc/hybrid", "/var/lib/hybrid", "/run/hybrid", "/opt/hybrid")
DIRECTORIES = ("etc/systemd/system", "root", "tmp", "usr/sbin", *(path[1:] for path in OWNED))


def build_image(root: Path, hybrid_command: tuple[str, ...]) -> None:
    """Make the disk of a fresh machine.

    The image carries ``/opt/hybrid/bin/hybrid``, and in ``/usr/sbin`` the commands that switch a
    machine off: they come first in ``PATH``, so that no script on a sandbox machine ever reaches
    those of the host.
    """
    for directory in DIRECTORIES:
        (root / directory).mkdir(parents=True, exist_ok=True)
    command = hybrid_command or (sys.executable, "-m", "hybrid")
    write_program(root / "opt/hybrid/bin/hybrid", command, '"$@"')
    for name in ("systemctl", "poweroff", "shutdown", "halt", "reboot"):
        write_program(
            root / "usr/sbin" / name,
            (sys.executable, "-m", "providers.sandbox.poweroff", name),
            '"$@"',
        )


def write_program(path: Path, command: tuple[str, ...], arguments: str) -> None:
    """Write an executable that replaces itself by ``command``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec {shlex.join(command)} {arguments}\n", encoding="utf-8")
    path.chmod(0o755)


def translate(root: Path, argument: str) -> str:
    """Where an argument's path lies on this host: ``/x``, ``--option=/x`` and plain words."""
    option, equals, value = argument.partition("=")
    if equals and option.startswith("-") and value.startswith("/"):
        return f"{option}={_moved(root, value)}"
    return _moved(root, argument)


def _moved(root: Path, path: str) -> str:
    if not path.startswith("/"):
        return path
    moved = root / path.lstrip("/")
    owned = any(path == each or path.startswith(f"{each}/") for each in OWNED)
    if owned or (path != "/" and moved.exists()):
        return str(moved)
    return path
