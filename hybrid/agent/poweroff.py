"""Ends the machine the agent runs on. Only burst machines have this."""

from __future__ import annotations

import subprocess

import httpx
import structlog

from hybrid.agent.config import AgentConfig, MachineKind

_log = structlog.get_logger(__name__)
_TIMEOUT_S = 30.0


class NotOurs(Exception):
    """An owned machine is never shut down."""


def power_off(config: AgentConfig) -> bool:
    """Ask for the end of the machine; whether the ask was taken. Raises NotOurs."""
    if config.machine is not MachineKind.BURST:
        raise NotOurs("this machine is owned")
    if config.poweroff_url is not None:
        try:
            answer = httpx.post(config.poweroff_url, timeout=_TIMEOUT_S)
        except httpx.HTTPError as error:
            _log.error("the machine cannot be ended", error=type(error).__name__)
            return False
        return answer.is_success
    try:
        done = subprocess.run(
            list(config.poweroff_command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.error("the machine cannot be ended", error=str(error))
        return False
    if done.returncode != 0:
        _log.error(
            "the machine cannot be ended",
            exit_code=done.returncode,
            said=done.stderr[-300:].decode(errors="replace").strip(),
        )
    return done.returncode == 0
