"""What a job under a deadline costs on spot, on windows of real availability.

``python -m benchmarks.spot --data DIR [--quick]`` reads ``windows.jsonl`` and ``published.json`` of
DIR. 48 h of work, on-demand $3.06/h and spot $0.9731/h paid per tick of a window; each tick a
policy chooses nothing, spot (if available) or on-demand; starting a machine costs the restart time
without progress; spot that becomes unavailable is lost at the tick. Every choice is made by
``hybrid.planning.deadline_spot``, with chains learned from the *other* pools and weighed by the
window's own past: the windows of one pool overlap in time. The pools of the group ``high`` are
those of most availability, as many as its published number of windows.

The figure is (UP - ours) / (UP - omniscient), the share that we close of the gap between Uniform
Progress and an omniscient optimum, both as published. Uniform Progress runs here too, under our
accounting: how far it lands from the published figure is printed as ``uniform_progress_off_usd``.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison import Compared
from benchmarks.inputs import InputError, read_json, reading
from benchmarks.machine import run as run_benchmark
from benchmarks.uniform_progress import uniform_progress
from hybrid.estimation.availability import (
    NO_COUNTS,
    AvailabilityChain,
    count,
    learn,
    posterior,
    states,
)
from hybrid.estimation.spot_value import Machine, SpotTerms
from hybrid.planning.deadline_spot import JobsNow, choose_many

WORK_S = 48 * 3600.0
ON_DEMAND_MICROS_PER_HOUR = 3_060_000
SPOT_MICROS_PER_HOUR = 973_100
QUICK_WINDOWS = 5
WANTED_BY_RESTART_MIN = {3: 0.70, 12: 0.15}

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One published cell, ``high_availability/deadline_52h/restart_3min``."""

    name: str
    high: bool
    deadline_h: int
    restart_min: int
    windows: int
    uniform_progress_usd: float
    omniscient_usd: float

    def terms(self, tick_s: float) -> SpotTerms:
        return SpotTerms(
            work_s=WORK_S,
            horizon_s=self.deadline_h * 3600.0,
            tick_s=tick_s,
            restart_s=self.restart_min * 60.0,
            spot_micros_per_hour=SPOT_MICROS_PER_HOUR,
            on_demand_micros_per_hour=ON_DEMAND_MICROS_PER_HOUR,
        )


@dataclass(frozen=True, slots=True)
class Pools:
    """(windows, ticks) availability per pool, all of ``tick_s``."""

    windows: Mapping[str, Bools]
    tick_s: float

    def chains_for(self, pool: str) -> tuple[AvailabilityChain, ...]:
        """One chain per other pool."""
        return tuple(
            learn(count(windows), self.tick_s)
            for other, windows in self.windows.items()
            if other != pool
        ) or (learn(NO_COUNTS, self.tick_s),)


def read_pools(path: Path) -> Pools:
    """Where the windows of a pool are not equally long, what goes beyond the shortest is left out.
    Raises ValueError for a line of another format, and when ticks differ."""
    texts: dict[str, list[str]] = {}
    gaps: set[float] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            window = json.loads(line)
            gap_s, pool, text = float(window["gap_seconds"]), window["region"], window["available"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number} is no window: {error!r}") from error
        if not text or set(text) - {"0", "1"}:
            raise ValueError(f"{path}, line {number}: 'available' is not a digit 0 or 1 per tick")
        gaps.add(gap_s)
        texts.setdefault(pool, []).append(text)
    if not gaps:
        raise ValueError(f"{path} has no windows")
    if len(gaps) != 1 or min(gaps) <= 0:
        raise ValueError(f"{path} has windows of ticks {sorted(gaps)} s; one length is expected")
    windows = {}
    for pool, own in sorted(texts.items()):
        ticks = min(map(len, own))
        windows[pool] = np.array([[c == "1" for c in text[:ticks]] for text in own], dtype=bool)
    return Pools(windows, gaps.pop())


def read_cells(path: Path) -> list[Cell]:
    """Raises ValueError for a cell whose name is not understood, or without a gap to close."""
    cells = []
    for name, figures in read_json(path).items():
        match = re.fullmatch(r"(high|low)_availability/deadline_(\d+)h/restart_(\d+)min", name)
        if match is None:
            raise ValueError(f"{path}: {name!r} is no cell of availability, deadline and restart")
        cell = Cell(
            name,
            match[1] == "high",
            int(match[2]),
            int(match[3]),
            figures["windows"],
            figures["uniform_progress_usd"],
            figures["omniscient_usd"],
        )
        if cell.uniform_progress_usd <= cell.omniscient_usd:
            raise ValueError(f"{path}: {name} has no gap between Uniform Progress and omniscient")
        cells.append(cell)
    if not cells:
        raise ValueError(f"{path} has no cells")
    return cells


def high_pools(pools: Pools, cells: Sequence[Cell]) -> frozenset[str]:
    """The pools of the group ``high``: the most available ones, until they have the windows that
    its cells were published for."""
    wanted = max((cell.windows for cell in cells if cell.high), default=0)
    by_availability = sorted(pools.windows, key=lambda p: (-pools.windows[p].mean(), p))
    high: set[str] = set()
    for pool in by_availability:
        if sum(len(pools.windows[p]) for p in high) >= wanted:
            break
        high.add(pool)
    return frozenset(high)


def run(
    windows: Bools, terms: SpotTerms, chains: tuple[AvailabilityChain, ...]
) -> tuple[Floats, Bools]:
    """(windows,) dollars paid and whether the deadline was met, one job per window."""
    number = len(windows)
    at, weights = states(windows), posterior(chains, windows)
    held = np.full(number, int(Machine.NONE))
    starting_s, work_s, micros = np.zeros(number), np.full(number, terms.work_s), np.zeros(number)
    prices = np.array([terms.tick_micros(machine) for machine in Machine])
    for tick in range(terms.ticks):
        held = np.where((held == Machine.SPOT) & ~windows[:, tick], Machine.NONE, held)
        jobs = JobsNow(
            left_s=np.full(number, (terms.ticks - tick) * terms.tick_s),
            work_left_s=work_s,
            held=held,
            starting_s=starting_s,
            state=at[:, tick],
            weights=weights[:, tick],
        )
        chosen = choose_many(jobs, terms, chains)
        if ((chosen == Machine.SPOT) & ~windows[:, tick]).any():
            raise RuntimeError("spot was chosen where there is none")
        starting_s = np.where(chosen == held, starting_s, terms.restart_s)
        starting_s[chosen == Machine.NONE] = 0.0
        worked = np.maximum(terms.tick_s - starting_s, 0.0) * (chosen != Machine.NONE)
        starting_s = np.maximum(starting_s - terms.tick_s, 0.0)
        work_s = np.maximum(work_s - worked, 0.0)
        micros += prices[chosen]
        held = chosen
    return micros / 1e6, work_s <= 0.0


def measure(data: Path, *, quick: bool) -> dict[str, object]:
    """The benchmark's figures. Raises InputError for a folder of another format."""
    with reading(data / "windows.jsonl"):
        pools = read_pools(data / "windows.jsonl")
    with reading(data / "published.json"):
        cells = read_cells(data / "published.json")
    with reading(data):
        high = high_pools(pools, cells)
        _check_length(pools, cells, data)
    ours_usd: dict[str, float] = {}
    progress_usd: dict[str, float] = {}
    missed = 0
    # cells of the same terms one after the other: they share solved tables
    for cell in sorted(cells, key=lambda c: (c.deadline_h, c.restart_min, c.name)):
        terms = cell.terms(pools.tick_s)
        paid: list[float] = []
        compared: list[float] = []
        for pool, every in pools.windows.items():
            if (pool in high) != cell.high:
                continue
            windows = every[:QUICK_WINDOWS] if quick else every
            dollars, met = run(windows, terms, pools.chains_for(pool))
            missed += int((~met).sum())
            paid += dollars.tolist()
            compared += [uniform_progress(window, terms) / 1e6 for window in windows.tolist()]
        if not paid:
            print(f"{cell.name}: no windows of this group", flush=True)
            continue
        ours_usd[cell.name] = statistics.fmean(paid)
        progress_usd[cell.name] = statistics.fmean(compared)
        print(
            f"{cell.name}: ours ${ours_usd[cell.name]:.2f}, uniform progress "
            f"${cell.uniform_progress_usd:.2f} (here ${progress_usd[cell.name]:.2f}), "
            f"omniscient ${cell.omniscient_usd:.2f}",
            flush=True,
        )
    measured = [cell for cell in cells if cell.name in ours_usd]
    if not measured:
        raise InputError(f"{data} has no windows for any published cell")
    return {
        "windows": sum(len(w[:QUICK_WINDOWS] if quick else w) for w in pools.windows.values()),
        "gap_closed": {c.name: round(_gap_closed(c, ours_usd[c.name]), 3) for c in measured},
        "missed": missed,
        "high": sorted(high),
        "ours_usd": {c.name: round(ours_usd[c.name], 2) for c in measured},
        "uniform_progress_usd": {c.name: c.uniform_progress_usd for c in measured},
        "omniscient_usd": {c.name: c.omniscient_usd for c in measured},
        "uniform_progress_off_usd": {
            c.name: round(progress_usd[c.name] - c.uniform_progress_usd, 2) for c in measured
        },
    }


def _check_length(pools: Pools, cells: Sequence[Cell], data: Path) -> None:
    """Raises ValueError when a deadline lies beyond the end of a window."""
    longest = max(cells, key=lambda cell: cell.deadline_h)
    for pool, windows in pools.windows.items():
        hours = windows.shape[1] * pools.tick_s / 3600.0
        if windows.shape[1] < longest.terms(pools.tick_s).ticks:
            raise ValueError(
                f"{data}: a window of {pool} ends after {hours:g} h, and {longest.name} needs"
                f" {longest.deadline_h} h"
            )


def _gap_closed(cell: Cell, ours_usd: float) -> float:
    gap = cell.uniform_progress_usd - cell.omniscient_usd
    return (cell.uniform_progress_usd - ours_usd) / gap


def compare(line: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The rows of the results file, from the printed line."""
    rows = []
    for name, closed in line["gap_closed"].items():
        restart_min = int(name.rsplit("restart_", 1)[1].removesuffix("min"))
        wanted = WANTED_BY_RESTART_MIN.get(restart_min)
        rows.append(
            Compared(
                name.replace("_", " ").replace("/", ", "),
                f"UP ${line['uniform_progress_usd'][name]:.2f}, "
                f"omniscient ${line['omniscient_usd'][name]:.2f}",
                f"${line['ours_usd'][name]:.2f}: {closed:.0%} of the gap closed",
                "" if wanted is None else f"≥ {wanted:.0%}",
                None if wanted is None else closed >= wanted,
            )
        )
    missed = int(line["missed"])
    return (*rows, Compared("missed deadlines", "0", str(missed), "0", missed == 0))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.spot", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of availability windows")
    parser.add_argument("--quick", action="store_true", help="the first windows of each pool only")
    arguments = parser.parse_args(argv)
    run_benchmark("spot", lambda: measure(arguments.data, quick=arguments.quick))


if __name__ == "__main__":
    main()
