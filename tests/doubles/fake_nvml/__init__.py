"""GPUs that are not there, under the real binding.

``build_library`` compiles ``fake_nvml.c``; :class:`FakeMachine` writes the file that describes its
devices, and may change it while a program runs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NVML_NAME = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("fake_nvml.c")


class NoCompiler(Exception):
    """There is no C compiler to build the library with."""


def build_library(folder: Path) -> Path:
    """Compile the library into ``folder``, under the name that the binding loads."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("no C compiler: apt-get install gcc")
    target = folder / NVML_NAME
    subprocess.run(
        [
            compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
            "-fvisibility=hidden", f"-Wl,-soname,{NVML_NAME}", "-o", str(target), str(_SOURCE),
        ],
        check=True,
        timeout=60,
    )  # fmt: skip
    return target


class FakeMachine:
    """A machine's devices, as lines of a file."""

    def __init__(self, path: Path, *, driver: str = "580.00") -> None:
        self.path = path
        self._lines: dict[str, str] = {"driver": driver, "count": "0"}
        self._write()

    def say(self, key: str, value: object) -> None:
        """Set a line."""
        self._lines[key] = str(value)
        self._write()

    def unsay(self, key: str) -> None:
        """Take a line back."""
        self._lines.pop(key, None)
        self._write()

    def gpu(self, name: str, memory_mib: int, **fields: object) -> int:
        """Add a device; its index."""
        index = int(self._lines["count"])
        told = {
            "name": name,
            "uuid": f"GPU-{index:08d}-0000-0000-0000-000000000000",
            "bus": bus_id(index),
            "memory_total": memory_mib << 20,
            "memory_used": 0,
            "ecc_uncorrected": 0,
            "remap_failed": 0,
            "pcie_generation": 4,
            "pcie_width": 16,
            **fields,
        }
        for field, value in told.items():
            self._lines[f"gpu {index} {field}"] = str(value)
        self.say("count", index + 1)
        return index

    def instance(
        self, index: int, slot: int, profile: str, memory_mib: int, **fields: object
    ) -> None:
        """An instance of a device in MIG mode. ``gi``, ``start`` and ``size`` say where it is."""
        name = self._lines[f"gpu {index} name"]
        told = {
            "name": f"{name} MIG {profile}",
            "uuid": f"MIG-{index}-{slot}",
            "memory_total": memory_mib << 20,
            **fields,
        }
        for field, value in told.items():
            self.say(f"mig {index} {slot} {field}", value)

    def nvlinks(self, one: int, other: int, count: int) -> None:
        """Connect two devices by so many links."""
        for a, b in ((one, other), (other, one)):
            for _ in range(count):
                self.say(f"link {a} {self._next_link(a)}", bus_id(b))

    def switched(self, index: int, count: int) -> None:
        """Connect a device to NVSwitches by so many links."""
        for _ in range(count):
            self.say(f"link {index} {self._next_link(index)}", "switch")

    def _next_link(self, index: int) -> int:
        return sum(key.startswith(f"link {index} ") for key in self._lines)

    def _write(self) -> None:
        # Replaced whole: the library may read at any instant.
        draft = self.path.with_suffix(".draft")
        draft.write_text("".join(f"{key} {value}\n" for key, value in self._lines.items()))
        draft.replace(self.path)


def bus_id(index: int) -> str:
    """Where the device sits."""
    return f"00000000:{16 + index:02X}:00.0"
