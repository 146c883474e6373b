"""The line a benchmark ends with."""

from __future__ import annotations

import json
import math
import platform

import pytest

from benchmarks.machine import Stopwatch, cpu, print_line


def test_the_line_names_the_benchmark_and_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("placement", Stopwatch(), {"worst_margin": 0.5})
    line = json.loads(capsys.readouterr().out)
    assert line.pop("seconds_total") >= 0
    assert line == {
        "benchmark": "placement",
        "python": platform.python_version(),
        "cpu": cpu(),
        "worst_margin": 0.5,
    }
    assert line["cpu"]


def test_a_figure_that_was_not_measured_is_not_printed() -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_line("spot", Stopwatch(), {"gap_closed": math.nan})
