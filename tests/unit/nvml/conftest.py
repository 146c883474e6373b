"""The real binding over a library without GPUs."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.doubles.fake_nvml import FakeMachine, NoCompiler, build_library


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loaded into this process under the name that the binding asks for: the dynamic linker takes
    what is loaded already."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is missing: pip install 'hybrid[nvidia]'")
    try:
        library = build_library(tmp_path_factory.mktemp("nvml"))
    except NoCompiler as error:
        pytest.skip(str(error))
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return library


@pytest.fixture
def machine(fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine with a driver and no devices yet."""
    machine = FakeMachine(tmp_path / "nvml.txt")
    monkeypatch.setenv("FAKE_NVML", str(machine.path))
    return machine
