"""The first process of a sandbox machine: its cloud-init and its service manager.

Started as ``python -m providers.sandbox.machine_init DIRECTORY`` with a pipe on standard input that
only the sandbox holds. The pipe's end is the machine's power: when it closes, because the sandbox
cut it or because the sandbox itself was killed, init kills everything below it and ends. (A
parent-death signal would do for direct children only, and follows the *thread* that started them.)

``DIRECTORY`` holds ``boot.json`` (instance id, environment, whether this is the first boot),
``user-data``, ``root/`` and what init writes: ``units.json`` (services as they are now) and
``enabled.json`` (what starts again at the next boot).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from providers.sandbox.cloud_init import (
    CloudConfig,
    InvalidUserData,
    below,
    parse_user_data,
    write_files,
)
from providers.sandbox.machine_root import translate
from providers.sandbox.processes import (
    UNIT_MARKER,
    become_subreaper,
    descendants,
    marked_as,
    processes,
    send,
)
from providers.sandbox.units import InvalidUnit, Unit, parse_systemctl, parse_unit

UNIT_DIRECTORIES = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
EXEC_FAILED = 203  # what systemd reports when the program could not be executed
POWER_DOWN_S = 5.0


@dataclass(slots=True)
class Service:
    """A unit and what runs of it."""

    unit: Unit
    pid: int | None = None
    state: str = "inactive"
    restarts: int = 0
    exit_code: int | None = None
    start_at: float | None = None
    starts: deque[float] = field(default_factory=deque)


class Init:
    """Boots the machine and keeps its services running until the power goes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = directory / "root"
        boot: dict[str, Any] = json.loads((directory / "boot.json").read_text(encoding="utf-8"))
        self._environment: dict[str, str] = boot["environment"]
        self._first_boot: bool = boot["first_boot"]
        self._services: dict[str, Service] = {}
        self._enabled: list[str] = []
        self._off = False

    def run(self) -> int:
        """Boot, then serve until the power goes."""
        become_subreaper()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._switch_off)
        signal.signal(signal.SIGINT, self._switch_off)
        self._boot()
        while not self._off:
            readable, _, _ = select.select([0, wake_read], [], [], self._next_start_s())
            if wake_read in readable:
                os.read(wake_read, 512)
            if 0 in readable and not os.read(0, 512):
                break
            self._reap()
            self._start_due()
        self._power_down()
        return 0

    # -- boot -------------------------------------------------------------------------------

    def _boot(self) -> None:
        enabled = self._directory / "enabled.json"
        if not self._first_boot and enabled.exists():
            self._enabled = json.loads(enabled.read_text(encoding="utf-8"))
            for name in self._enabled:
                self._start_unit(name)
        else:
            try:
                self._cloud_init(parse_user_data((self._directory / "user-data").read_bytes()))
            except InvalidUserData as error:
                self._say(f"cloud-init failed: {error}")
        _write_json(enabled, self._enabled)
        self._publish()

    def _cloud_init(self, config: CloudConfig) -> None:
        for key in config.ignored:
            self._say(f"cloud-init: {key} is not done on a sandbox machine")
        for command in config.boot_commands:
            self._command(command)
        for path in write_files(self._root, config.files):
            self._say(f"cloud-init: wrote /{path.relative_to(self._root)}")
        for command in config.run_commands:
            self._command(command)

    def _command(self, command: tuple[str, ...] | str) -> None:
        call = None if isinstance(command, str) else parse_systemctl(command)
        if call is None:
            self._say(f"baked into the image, not executed: {command!r}")
            return
        for name in call.units:
            if call.enable and name not in self._enabled:
                self._enabled.append(name)
            if call.stop:
                self._stop_unit(name)
            if call.start:
                self._start_unit(name)

    # -- services ---------------------------------------------------------------------------

    def _start_unit(self, name: str) -> None:
        known = self._services.get(name)
        if known is not None and known.pid is not None:
            return
        text = self._unit_text(name)
        if text is None:
            self._say(f"Failed to start {name}: Unit {name} not found.")
            return
        try:
            unit = parse_unit(name, text)
        except InvalidUnit as error:
            self._say(f"Failed to start {name}: {error}")
            return
        for key in unit.ignored:
            self._say(f"{name}: {key}= has no effect on a sandbox machine")
        self._services[name] = Service(unit, start_at=time.monotonic())
        self._start_due()

    def _unit_text(self, name: str) -> str | None:
        if "/" in name or not name.endswith(".service"):
            return None
        for directory in UNIT_DIRECTORIES:
            path = below(self._root, f"{directory}/{name}")
            if path.is_file():
                return path.read_text(encoding="utf-8")
        return None

    def _stop_unit(self, name: str) -> None:
        service = self._services.pop(name, None)
        if service is None:
            return
        if service.pid is not None:
            send([service.pid], signal.SIGKILL)
        if not service.unit.leaves_children:
            self._kill_leftovers(name)

    def _start_due(self) -> None:
        now = time.monotonic()
        for service in self._services.values():
            if service.start_at is not None and service.start_at <= now:
                service.start_at = None
                self._spawn(service, now)
                self._publish()

    def _spawn(self, service: Service, now: float) -> None:
        unit = service.unit
        while service.starts and service.starts[0] <= now - unit.limit_interval_s:
            service.starts.popleft()
        if unit.limit_interval_s > 0 and len(service.starts) >= unit.limit_burst:
            service.state = "failed"
            self._say(f"{unit.name}: Start request repeated too quickly.")
            return
        service.starts.append(now)
        environment = {
            **{key: translate(self._root, value) for key, value in unit.environment.items()},
            # the machine's own facts last: a unit cannot lose the marker that ends it
            **self._environment,
            UNIT_MARKER: unit.name,
        }
        argv = [translate(self._root, word) for word in unit.exec_start]
        program = shutil.which(argv[0], path=environment["PATH"])
        try:
            if program is None:
                raise FileNotFoundError(argv[0])
            service.pid = os.posix_spawn(
                program,
                argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
                setsid=True,
                setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT],
            )
        except OSError as error:
            self._say(f"{unit.name}: could not be executed: {error}")
            self._ended(service, EXEC_FAILED)
            return
        service.state = "active"
        self._say(f"Started {unit.name} (pid {service.pid}).")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for service in self._services.values():
                if service.pid == pid:
                    self._ended(service, os.waitstatus_to_exitcode(status))
                    self._publish()

    def _ended(self, service: Service, exit_code: int) -> None:
        service.pid = None
        service.exit_code = exit_code
        self._say(f"{service.unit.name}: ended with {exit_code}")
        if not service.unit.leaves_children:
            self._kill_leftovers(service.unit.name)
        if service.unit.restarts_after(exit_code):
            service.state = "activating"
            service.restarts += 1
            service.start_at = time.monotonic() + service.unit.restart_s
        else:
            service.state = "inactive" if exit_code == 0 else "failed"

    def _kill_leftovers(self, name: str) -> None:
        # systemd sends SIGTERM, waits and sends SIGKILL; a machine shows the end of it at once
        left = {
            pid
            for pid in descendants(os.getpid(), processes())
            if marked_as(pid, UNIT_MARKER) == name
        }
        if left:
            self._say(f"{name}: killing {len(left)} processes it left behind")
            send(left, signal.SIGKILL)

    def _next_start_s(self) -> float | None:
        due = [each.start_at for each in self._services.values() if each.start_at is not None]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    # -- the end ----------------------------------------------------------------------------

    def _switch_off(self, *_: object) -> None:
        self._off = True

    def _power_down(self) -> None:
        """Kill everything below, at once, as a power cut would; orphans come to us by adoption."""
        deadline = time.monotonic() + POWER_DOWN_S
        while time.monotonic() < deadline:
            send(descendants(os.getpid(), processes()), signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.005)

    # -- what it shows ----------------------------------------------------------------------

    def _publish(self) -> None:
        _write_json(
            self._directory / "units.json",
            [
                {
                    "name": name,
                    "pid": service.pid,
                    "restarts": service.restarts,
                    "state": service.state,
                }
                for name, service in sorted(self._services.items())
            ],
        )

    def _say(self, line: str) -> None:
        sys.stdout.write(f"[{time.strftime('%H:%M:%S', time.gmtime())}] {line}\n")
        sys.stdout.flush()


def _write_json(path: Path, document: Any) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    raise SystemExit(Init(Path(sys.argv[1])).run())
