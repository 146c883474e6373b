"""The proven optimum of a small mixed-integer programme, by HiGHS in a process of its own.

HiGHS is not a dependency of the product: ``pip install 'hybrid[bench]'``. It is loaded only in the
process that solves, which reads a programme and writes its answer as JSON, and is killed when its
time is over.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

GAP = 1e-7
"""Relative gap at which a solution counts as proven."""

_START_S = 20.0
"""What the process may take besides solving."""
_MISSING = 3
"""Exit status of the process where there is no HiGHS."""

HOW_TO_GET_IT = "HiGHS is not installed: pip install 'hybrid[bench]' (or: pip install highspy)"


class NoSolver(RuntimeError):
    """HiGHS is not there; the message says how to get it."""


class NotProven(RuntimeError):
    """No optimum was proven: out of time, infeasible, or the solver failed."""


@dataclass(slots=True)
class Programme:
    """Minimise ``cost`` over binary variables, each row ``lower <= entries <= upper``."""

    cost: list[float] = field(default_factory=list)
    rows: list[tuple[float | None, float | None, list[tuple[int, float]]]] = field(
        default_factory=list
    )

    def variable(self, cost: float) -> int:
        """One more variable; its index."""
        self.cost.append(cost)
        return len(self.cost) - 1

    def row(
        self,
        entries: Mapping[int, float],
        *,
        lower: float | None = None,
        upper: float | None = None,
    ) -> None:
        """One more row; None is no bound."""
        self.rows.append((lower, upper, sorted(entries.items())))


def solve(programme: Programme, *, limit_s: float) -> tuple[int, ...]:
    """The variables that are 1 in the optimum. Raises NoSolver and NotProven."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.optimum"],
            input=json.dumps({"programme": asdict(programme), "limit_s": limit_s}),
            cwd=Path(__file__).resolve().parent.parent,
            capture_output=True,
            text=True,
            timeout=limit_s + _START_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotProven(f"killed after {error.timeout:.0f} s") from error
    if done.returncode == _MISSING:
        raise NoSolver(HOW_TO_GET_IT)
    if done.returncode:
        raise NotProven(f"the solver ended with status {done.returncode}: {done.stderr[-500:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if answer["status"] != "optimal":
        raise NotProven(f"the solver says {answer['status']}")
    return tuple(answer["ones"])


def _solve_here(programme: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    import highspy  # only in this process: an extra

    infinity = highspy.kHighsInf
    lp = highspy.HighsLp()
    count, rows = len(programme["cost"]), programme["rows"]
    lp.num_col_, lp.num_row_ = count, len(rows)
    lp.col_cost_ = programme["cost"]
    lp.col_lower_, lp.col_upper_ = [0.0] * count, [1.0] * count
    lp.integrality_ = [highspy.HighsVarType.kInteger] * count
    lp.row_lower_ = [-infinity if lower is None else lower for lower, _, _ in rows]
    lp.row_upper_ = [infinity if upper is None else upper for _, upper, _ in rows]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    starts = [0]
    for _, _, entries in rows:
        starts.append(starts[-1] + len(entries))
    lp.a_matrix_.start_ = starts
    lp.a_matrix_.index_ = [index for _, _, entries in rows for index, _ in entries]
    lp.a_matrix_.value_ = [value for _, _, entries in rows for _, value in entries]
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("time_limit", limit_s),
        ("mip_rel_gap", GAP),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        return {"status": solver.modelStatusToString(status)}
    values = solver.getSolution().col_value
    return {"status": "optimal", "ones": [i for i, value in enumerate(values) if value > 0.5]}


def main() -> int:
    """Solve what is on standard input."""
    asked = json.load(sys.stdin)
    try:
        answer = _solve_here(asked["programme"], asked["limit_s"])
    except ModuleNotFoundError as error:
        if error.name != "highspy":
            raise
        return _MISSING
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
