"""What a benchmark's line says besides its figures: which benchmark, on what machine, how long."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.inputs import InputError

_CPU_FACTS = Path("/proc/cpuinfo")


class Stopwatch:
    """Starts when made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Wall-clock seconds since the start."""
        return time.perf_counter() - self._started


def run(benchmark: str, measure: Callable[[], Mapping[str, object]]) -> None:
    """Measure and print the line. Files that cannot be used end the benchmark with one line that
    says why (exit code 1)."""
    watch = Stopwatch()
    try:
        figures = measure()
    except InputError as error:
        sys.exit(f"benchmarks.{benchmark}: {error}")
    print_line(benchmark, watch, figures)


def print_line(benchmark: str, watch: Stopwatch, figures: Mapping[str, object]) -> None:
    """The last line of a benchmark: one JSON object. Raises ValueError when a figure is NaN or
    infinite, because then something was not measured."""
    line = {
        "benchmark": benchmark,
        "python": platform.python_version(),
        "cpu": cpu(),
        "seconds_total": round(watch.seconds(), 1),
        **figures,
    }
    print(json.dumps(line, allow_nan=False), flush=True)


def cpu() -> str:
    """The processor's name as the system gives it; its architecture where it gives none."""
    if _CPU_FACTS.is_file():
        for fact in _CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = fact.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"
