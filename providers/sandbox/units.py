"""The part of a systemd service file that a sandbox machine understands.

Supported: ``ExecStart=``, ``Environment=``, ``Type=simple|exec|oneshot``, ``Restart=``,
``RestartSec=``, ``StartLimitIntervalSec=``, ``StartLimitBurst=``, ``KillMode=``. The last one
matters: without ``KillMode=process`` systemd ends what a service's main process leaves behind, and
so does a sandbox machine. Everything else is kept as a list
of ignored keys, so that a machine's console can say what it did not do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# systemd's defaults (systemd.service(5), systemd.unit(5))
DEFAULT_RESTART_S = 0.1
DEFAULT_LIMIT_INTERVAL_S = 10.0
DEFAULT_LIMIT_BURST = 5

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|msec|s|sec|seconds?|m|min|minutes?|h|hr|hours?)?")
_SPAN_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNDERSTOOD = frozenset(
    {
        "ExecStart",
        "Environment",
        "Type",
        "Restart",
        "RestartSec",
        "StartLimitIntervalSec",
        "StartLimitBurst",
        "KillMode",
    }
)
# Words for people and for ordering at boot: a machine with two services loses nothing by them.
_HARMLESS = frozenset(
    {"Description", "Documentation", "After", "Before", "Wants", "WantedBy", "RequiredBy"}
)


class InvalidUnit(ValueError):
    """The unit file cannot be run; the message says which line and why."""


class Restart(StrEnum):
    """When a service that ended is started again."""

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"


@dataclass(frozen=True, slots=True)
class Unit:
    """One service: an argv (never a shell line) and what to do when it ends."""

    name: str
    exec_start: tuple[str, ...]
    environment: Mapping[str, str]
    oneshot: bool
    restart: Restart
    restart_s: float
    limit_interval_s: float
    limit_burst: int
    leaves_children: bool
    ignored: tuple[str, ...]

    def restarts_after(self, exit_code: int) -> bool:
        """Whether an end with this code (negative: a signal) is followed by another start."""
        if self.restart is Restart.ALWAYS:
            return not (self.oneshot and exit_code == 0)
        return self.restart is Restart.ON_FAILURE and exit_code != 0


def parse_unit(name: str, text: str) -> Unit:
    """Read a service file. Raises ``InvalidUnit``."""
    values: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if not line or line[0] in "#;[":
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise InvalidUnit(f"{name}: not a setting: {line!r}")
        values.setdefault(key.strip(), []).append(value.strip())
    commands = values.get("ExecStart", [])
    if len(commands) != 1:
        raise InvalidUnit(f"{name}: needs exactly one ExecStart=, has {len(commands)}")
    argv = _words(name, commands[0].lstrip("-@:+!"))
    if not argv:
        raise InvalidUnit(f"{name}: ExecStart= is empty")
    try:
        restart = Restart(_last(values, "Restart", "no"))
    except ValueError as error:
        raise InvalidUnit(f"{name}: {error}") from error
    return Unit(
        name=name,
        exec_start=tuple(argv),
        environment=_environment(name, values.get("Environment", [])),
        oneshot=_last(values, "Type", "simple") == "oneshot",
        restart=restart,
        restart_s=_span(name, _last(values, "RestartSec", str(DEFAULT_RESTART_S))),
        limit_interval_s=_span(
            name, _last(values, "StartLimitIntervalSec", str(DEFAULT_LIMIT_INTERVAL_S))
        ),
        limit_burst=_whole(name, _last(values, "StartLimitBurst", str(DEFAULT_LIMIT_BURST))),
        # systemd.kill(5): these two spare what is left in the control group
        leaves_children=_last(values, "KillMode", "control-group") in ("process", "none"),
        ignored=tuple(sorted(values.keys() - _UNDERSTOOD - _HARMLESS)),
    )


@dataclass(frozen=True, slots=True)
class Systemctl:
    """A ``systemctl`` call: what it enables, and what it starts or stops now."""

    enable: bool
    start: bool
    stop: bool
    units: tuple[str, ...]


def parse_systemctl(argv: tuple[str, ...]) -> Systemctl | None:
    """Read a ``systemctl`` command line; None when it is another command."""
    if not argv or argv[0].rpartition("/")[2] != "systemctl":
        return None
    words = [word for word in argv[1:] if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    return Systemctl(
        enable=verb in ("enable", "reenable"),
        start=verb in ("start", "restart") or (verb == "enable" and "--now" in argv),
        stop=verb in ("stop", "restart"),
        units=tuple(name if "." in name else f"{name}.service" for name in names),
    )


def _words(name: str, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise InvalidUnit(f"{name}: {error}: {value!r}") from error


def _environment(name: str, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if not line:  # an empty assignment resets the list, as in systemd
            found.clear()
        for word in _words(name, line):
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise InvalidUnit(f"{name}: Environment= needs KEY=value, has {word!r}")
            found[key] = value
    return found


def _last(values: Mapping[str, list[str]], key: str, default: str) -> str:
    return values[key][-1] if key in values else default


def _whole(name: str, text: str) -> int:
    if not text.isdigit():
        raise InvalidUnit(f"{name}: not a whole number: {text!r}")
    return int(text)


def _span(name: str, text: str) -> float:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise InvalidUnit(f"{name}: not a time span: {text!r}")
    unit = found[2] or "s"
    return float(found[1]) * _SPAN_S["ms" if unit.startswith("ms") else unit[0]]
