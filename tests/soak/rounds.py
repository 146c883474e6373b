"""The rounds of a soak that are tests of the suite made larger: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LIVES = 12
MONEY_STEPS, ALL_MONEY_STEPS = 1_000, 20_000
"""On each database."""
LAUNCHES, KILLS = 200, 5
ALL_LAUNCHES, ALL_KILLS = 2_000, 50

ROUND_LIMIT_S, FULL_LIMIT_S = 1_800, 4 * 3600


@dataclass(frozen=True, slots=True)
class Done:
    """How a round went: ``about`` says how much it was."""

    good: bool
    about: str
    output: str


def life(seed: int, *, full: bool) -> Done:
    """A dozen made-up lives over memory, and one over SQLite."""
    del full
    with tempfile.TemporaryDirectory() as folder:
        lived = Path(folder) / "lived"
        more = {"HYBRID_SOAK_EXAMPLES": str(LIVES), "HYBRID_SOAK_LIVED": str(lived)}
        good, output = _suite("tests/properties/test_life.py", seed, more, ROUND_LIMIT_S)
        hours = sum(map(float, lived.read_text().split())) / 3600 if lived.exists() else 0.0
    return Done(good and hours > 0, f"{hours:.0f} hours lived", output)


def money(seed: int, *, full: bool) -> Done:
    """Budgets under everything that can happen to them, on SQLite and on PostgreSQL."""
    steps = ALL_MONEY_STEPS if full else MONEY_STEPS
    more = {"HYBRID_SOAK_MONEY_STEPS": str(steps)}
    limit_s = FULL_LIMIT_S if full else ROUND_LIMIT_S
    good, output = _suite("tests/properties/test_money.py", seed, more, limit_s)
    return Done(good, f"{steps:,} steps on each database", output)


def clouds(seed: int, *, full: bool) -> Done:
    """Launches in clouds that fail at random, the control plane killed again and again."""
    launches, kills = (ALL_LAUNCHES, ALL_KILLS) if full else (LAUNCHES, KILLS)
    more = {
        "HYBRID_STORM_LAUNCHES": str(launches),
        "HYBRID_STORM_KILLS": str(kills),
        "HYBRID_STORM_SEED": str(seed),
    }
    limit_s = FULL_LIMIT_S if full else ROUND_LIMIT_S
    good, output = _suite("tests/properties/test_storm.py", seed, more, limit_s)
    return Done(good, f"{launches:,} launches, {kills} kills", output)


def _suite(path: str, seed: int, more: Mapping[str, str], limit_s: float) -> tuple[bool, str]:
    """The tests of a file at the size of a soak; whether all passed, and what they printed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=0", "-p", "no:cacheprovider"),
            *(f"--hypothesis-seed={seed}", path),
        ],
        cwd=ROOT,
        env={**os.environ, "HYBRID_SOAK": "1", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    return done.returncode == 0, done.stdout
