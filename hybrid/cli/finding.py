"""Which server a command speaks to, and with which token."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.cli.exits import CliError, Exit
from hybrid.services.state_dir import StateDir

STARTING_S = 5.0
"""How long a server that is just starting is waited for."""
_LOOK_S = 0.05
_HINT = "start one with `hybrid up`, or name one with --server or HYBRID_SERVER"


@dataclass(frozen=True, slots=True)
class Place:
    """A server, and the token to show it; None where none was found."""

    url: str
    token: str | None


def default_state_dir() -> Path:
    """The state directory where none is named."""
    from hybrid.config import default_state_dir as default

    return default()


def find(server: str | None, token: str | None, state_dir: Path | None) -> Place:
    """The server that is named, else the one that runs in the state directory.

    The admin token kept there is for that server alone: it is never shown to another one.
    Raises CliError.
    """
    state = StateDir(state_dir or default_state_dir())
    if server is None:
        server = _announced(state)
        return Place(server, token or _kept(state))
    if token is None and (state.announced() or {}).get("url") == server.rstrip("/"):
        token = _kept(state)
    return Place(server, token)


def _announced(state: StateDir) -> str:
    deadline = time.monotonic() + STARTING_S
    while True:
        facts = _read(state)
        if facts is None:
            raise CliError(Exit.UNREACHABLE, f"no server runs in {state.path}", hint=_HINT)
        if not _alive(facts.get("pid")):
            said = f"the server of {state.path} (process {facts.get('pid')}) is gone"
            raise CliError(Exit.UNREACHABLE, said, hint=_HINT)
        if facts.get("url"):
            return str(facts["url"])
        if time.monotonic() > deadline:
            said = f"the server of {state.path} has been starting for {STARTING_S:g} s"
            raise CliError(Exit.UNREACHABLE, said, hint="look at its log, or try again")
        time.sleep(_LOOK_S)


def _read(state: StateDir) -> dict[str, Any] | None:
    try:
        return state.announced()
    except OSError as problem:
        said = f"the state directory {state.path} cannot be read: {problem.strerror}"
        raise CliError(Exit.UNREACHABLE, said, hint=_HINT) from problem


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kept(state: StateDir) -> str | None:
    """The admin token of the state directory, unless others could have read it."""
    path = state.path / "admin.token"
    try:
        facts = path.stat()
        if stat.S_IMODE(facts.st_mode) & 0o077:
            said = f"{path} can be read by others, so its token is not used"
            raise CliError(Exit.USAGE, said, hint=f"chmod 600 {path}")
        return state.admin_token()
    except FileNotFoundError:
        return None
    except OSError as problem:
        said = f"{path} cannot be read: {problem.strerror}"
        raise CliError(Exit.USAGE, said, hint="name a token with --token or HYBRID_TOKEN") from None
