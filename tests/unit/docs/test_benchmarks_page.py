"""The benchmarks page tells of every benchmark there is, and of no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "benchmarks.md").read_text()


def test_every_benchmark_has_its_chapter_and_its_command():
    modules = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if f"python -m benchmarks.{path.stem}" in (ast.get_docstring(_parsed(path)) or "")
    }
    assert len(modules) >= 4
    assert set(re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)) == modules
    assert set(re.findall(r"`python -m benchmarks\.(\w+)", TEXT)) == modules


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
