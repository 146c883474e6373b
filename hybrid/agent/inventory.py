"""What this machine is made of, as far as a job may use it."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from hybrid.agent.config import AgentConfig
from hybrid.agent.guardian import boot_id
from hybrid.agent.launch import ContainerRuntime, detect_container_runtimes
from hybrid.agent.protocol import Inventory, WireGpu
from hybrid.ports.gpus import GpuInventory

_GPUS_KEPT_S = 10.0
_RUNTIMES_KEPT_S = 300.0
_CGROUPS = Path("/sys/fs/cgroup")


class HostInventory:
    """Reads the machine; what is dear to read is kept for a while. Safe for many threads."""

    def __init__(
        self,
        config: AgentConfig,
        gpus: GpuInventory,
        *,
        detect: Callable[[], tuple[ContainerRuntime, ...]] = detect_container_runtimes,
        cgroups: Path = _CGROUPS,
    ) -> None:
        self._config = config
        self._gpus = gpus
        self._detect = detect
        self._cgroups = cgroups
        self._lock = threading.Lock()
        self._set = gpus.read()
        self._set_at = time.monotonic()
        self._runtimes = detect()
        self._runtimes_at = time.monotonic()
        self.machine_id: str | None = None

    def read(self) -> Inventory:
        """The whole inventory now."""
        with self._lock:
            now = time.monotonic()
            if now - self._set_at > _GPUS_KEPT_S:
                self._set, self._set_at = self._gpus.read(), now
            if now - self._runtimes_at > _RUNTIMES_KEPT_S:
                self._runtimes, self._runtimes_at = self._detect(), now
            devices = self._set
            runtimes = self._runtimes
        return Inventory(
            hostname=socket.gethostname()[:255],
            address=self._config.address or address_towards(self._config.server),
            machine_id=self.machine_id,
            gpus=tuple(WireGpu.of(gpu) for gpu in devices.gpus),
            links_gbps=devices.links_gbps,
            parted=devices.parted,
            cpus=usable_cpus(self._cgroups),
            memory_gib=usable_memory_gib(self._cgroups),
            architecture=_architecture(),
            container_runtimes=tuple(runtime.kind.value for runtime in runtimes),
            block=self._config.block,
            rack=self._config.rack,
            boot_id=boot_id(),
        )

    @property
    def runtime(self) -> ContainerRuntime | None:
        """The container engine that jobs get here."""
        with self._lock:
            return self._runtimes[0] if self._runtimes else None

    def virtual(self, gpu_ids: tuple[str, ...]) -> bool:
        """Whether these devices are only declared."""
        with self._lock:
            wanted = set(gpu_ids)
            return any(gpu.virtual for gpu in self._set.gpus if gpu.id in wanted)


def usable_cpus(cgroups: Path = _CGROUPS) -> float:
    """CPU cores that processes here may use: affinity, lowered by the control group's quota."""
    cpus = float(len(os.sched_getaffinity(0)))
    for folder in _own_groups(cgroups):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            if quota != "max":
                cpus = min(cpus, int(quota) / int(period))
    return round(max(cpus, 0.01), 3)


def usable_memory_gib(cgroups: Path = _CGROUPS) -> float:
    """Memory that processes here may use, in GiB: the machine's, lowered by control groups."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _own_groups(cgroups):
        with contextlib.suppress(OSError, ValueError):
            size = min(size, int((folder / "memory.max").read_text(encoding="ascii")))
    return round(size / 2**30, 3)


def _own_groups(cgroups: Path) -> Iterator[Path]:
    """Our control group and those above it (version 2)."""
    own = "/"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                own = line[3:]
    folder = cgroups / own.lstrip("/")
    yield folder
    while folder != cgroups and cgroups in folder.parents:
        folder = folder.parent
        yield folder


def address_towards(server: str) -> str:
    """This machine's address on the way to the server; empty when there is none."""
    parts = urlsplit(server)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
        family, _, _, _, target = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # UDP: picks a route, sends nothing
            return str(probe.getsockname()[0])
    except (OSError, IndexError):
        return ""


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
