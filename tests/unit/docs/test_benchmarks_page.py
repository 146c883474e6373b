"""The benchmarks page tells of every benchmark there is, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "benchmarks.md").read_text()


def test_every_benchmark_has_its_chapter_and_its_command():
    modules = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if not path.stem.startswith("_")
        and re.search(r"^def main\(", path.read_text(), re.MULTILINE)
    }
    assert modules
    assert set(re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)) == modules
    assert set(re.findall(r"-m benchmarks\.(\w+)", TEXT)) == modules
