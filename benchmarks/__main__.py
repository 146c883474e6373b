"""``python -m benchmarks [--quick]`` runs every benchmark on its data, one after the other, and
writes ``benchmarks/results.md``: the published figure beside ours."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import Compared

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
RESULTS = ROOT / "benchmarks" / "results.md"

WITH_DATA = ("bursting", "placement", "spot", "backfill")
WITHOUT_DATA = ("planning", "exactness", "ledger", "provision", "checkpoint", "recovery")
LIMIT_S = 25 * 60
"""A benchmark ends within 20 minutes on one core that is its own."""

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one benchmark: its last line, or why there is none (``failed`` tells whether
    that is anybody's fault)."""

    name: str
    line: Mapping[str, Any] | None = None
    without: str = ""
    failed: bool = False


def run(name: str, data: Path, *, quick: bool) -> Outcome:
    """One benchmark in a process of its own."""
    if importlib.util.find_spec(f"benchmarks.{name}") is None:
        return Outcome(name, without="skipped: there is no such benchmark in this checkout")
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    if name in WITH_DATA:
        if not (data / name).is_dir():
            return Outcome(name, without=f"skipped: no data at {data / name}")
        command += ["--data", str(data / name)]
    if quick:
        command.append("--quick")
    print(f"== {name}", flush=True)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **ONE_CORE},
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(name, without=f"failed: not over after {LIMIT_S} s", failed=True)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        return Outcome(name, without=f"failed: exit status {done.returncode}", failed=True)
    line = last_line(done.stdout)
    if line is None:
        return Outcome(name, without="failed: its last line is no JSON object", failed=True)
    return Outcome(name, line)


def last_line(output: str) -> dict[str, Any] | None:
    """The JSON object a benchmark ends with; None when it does not end with one."""
    lines = output.strip().splitlines()
    try:
        line = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        return None
    return line if isinstance(line, dict) else None


def report(outcomes: Sequence[Outcome], *, quick: bool) -> str:
    """The results file."""
    parts = ["# Benchmarks: the published figure beside ours", ""]
    if quick:
        parts += [
            "A first look (`--quick`): fewer seeds, windows or jobs than the figures ask.",
            "",
        ]
    for outcome in outcomes:
        parts += [f"## {outcome.name}", ""]
        parts += [outcome.without] if outcome.line is None else section(outcome.name, outcome.line)
        parts.append("")
    return "\n".join(parts)


def section(name: str, line: Mapping[str, Any]) -> list[str]:
    """The table of one benchmark: as its ``compare`` has it, else every figure of its line."""
    rows = compared(name, line)
    table = ["| | published | ours | asked | reached |", "|---|---|---|---|---|"]
    for row in rows:
        reached = {None: "", True: "yes", False: "**no**"}[row.reached]
        table.append(f"| {row.what} | {row.published} | {row.ours} | {row.wanted} | {reached} |")
    machine = (
        f"`python -m benchmarks.{name}`: {line.get('seconds_total')} s, Python "
        f"{line.get('python')}, {line.get('cpu')}"
    )
    return [machine, "", *table]


def compared(name: str, line: Mapping[str, Any]) -> Sequence[Compared]:
    """Rows from the module's ``compare(line)`` where it has one."""
    compare = getattr(importlib.import_module(f"benchmarks.{name}"), "compare", None)
    if compare is not None:
        rows: Sequence[Compared] = compare(line)
        return rows
    about = {"benchmark", "python", "cpu", "seconds_total"}
    return [Compared(key, "", json.dumps(line[key])) for key in line if key not in about]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a first look in minutes")
    parser.add_argument("--data", type=Path, default=DATA, help="one folder for each benchmark")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to write")
    arguments = parser.parse_args(argv)
    outcomes = []
    for name in (*WITH_DATA, *WITHOUT_DATA):
        outcome = run(name, arguments.data.resolve(), quick=arguments.quick)
        if outcome.without:
            print(f"{name}: {outcome.without}", flush=True)
        outcomes.append(outcome)
    arguments.results.write_text(report(outcomes, quick=arguments.quick), encoding="utf-8")
    print(f"written to {arguments.results}", flush=True)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
