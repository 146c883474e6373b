"""Every test that the reliability page names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "reliability.md").read_text()
SOURCES = [*(ROOT / "tests").rglob("test_*.py"), ROOT / "providers" / "conformance.py"]


def test_every_fault_names_tests_that_exist():
    there = {
        name
        for path in SOURCES
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    told = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(told) > 60
    assert told - there == set()


def test_every_fault_is_shown_by_a_test():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")]
    faults = [row for row in rows if not row.startswith("| fault ")]
    assert len(faults) > 40
    assert [row for row in faults if "`test_" not in row] == []
