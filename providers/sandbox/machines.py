"""The sandbox's side of its machines: it gives them power, and takes it away.

Each machine is a process (``machine_init``) with a directory of its own; everything else of it
descends from that process. Cutting a machine returns only when none of its processes is left.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from providers.sandbox import processes
from providers.sandbox.catalogue import describe
from providers.sandbox.cloud_core import UnknownInstance, WrongState
from providers.sandbox.config import SandboxConfig
from providers.sandbox.instances import Instance
from providers.sandbox.machine_root import build_image
from providers.sandbox.views import UnitView

log = logging.getLogger(__name__)

AGENT_UNIT = "hybrid-agent.service"
CONSOLE_BYTES = 64 * 1024
CUT_S = 10.0
INIT_ENDS_S = 3.0


@dataclass(slots=True)
class Machine:
    """A machine with power. ``cutting`` tells its wanted end from its death."""

    directory: Path
    init: subprocess.Popen[bytes]
    frozen: bool = False
    cutting: threading.Event = field(default_factory=threading.Event)


class MachinePark:
    """Every machine that runs on this host."""

    def __init__(self, directory: Path, config: SandboxConfig, url: str) -> None:
        self._directory = directory
        self._config = config
        self._url = url
        self._lock = threading.Lock()
        self._machines: dict[str, Machine] = {}

    def boot(self, instance: Instance, on_death: Callable[[], None]) -> None:
        """Power a machine on; ``on_death`` is called if it ends without having been cut."""
        directory = self._directory / instance.instance_id
        first_boot = not directory.exists()
        if first_boot:
            directory.mkdir(parents=True, mode=0o700)
            build_image(directory / "root", self._config.hybrid_command)
            (directory / "user-data").write_bytes(instance.user_data)
        environment = self._environment(instance, directory / "root")
        boot = {
            "instance_id": instance.instance_id,
            "environment": environment,
            "first_boot": first_boot,
        }
        (directory / "boot.json").write_text(json.dumps(boot), encoding="utf-8")
        with (directory / "console.log").open("ab") as console:
            init = subprocess.Popen(
                [sys.executable, "-m", "providers.sandbox.machine_init", str(directory)],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                cwd=directory / "root",
                env=environment,
                start_new_session=True,
            )
        machine = Machine(directory, init)
        with self._lock:
            self._machines[instance.instance_id] = machine
        threading.Thread(
            target=self._watch,
            args=(instance.instance_id, machine, on_death),
            name=f"sandbox-{instance.instance_id}",
            daemon=True,
        ).start()

    def cut(self, instance_id: str) -> None:
        """End every process of a machine and wait until none is left; none is fine too."""
        with self._lock:
            machine = self._machines.get(instance_id)
        known: dict[int, processes.Process] = {}
        if machine is not None:
            machine.cutting.set()
            # who scrubbed the marker is found by descent, while the tree still stands
            known = processes.members(self._ties(instance_id))
            processes.send([machine.init.pid], signal.SIGTERM)
            processes.send([machine.init.pid], signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                machine.init.wait(INIT_ENDS_S)
        left = processes.kill_until_none(self._ties(instance_id), known, CUT_S)
        if left:
            log.error("processes of %s outlive it: %s", instance_id, sorted(left))
        if machine is not None:
            machine.init.wait(INIT_ENDS_S)
            if machine.init.stdin is not None:
                machine.init.stdin.close()
            with self._lock:
                self._machines.pop(instance_id, None)

    def freeze(self, instance_id: str) -> int:
        """Stop every process of a machine where it stands; returns how many."""
        machine = self._powered(instance_id)
        machine.frozen = True
        count, running = processes.stop_until_all(self._ties(instance_id), CUT_S)
        if running:
            raise WrongState(f"{len(running)} processes of {instance_id} do not stand still")
        return count

    def thaw(self, instance_id: str) -> int:
        """Let a frozen machine go on; returns how many processes were told."""
        machine = self._powered(instance_id)
        machine.frozen = False
        return self._signal_all(instance_id, signal.SIGCONT)

    def kill_unit(self, instance_id: str, unit: str = AGENT_UNIT) -> int:
        """SIGKILL a service's main process and nothing else; returns the pid that was killed."""
        self._powered(instance_id)
        for view in self.units(instance_id):
            if view.name == unit and view.pid is not None:
                if processes.marked_as(view.pid) != instance_id:
                    break
                os.kill(view.pid, signal.SIGKILL)
                return view.pid
        raise WrongState(f"{unit} does not run on {instance_id}")

    def is_frozen(self, instance_id: str) -> bool:
        with self._lock:
            machine = self._machines.get(instance_id)
        return machine is not None and machine.frozen

    def count_processes(self, instance_ids: Iterable[str]) -> dict[str, int]:
        """How many live processes each machine has, those that outlived it included."""
        found = processes.census([self._ties(each) for each in instance_ids])
        return {instance_id: len(pids) for instance_id, pids in found.items()}

    def units(self, instance_id: str) -> tuple[UnitView, ...]:
        """The services of a machine as its init last wrote them down; no pid of the dead."""
        with self._lock:
            machine = self._machines.get(instance_id)
        if machine is None:
            return ()
        try:
            text = (machine.directory / "units.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        written = [UnitView.model_validate(each) for each in json.loads(text)]
        return tuple(
            view
            if view.pid is None or processes.process(view.pid) is not None
            else view.model_copy(update={"pid": None})
            for view in written
        )

    def console(self, instance_id: str) -> bytes:
        """The last 64 KiB of a machine's console, also after its end."""
        path = self._directory / instance_id / "console.log"
        try:
            with path.open("rb") as stream:
                stream.seek(max(path.stat().st_size - CONSOLE_BYTES, 0))
                return stream.read()
        except FileNotFoundError:
            return b""

    def _powered(self, instance_id: str) -> Machine:
        with self._lock:
            machine = self._machines.get(instance_id)
        if machine is None:
            if not (self._directory / instance_id).exists():
                raise UnknownInstance(instance_id)
            raise WrongState(f"{instance_id} has no power")
        return machine

    def _signal_all(self, instance_id: str, number: signal.Signals) -> int:
        pids = processes.members(self._ties(instance_id))
        processes.send(pids, number)
        return len(pids)

    def _ties(self, instance_id: str) -> processes.Ties:
        with self._lock:
            machine = self._machines.get(instance_id)
        init_pid = None if machine is None or machine.init.poll() is not None else machine.init.pid
        return processes.Ties(instance_id, self._directory / instance_id, init_pid)

    def _watch(self, instance_id: str, machine: Machine, on_death: Callable[[], None]) -> None:
        code = machine.init.wait()
        if not machine.cutting.is_set():
            log.warning("the machine %s died by itself (init ended with %s)", instance_id, code)
            on_death()

    def _environment(self, instance: Instance, root: Path) -> dict[str, str]:
        """What a machine's processes see; nothing of the sandbox's own environment leaks in."""
        metadata_url = f"{self._url}/imds/{instance.instance_id}"
        machine_url = f"{self._url}/_sandbox/machines/{instance.instance_id}"
        python = Path(sys.executable).parent
        known = describe(instance.machine_type)
        gpus = self._config.virtual_gpus.get(
            instance.machine_type, known.virtual_gpus if known else ""
        )
        return {
            "LANG": "C.UTF-8",
            **self._config.machine_environment,
            "PATH": f"{root}/usr/sbin:{python}:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{root}/root",
            "TMPDIR": str(root / "tmp"),
            **_import_path(),
            **({"HYBRID_VIRTUAL_GPUS": gpus} if gpus else {}),
            "HYBRID_ROOT": str(root),
            "HYBRID_POWEROFF_URL": f"{machine_url}/poweroff",
            "HYBRID_POWEROFF_COMMAND": f"{sys.executable} -m providers.sandbox.poweroff",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
            "AWS_ENDPOINT_URL": self._url,
            "AWS_DEFAULT_REGION": self._config.region,
            processes.MARKER: instance.instance_id,
        }


def _import_path() -> dict[str, str]:
    """PYTHONPATH, where the packages run from a checkout and not from site-packages."""
    home = Path(__file__).resolve().parents[2]
    return {} if home.name == "site-packages" else {"PYTHONPATH": str(home)}
