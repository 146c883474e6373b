"""What ``hybrid doctor`` looks at. Every check ends, and none raises."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path

from hybrid.cli.exits import CliError
from hybrid.cli.finding import default_state_dir
from hybrid.cli.session import Connection
from hybrid.cli.views import gpu_name
from hybrid.cli.words import plural, size, span
from hybrid.client import ClientError, Problem

SKEW_S = 5.0
"""Deadlines and leases are instants: clocks further apart than this are worth a word."""
FREE_BYTES = 1 << 30
EXTRAS = {
    "aws": "boto3",
    "gcp": "google.auth",
    "kubernetes": "kubernetes",
    "nvidia": "pynvml",
    "postgres": "psycopg",
    "sandbox": "moto",
}
"""What each extra brings, by a module that only it brings."""


class Mark(StrEnum):
    """How a check came out; ``note`` is worth knowing and no fault."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: Mark
    words: str

    def as_dict(self) -> dict[str, str]:
        """For programs."""
        return {key: str(value) for key, value in asdict(self).items()}


def all_checks(connection: Connection) -> Iterator[Check]:
    """Every check, in the order in which one would look."""
    yield Check("python", Mark.GOOD, sys.version.split()[0])
    yield state_dir(connection.state_dir or default_state_dir())
    yield from server(connection)
    yield containers()
    yield gpus()
    yield extras()


def state_dir(path: Path) -> Check:
    """Whether a server could keep its things there, and whether there is room."""
    name = "state directory"
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Check(name, Mark.BAD, f"{path} cannot be written to")
    free = shutil.disk_usage(nearest).free
    if free < FREE_BYTES:
        return Check(name, Mark.BAD, f"{path}: only {size(free)} free; make room")
    new = "" if path.exists() else " (not there yet)"
    return Check(name, Mark.GOOD, f"{path}{new}, {size(free)} free")


def server(connection: Connection) -> Iterator[Check]:
    """Whether a server answers, can work, knows the token, and has the same time."""
    try:
        client = connection.client
        began = datetime.now(UTC)
        answer = client.wire.ask("GET", "/healthz")
        took_s = (datetime.now(UTC) - began).total_seconds()
    except (CliError, ClientError) as problem:
        yield Check("server", Mark.BAD, str(problem))
        return
    yield Check("server", Mark.GOOD, f"{client.url} answers in {span(took_s)}")
    yield _skew(answer.headers.get("date"), began)
    try:
        ready = client.ready()
        mark = Mark.GOOD if ready.ready else Mark.BAD
        yield Check("readiness", mark, f"database {ready.store}, loop {ready.loop}")
        who = client.who_am_i()
        teams = "all teams" if who.teams is None else f"teams {', '.join(who.teams)}"
        yield Check("token", Mark.GOOD, f"{who.role} {who.name}, {teams}")
        nodes = client.nodes().nodes
        able = [node for node in nodes if node.state == "ready"]
        words = f"{plural(len(able), 'node')} ready, of {len(nodes)}"
        yield Check("nodes", Mark.GOOD if able else Mark.NOTE, words)
        for pool in client.pools().pools:
            for warning in pool.warnings:
                yield Check(f"pool {pool.name}", Mark.NOTE, warning)
    except Problem as problem:
        hint = "; name one with --token or HYBRID_TOKEN" if problem.status == 401 else ""
        yield Check("token", Mark.BAD, f"{problem.detail}{hint}")
    except ClientError as problem:
        yield Check("server", Mark.BAD, str(problem))


def _skew(date: str | None, now: datetime) -> Check:
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Check("clocks", Mark.NOTE, "the server does not tell the time")
    # its header counts whole seconds
    apart = abs((theirs - now).total_seconds())
    if apart > SKEW_S:
        said = f"the server's clock and this one are {span(apart)} apart; set them by NTP"
        return Check("clocks", Mark.BAD, said)
    return Check("clocks", Mark.GOOD, "this one and the server's agree")


def containers() -> Check:
    """Which container engines an agent here would find."""
    from hybrid.agent.launch import detect_container_runtimes

    found = detect_container_runtimes()
    if not found:
        said = "none: jobs with an image cannot run here (docker, podman or apptainer)"
        return Check("containers", Mark.NOTE, said)
    return Check("containers", Mark.GOOD, ", ".join(each.kind.value for each in found))


def gpus() -> Check:
    """What NVML says of this machine."""
    if importlib.util.find_spec("pynvml") is None:
        said = "cannot be asked for: pip install 'hybrid[nvidia]'; or declare --virtual-gpus"
        return Check("gpus", Mark.NOTE, said)
    from providers.nvml import open_inventory

    inventory = open_inventory()
    if inventory is None:
        return Check("gpus", Mark.NOTE, "no NVIDIA driver or no GPU; --virtual-gpus declares some")
    found = inventory.read().gpus
    ill = [gpu for gpu in found if not gpu.healthy]
    words = ", ".join(gpu_name(gpu.model) for gpu in found)
    if ill:
        words += f"; not well: {', '.join(f'{gpu.index} ({gpu.health_reason})' for gpu in ill)}"
    return Check("gpus", Mark.BAD if ill else Mark.GOOD, words)


def extras() -> Check:
    """Which optional parts are installed."""
    there = [name for name, module in EXTRAS.items() if _is_there(module)]
    missing = [name for name in EXTRAS if name not in there]
    words = f"installed: {', '.join(there) or 'none'}"
    if missing:
        words += f"; not: {', '.join(missing)} (pip install 'hybrid[NAME]')"
    return Check("extras", Mark.GOOD, words)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
