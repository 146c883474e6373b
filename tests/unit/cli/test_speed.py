"""``hybrid --help`` answers at once, because it imports next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

HEAVY = {
    "alembic", "api", "boto3", "fastapi", "fsspec", "httpx", "hybrid.agent", "hybrid.client",
    "hybrid.domain", "numpy", "policies", "providers", "pydantic", "pydantic_settings", "rich",
    "sqlalchemy", "starlette", "structlog", "tenacity", "uvicorn", "yaml",
}  # fmt: skip
LIMIT_S = 0.4
TIMES_A_BARE_START = 12


def cpu_s(*arguments: str) -> float:
    """What a Python process costs in CPU time: other load does not count."""
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def imported(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    program = (
        "import sys; from hybrid.cli.main import main; code = main(sys.argv[1:]);"
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_help_answers_in_a_fraction_of_a_second() -> None:
    help_, bare = [], []
    for _ in range(5):
        help_.append(cpu_s("-m", "hybrid", "--help"))
        bare.append(cpu_s("-c", "pass"))
    assert median(help_) < LIMIT_S
    assert median(help_) < TIMES_A_BARE_START * max(median(bare), 0.01)


def test_help_imports_nothing_heavy() -> None:
    assert not imported("--help") & HEAVY


def test_the_help_of_a_command_imports_no_other_and_nothing_that_only_calling_it_needs() -> None:
    modules = imported("jobs", "--help")
    assert {each for each in modules if each.startswith("hybrid.cli.commands.")} == {
        "hybrid.cli.commands.jobs"
    }
    # pydantic is Typer's own: it reads options with it
    assert not modules & (HEAVY - {"pydantic"})
